//! Locks whose members are in different deployments, and questions while masters change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lockkeeper::{BaseLock, Lock, LockClient, Member, MultiLock, Source};
use lockkeeper_testkit::{Cluster, MASTER, Sentinels};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{
    LIMIT, SECOND, Scene, eventually, nothing_is_left, patient, soon, waiter, woken_by_message,
};

/// One server, a cluster, and servers with sentinels.
struct Three {
    scene: Scene,
    cluster: Cluster,
    sentinels: Sentinels,
}

impl Three {
    fn start() -> Self {
        Self { scene: Scene::start(), cluster: Cluster::start(3, 0), sentinels: Sentinels::start(SECOND) }
    }

    /// A process with a client of each.
    async fn clients(&self) -> [LockClient; 3] {
        let config = patient().retry_timeout(60 * SECOND).build().unwrap();
        let url = Source::from(self.scene.server.url());
        let cluster = Source::cluster(self.cluster.urls());
        let sentinels = Source::sentinel(MASTER, self.sentinels.urls(), "redis://servers/");
        let [one, two, three] =
            [url, cluster, sentinels].map(|source| LockClient::connect_with(source, config.clone()));
        [one.await.unwrap(), two.await.unwrap(), three.await.unwrap()]
    }

    fn channels(&self) -> Vec<String> {
        let master = &self.sentinels.servers[self.sentinels.master()];
        [self.scene.server.channels(), self.cluster.channels(), master.channels()].concat()
    }

    async fn end(self, clients: [[LockClient; 3]; 2]) {
        for locks in clients.as_flattened() {
            locks.shutdown().await.unwrap();
        }
        drop(clients);
        let master = &self.sentinels.servers[self.sentinels.master()];
        nothing_is_left(|| [self.cluster.keys(), master.keys()].concat(), || self.channels()).await;
        self.scene.end().await;
    }
}

fn members(clients: &[LockClient; 3]) -> [Member; 3] {
    clients.each_ref().map(|locks| locks.rlock("a").into())
}

/// Sections of both processes until the end. Two at once fail the test.
async fn contend<K: BaseLock>(made: Vec<Lock<'static, K>>, during: impl AsyncFnOnce(&AtomicU32)) {
    let (is_over, inside, sections) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let mut tasks = JoinSet::new();
    for mut lock in made {
        let (is_over, inside, sections) = (Arc::clone(&is_over), Arc::clone(&inside), Arc::clone(&sections));
        tasks.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                let guard = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                sections.fetch_add(1, Ordering::SeqCst);
                drop(guard);
            }
        });
    }
    during(&sections).await;
    is_over.store(true, Ordering::SeqCst);
    timeout(3 * LIMIT, tasks.join_all()).await.expect("each call ends");
}

async fn goes_on(sections: &AtomicU32) {
    let before = sections.load(Ordering::SeqCst);
    let count = || sections.load(Ordering::SeqCst);
    crate::support::within(3 * LIMIT, "work goes on", count, |&now| now > before + 20).await;
}

/// Guarantees 1 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_spans_deployments_and_follows_a_failover() {
    let three = Three::start();
    let clients = [three.clients().await, three.clients().await];
    let of = |clients| MultiLock::new(members(clients)).unwrap();

    let guard = soon(of(&clients[0]).lock()).await.unwrap();
    for locks in &clients[1] {
        assert!(locks.rlock("a").try_lock().await.unwrap().is_none(), "each member is held");
    }
    let waiting = waiter(of(&clients[1]));
    // To the messages of the member that refused it.
    eventually("it subscribes", || three.channels(), |channels| !channels.is_empty()).await;
    guard.unlock().await.unwrap();
    woken_by_message(waiting).await.unlock().await.unwrap();

    contend(clients.iter().map(of).collect(), async |sections| {
        goes_on(sections).await;
        let before = three.sentinels.master();
        three.sentinels.fail_over();
        three.sentinels.switched(before);
        goes_on(sections).await;
        let slot = three.cluster.slot_of("a");
        three.cluster.move_slot(slot, (three.cluster.master_of(slot) + 1) % 3);
        goes_on(sections).await;
    })
    .await;
    three.end(clients).await;
}
