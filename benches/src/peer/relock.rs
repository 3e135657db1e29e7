//! The crate relock.

use relock::error::CanNotGetLockReason::LockIsStillBusy;
use relock::{Error, Relock as Client};

use super::{LEASE, Lock, Peer};

pub struct Relock(Client);

pub struct RelockLock {
    client: Client,
    name: String,
}

/// The values in its README.
const RETRIES: u32 = 5;
const RETRY_DELAY_MS: u32 = 200;

impl Peer for Relock {
    type Lock = RelockLock;

    async fn connect(url: &str) -> Self {
        Self(Client::new(url).expect("a valid address"))
    }

    fn lock(&self, name: &str) -> RelockLock {
        RelockLock { client: self.0.clone(), name: name.to_owned() }
    }
}

impl Lock for RelockLock {
    type Guard = relock::Lock;

    async fn lock(&mut self) -> relock::Lock {
        let lease_ms = LEASE.as_millis() as usize;
        loop {
            match self.client.lock(&self.name, lease_ms, RETRIES, RETRY_DELAY_MS).await {
                Ok(lock) => return lock,
                Err(Error::CanNotGetLock(LockIsStillBusy { .. })) => {}
                Err(error) => panic!("no lock: {error}"),
            }
        }
    }

    async fn unlock(&mut self, lock: relock::Lock) {
        let removed = self.client.unlock(&self.name, lock.id).await;
        assert_eq!(removed.expect("an answer"), 1, "the lock was held");
    }
}
