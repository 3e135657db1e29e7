//! This crate.

use futures_util::future::join_all;
use lockkeeper::{
    FairLock, LockClient, LockConfig, LockGuard, PermitId, RLock, ReadLock, RedLock, Semaphore, Source,
    WriteLock,
};

use super::{Lock, Peer};

/// A way to use this crate: how it connects, and which lock it makes.
macro_rules! peers {
    ($($(#[$about:meta])* $peer:ident($client:ty) by $connect:ident: $lock:ty = |$of:ident, $name:ident| $make:expr;)*) => { $(
        $(#[$about])*
        pub struct $peer($client);

        impl Peer for $peer {
            type Lock = $lock;

            async fn connect(url: &str) -> Self {
                Self($connect(url).await)
            }

            fn lock(&self, $name: &str) -> $lock {
                let $of = &self.0;
                $make
            }
        }
    )* };
}

peers! {
    /// The fair lock.
    Fair(LockClient) by client: FairLock<'static> = |client, name| client.fair_lock(name);
    /// The read lock.
    Read(LockClient) by client: ReadLock<'static> = |client, name| client.read_write_lock(name).into_read();
    /// The semaphore, with one permit.
    Permits(LockClient) by client: Semaphore = |client, name| client.semaphore(name, 1);
    /// An `RLock`, of which a replica must have a hold before it is granted.
    Synced(LockClient) by synced: RLock<'static> = |client, name| client.rlock(name);
    /// An `RLock` on a cluster.
    Clustered(LockClient) by clustered: RLock<'static> = |client, name| client.rlock(name);
    /// The lock on a majority of servers.
    Red(Vec<LockClient>) by clients: RedLock =
        |clients, name| RedLock::new(clients.iter().map(|client| client.rlock(name))).expect("different servers");
    /// An `RLock` on several servers at the same time. It takes as long as the slowest of them.
    Together(Vec<LockClient>) by clients: Vec<RLock<'static>> =
        |clients, name| clients.iter().map(|client| client.rlock(name)).collect();
}

impl Peer for LockClient {
    type Lock = RLock<'static>;

    async fn connect(url: &str) -> Self {
        client(url).await
    }

    fn lock(&self, name: &str) -> RLock<'static> {
        self.rlock(name)
    }
}

macro_rules! locks {
    ($($lock:ty),*) => { $(
        impl Lock for $lock {
            type Guard = LockGuard;

            async fn lock(&mut self) -> LockGuard {
                self.lock().await.expect("a lock")
            }

            async fn unlock(&mut self, guard: LockGuard) {
                guard.unlock().await.expect("the lock was held");
            }
        }
    )* };
}

locks!(RLock<'static>, FairLock<'static>, ReadLock<'static>, RedLock, WriteLock<'static>);

impl Lock for Semaphore {
    type Guard = LockGuard<PermitId>;

    async fn lock(&mut self) -> LockGuard<PermitId> {
        self.acquire().await.expect("a permit")
    }

    async fn unlock(&mut self, permit: LockGuard<PermitId>) {
        permit.unlock().await.expect("the permit was held");
    }
}

impl Lock for Vec<RLock<'static>> {
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
    join_all(urls.split(' ').map(client)).await
}

async fn synced(url: &str) -> LockClient {
    let config = LockConfig::builder().sync_replicas(1).build().expect("valid");
    LockClient::connect_with(url, config).await.expect("a server")
}

async fn clustered(urls: &str) -> LockClient {
    let source = Source::cluster(urls.split(' '));
    LockClient::connect_with(source, LockConfig::default()).await.expect("a cluster")
}
