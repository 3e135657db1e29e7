//! What is compared, as the measurements see it.

use std::future::Future;
use std::time::Duration;

use lockkeeper::{FairLock, LockClient, LockGuard, RLock, ReadLock};
use rslock::LockManager;

use crate::bare;

/// Lockkeeper's default, and what the others are given.
pub const LEASE: Duration = Duration::from_secs(30);

/// A client of some crate, or of none.
pub trait Peer: Sized {
    type Lock: Lock;

    fn connect(url: &str) -> impl Future<Output = Self>;

    fn lock(&self, name: &str) -> Self::Lock;
}

/// A lock in the hands of one task.
pub trait Lock: Send + 'static {
    type Guard: Send;

    fn lock(&mut self) -> impl Future<Output = Self::Guard> + Send;

    fn unlock(&mut self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}

/// Lockkeeper, with a handle that is kept.
impl Peer for LockClient {
    type Lock = RLock;

    async fn connect(url: &str) -> Self {
        Self::connect(url).await.expect("a client")
    }

    fn lock(&self, name: &str) -> RLock {
        self.rlock(name)
    }
}

macro_rules! lockkeepers {
    ($($lock:ty),*) => {
        $(
            impl Lock for $lock {
                type Guard = LockGuard;

                async fn lock(&mut self) -> LockGuard {
                    self.lock().await.expect("a lock")
                }

                async fn unlock(&mut self, guard: LockGuard) {
                    guard.unlock().await.expect("a lock that was held");
                }
            }
        )*
    };
}

lockkeepers!(RLock, FairLock, ReadLock);

/// Lockkeeper's fair lock.
pub struct Fair(LockClient);

impl Peer for Fair {
    type Lock = FairLock;

    async fn connect(url: &str) -> Self {
        Self(LockClient::connect(url).await.expect("a client"))
    }

    fn lock(&self, name: &str) -> FairLock {
        self.0.fair_lock(name)
    }
}

/// Lockkeeper's read lock.
pub struct Read(LockClient);

impl Peer for Read {
    type Lock = ReadLock;

    async fn connect(url: &str) -> Self {
        Self(LockClient::connect(url).await.expect("a client"))
    }

    fn lock(&self, name: &str) -> ReadLock {
        self.0.read_write_lock(name).into_read()
    }
}

/// Lockkeeper, with a new handle each time.
pub struct NewHandles(LockClient);

pub struct NewHandle {
    client: LockClient,
    name: String,
}

impl Peer for NewHandles {
    type Lock = NewHandle;

    async fn connect(url: &str) -> Self {
        Self(LockClient::connect(url).await.expect("a client"))
    }

    fn lock(&self, name: &str) -> NewHandle {
        NewHandle { client: self.0.clone(), name: name.to_owned() }
    }
}

impl Lock for NewHandle {
    type Guard = LockGuard;

    async fn lock(&mut self) -> LockGuard {
        self.client.rlock(&self.name).lock().await.expect("a lock")
    }

    async fn unlock(&mut self, guard: LockGuard) {
        guard.unlock().await.expect("a lock that was held");
    }
}

/// The crate rslock. It does less: `SET NX` and a script of a `GET` and a `DEL`, no re-entry, no renewal, and nobody
/// is woken. It has one connection.
pub struct Rslock(LockManager);

pub struct RslockLock {
    manager: LockManager,
    name: String,
}

impl Peer for Rslock {
    type Lock = RslockLock;

    async fn connect(url: &str) -> Self {
        Self(LockManager::new(vec![bare::address(url)]))
    }

    fn lock(&self, name: &str) -> RslockLock {
        RslockLock { manager: self.0.clone(), name: name.to_owned() }
    }
}

impl Lock for RslockLock {
    type Guard = rslock::LockGuard;

    async fn lock(&mut self) -> rslock::LockGuard {
        self.manager.acquire(self.name.as_str(), LEASE).await.expect("a lock")
    }

    async fn unlock(&mut self, guard: rslock::LockGuard) {
        guard.release().await;
    }
}
