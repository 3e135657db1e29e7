//! What is compared, as the measurements see it.

mod async_redis_lock;
mod distkit;
mod lockkeeper;
mod relock;
mod rlock;
mod rslock;

use std::future::Future;
use std::time::Duration;

pub use self::async_redis_lock::AsyncRedisLock;
pub use self::distkit::Distkit;
pub use self::lockkeeper::{Fair, NewHandles, Read, Red, Together};
pub use self::relock::Relock;
pub use self::rlock::Rlock;
pub use self::rslock::Rslock;

/// Lockkeeper's default, and what the others are given.
pub const LEASE: Duration = Duration::from_secs(30);

/// A client of some crate, or of none.
pub trait Peer: Sized {
    type Lock: Lock;

    /// One URL; or several with spaces between, if it is a lock on several servers.
    fn connect(url: &str) -> impl Future<Output = Self>;

    fn lock(&self, name: &str) -> Self::Lock;
}

/// A lock in the hands of one task.
pub trait Lock: Send + 'static {
    type Guard: Send + 'static;

    fn lock(&mut self) -> impl Future<Output = Self::Guard> + Send;

    fn unlock(&mut self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}
