//! The crate rlock.

use rlock::AcquireOptions;
use rlock::async_lock::{RLock, RLockGuard};

use super::{LEASE, Lock, Peer};
use crate::connection::manager;

pub struct Rlock(RLock);

pub struct RlockLock {
    client: RLock,
    name: String,
    options: AcquireOptions,
}

impl Peer for Rlock {
    type Lock = RlockLock;

    async fn connect(url: &str) -> Self {
        Self(RLock::with_connection_manager(manager(url).await).await.expect("a client"))
    }

    fn lock(&self, name: &str) -> RlockLock {
        let options = AcquireOptions::builder().ttl(LEASE).build().expect("valid options");
        RlockLock { client: self.0.clone(), name: name.to_owned(), options }
    }
}

impl Lock for RlockLock {
    type Guard = RLockGuard;

    async fn lock(&mut self) -> RLockGuard {
        let acquired = self.client.acquire_mutex_with_options(&self.name, self.options.clone()).await;
        acquired.expect("a lock")
    }

    async fn unlock(&mut self, mut guard: RLockGuard) {
        guard.release().await.expect("the lock was held");
    }
}
