//! The crate distkit.

use std::sync::Arc;

use distkit::DistkitRedisKey;
use distkit::lock::{LockOptions, Mutex, MutexGuard};
use redis::aio::ConnectionManager;

use super::{Lock, Peer};
use crate::connection::manager;

/// Its lease is 30 s by default.
pub struct Distkit(ConnectionManager);

impl Peer for Distkit {
    type Lock = Arc<Mutex>;

    async fn connect(url: &str) -> Self {
        Self(manager(url).await)
    }

    /// Its keys cannot contain a colon.
    fn lock(&self, name: &str) -> Arc<Mutex> {
        let key = DistkitRedisKey::try_from(name.replace(':', "_")).expect("a valid name");
        Mutex::new(LockOptions::new(key, self.0.clone()))
    }
}

impl Lock for Arc<Mutex> {
    type Guard = MutexGuard;

    async fn lock(&mut self) -> MutexGuard {
        Mutex::lock(self).await.expect("a lock")
    }

    async fn unlock(&mut self, guard: MutexGuard) {
        guard.release().await.expect("the lock was held");
    }
}
