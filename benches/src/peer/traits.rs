//! A client and a lock, as the measurements use them.

use std::future::Future;
use std::time::Duration;

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
