//! The crate rslock.

use rslock::LockManager;

use super::{LEASE, Lock, Peer};
use crate::connection::address;

/// It has one connection to each server.
pub struct Rslock(LockManager);

pub struct RslockLock {
    manager: LockManager,
    name: String,
}

impl Peer for Rslock {
    type Lock = RslockLock;

    async fn connect(url: &str) -> Self {
        Self(LockManager::new(url.split(' ').map(address).collect()))
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
