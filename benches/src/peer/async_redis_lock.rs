//! The crate async-redis-lock.

use async_redis_lock::{Error, Lock as Guard, Locker, Options};

use super::{LEASE, Lock, Peer};
use crate::connection::address;

pub struct AsyncRedisLock(Locker);

pub struct AsyncRedisLockLock {
    locker: Locker,
    name: String,
    options: Options,
}

impl Peer for AsyncRedisLock {
    type Lock = AsyncRedisLockLock;

    async fn connect(url: &str) -> Self {
        let client = redis::Client::open(address(url)).expect("a valid address");
        Self(Locker::from_client(client).await.expect("a client"))
    }

    /// It recommends a third of the lease for the renewal.
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
                // It waits 500 ms for an answer, which a busy machine may exceed. What it left on the server expires.
                Err(error) => assert!(is_time_out(&error), "no lock: {error}"),
            }
        }
    }

    async fn unlock(&mut self, guard: Guard) {
        if let Err(error) = guard.release().await {
            assert!(is_time_out(&error), "the lock was held: {error}");
        }
    }
}

fn is_time_out(error: &Error) -> bool {
    match error {
        Error::OperationTimeout => true,
        Error::Redis(error) => error.is_timeout(),
        _ => false,
    }
}
