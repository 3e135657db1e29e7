//! This crate.

use futures_util::future::join_all;
use lockkeeper::{FairLock, LockClient, LockConfig, LockGuard, RLock, ReadLock, RedLock, Source};

use super::traits::{Lock, Peer};

/// Lockkeeper, with handles that are kept.
impl Peer for LockClient {
    type Lock = RLock;

    async fn connect(url: &str) -> Self {
        client(url).await
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
                    guard.unlock().await.expect("the lock was held");
                }
            }
        )*
    };
}

lockkeepers!(RLock, FairLock, ReadLock, RedLock);

/// Lockkeeper's fair lock.
pub struct Fair(LockClient);

impl Peer for Fair {
    type Lock = FairLock;

    async fn connect(url: &str) -> Self {
        Self(client(url).await)
    }

    fn lock(&self, name: &str) -> FairLock {
        self.0.fair_lock(name)
    }
}

/// Lockkeeper, where a replica must have a hold before it is granted.
pub struct Synced(LockClient);

impl Peer for Synced {
    type Lock = RLock;

    async fn connect(url: &str) -> Self {
        let config = LockConfig::builder().sync_replicas(1).build().expect("valid");
        Self(LockClient::connect_with(url, config).await.expect("a server"))
    }

    fn lock(&self, name: &str) -> RLock {
        self.0.rlock(name)
    }
}

/// Lockkeeper on a cluster.
pub struct Clustered(LockClient);

impl Peer for Clustered {
    type Lock = RLock;

    async fn connect(urls: &str) -> Self {
        let source = Source::cluster(urls.split(' '));
        Self(LockClient::connect_with(source, LockConfig::default()).await.expect("a cluster"))
    }

    fn lock(&self, name: &str) -> RLock {
        self.0.rlock(name)
    }
}

/// Lockkeeper's read lock.
pub struct Read(LockClient);

impl Peer for Read {
    type Lock = ReadLock;

    async fn connect(url: &str) -> Self {
        Self(client(url).await)
    }

    fn lock(&self, name: &str) -> ReadLock {
        self.0.read_write_lock(name).into_read()
    }
}

/// Lockkeeper, with a new handle for each acquire.
pub struct NewHandles(LockClient);

pub struct NewHandle {
    client: LockClient,
    name: String,
}

impl Peer for NewHandles {
    type Lock = NewHandle;

    async fn connect(url: &str) -> Self {
        Self(client(url).await)
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
        guard.unlock().await.expect("the lock was held");
    }
}

/// Lockkeeper's lock on a majority of servers.
pub struct Red(Vec<LockClient>);

impl Peer for Red {
    type Lock = RedLock;

    async fn connect(urls: &str) -> Self {
        Self(clients(urls).await)
    }

    fn lock(&self, name: &str) -> RedLock {
        RedLock::new(self.0.iter().map(|client| client.rlock(name))).expect("different servers")
    }
}

/// Lockkeeper's `RLock` on several servers at the same time. It takes as long as the slowest of them.
pub struct Together(Vec<LockClient>);

impl Peer for Together {
    type Lock = Vec<RLock>;

    async fn connect(urls: &str) -> Self {
        Self(clients(urls).await)
    }

    fn lock(&self, name: &str) -> Vec<RLock> {
        self.0.iter().map(|client| client.rlock(name)).collect()
    }
}

impl Lock for Vec<RLock> {
    type Guard = Vec<LockGuard>;

    async fn lock(&mut self) -> Vec<LockGuard> {
        join_all(self.iter_mut().map(Lock::lock)).await
    }

    async fn unlock(&mut self, guards: Vec<LockGuard>) {
        join_all(self.iter_mut().zip(guards).map(|(lock, guard)| lock.unlock(guard))).await;
    }
}

/// Connects, and retries: `connect` tries once, which is not always enough on a busy machine or under valgrind.
async fn client(url: &str) -> LockClient {
    loop {
        match LockClient::connect(url).await {
            Err(error) if error.is_transient() => {}
            made => return made.expect("a client"),
        }
    }
}

async fn clients(urls: &str) -> Vec<LockClient> {
    join_all(urls.split(' ').map(<LockClient as Peer>::connect)).await
}
