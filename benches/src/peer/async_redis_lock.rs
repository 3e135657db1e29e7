//! The crate async-redis-lock.

use async_redis_lock::{Error, Lock as Guard, Locker, Options};

use super::{LEASE, Lock, Peer};
use crate::bare;

pub struct AsyncRedisLock(Locker);

pub struct AsyncRedisLockLock {
    locker: Locker,
    name: String,
    options: Options,
}

impl Peer for AsyncRedisLock {
    type Lock = AsyncRedisLockLock;

    async fn connect(url: &str) -> Self {
        let client = redis::Client::open(bare::address(url)).expect("a good address");
        Self(Locker::from_client(client).await.expect("a client"))
    }

    /// A third of the lease is what it recommends for the renewal.
    fn lock(&self, name: &str) -> AsyncRedisLockLock {
        let options = Options::new().ttl(LEASE).extend(LEASE / 3).timeout(None);
        AsyncRedisLockLock { locker: self.0.clone(), name: name.to_owned(), options }
    }
}

impl Lock for AsyncRedisLockLock {
    type Guard = Guard;

    async fn lock(&mut self) -> Guard {
        loop {
            match self.locker.acquire_with_options(&self.options, self.name.as_str()).await {
                Ok(guard) => return guard,
                // It gives a busy machine 500 ms for an answer. What it then left behind ends with its lease.
                Err(error) => assert!(is_late(&error), "no lock: {error}"),
            }
        }
    }

    async fn unlock(&mut self, guard: Guard) {
        if let Err(error) = guard.release().await {
            assert!(is_late(&error), "a lock that was held: {error}");
        }
    }
}

fn is_late(error: &Error) -> bool {
    match error {
        Error::OperationTimeout => true,
        Error::Redis(error) => error.is_timeout(),
        _ => false,
    }
}
