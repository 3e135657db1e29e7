//! The crates that are compared, behind one trait.

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
pub use self::lockkeeper::{Clustered, Fair, Permits, Read, Red, Synced, Together};
pub use self::relock::Relock;
pub use self::rlock::Rlock;
pub use self::rslock::Rslock;

/// The lease of all candidates: lockkeeper's default.
pub const LEASE: Duration = Duration::from_secs(30);

/// A client of one of the crates, or the bare scripts.
pub trait Peer: Sized {
    type Lock: Lock;

    /// Takes one URL. A lock on several servers takes several, with spaces between them.
    fn connect(url: &str) -> impl Future<Output = Self>;

    fn lock(&self, name: &str) -> Self::Lock;
}

/// A lock that one task uses.
pub trait Lock: Send + 'static {
    type Guard: Send + 'static;

    fn lock(&mut self) -> impl Future<Output = Self::Guard> + Send;

    fn unlock(&mut self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}
