//! A majority of independent servers: what a failed minority does not break, and what happens without a majority.

mod faults;
mod majority;

use std::time::Duration;

use crate::support::{LIMIT, MS, Proxy, SECOND, Scene, Server, connect, eventually, within};
use futures_util::future::join_all;
use lockkeeper::{LockClient, LockConfig, LockConfigBuilder, LockGuard, RLock, RedLock};

/// Three servers, behind a proxy each.
struct Three {
    scene: Scene,
    others: [Server; 2],
    proxies: Vec<Proxy>,
}

impl Three {
    async fn start() -> Self {
        let others = [Server::start(), Server::start()];
        let scene = Scene::start();
        let ports = [scene.server.port(), others[0].port(), others[1].port()];
        let proxies = join_all(ports.map(Proxy::to)).await;
        Self { scene, others, proxies }
    }

    fn servers(&self) -> [&Server; 3] {
        [&self.scene.server, &self.others[0], &self.others[1]]
    }

    /// A client of each server.
    async fn clients(&self, config: LockConfigBuilder) -> Vec<LockClient> {
        join_all(self.proxies.iter().map(|proxy| connect(proxy.url(), config.clone()))).await
    }

    fn held(&self) -> usize {
        self.servers().iter().filter(|server| server.run::<bool>(&["EXISTS", "a"])).count()
    }

    /// Acquires on all three servers. A server that is a little late is left out, and what it granted is released. On a busy machine it can
    /// be any of them.
    async fn held_by_all(&self, lock: &mut RedLock) -> LockGuard {
        loop {
            eventually("nothing is held", || self.held(), |&held| held == 0).await;
            let guard = lock.lock().await.unwrap();
            if guard.owner_id().split(", ").count() == 3 {
                return guard;
            }
            guard.unlock().await.unwrap();
        }
    }

    /// Counts the subscriptions.
    fn heard(&self) -> usize {
        self.servers().iter().map(|server| server.channels().len()).sum()
    }

    async fn end(self, clients: Vec<LockClient>) {
        for locks in clients {
            let _ = locks.shutdown().await;
        }
        for server in &self.others {
            eventually("no key is left", || server.keys(), Vec::is_empty).await;
            eventually("no channel is left", || server.channels(), Vec::is_empty).await;
        }
        // Commands that timed out are undone over these connections.
        for server in self.servers() {
            within(2 * LIMIT, "no connection is left", || server.clients(), Vec::is_empty).await;
        }
        drop(self.proxies);
        self.scene.end(()).await;
    }
}

fn members(clients: &[LockClient]) -> Vec<RLock<'static>> {
    clients.iter().map(|locks| locks.rlock("a")).collect()
}

fn red(clients: &[LockClient]) -> RedLock {
    RedLock::new(members(clients)).unwrap()
}

fn both(ours: Vec<LockClient>, theirs: Vec<LockClient>) -> Vec<LockClient> {
    ours.into_iter().chain(theirs).collect()
}

/// A call that waits for a silent server waits for this long.
const COMMAND: Duration = Duration::from_secs(4);

/// Leases that are long enough for a busy machine.
fn lasting() -> LockConfigBuilder {
    LockConfig::builder().watchdog_lease(5 * SECOND).command_timeout(COMMAND)
}

fn impatient() -> LockConfigBuilder {
    LockConfig::builder().watchdog_lease(1_500 * MS).command_timeout(400 * MS).retry_timeout(SECOND)
}
