//! Both languages on the same locks of a cluster.

use lockkeeper::{LockClient, Source};
use lockkeeper_testkit::{Cluster, Commands};

use crate::roles::{hand_back_on, hand_over};
use crate::support::fixture::Subject;
use crate::support::{SECOND, nothing_is_left, patient};
use crate::{Java, Row, actor, fair, fenced, read, rival, rlock, write};

/// Three masters with one client of each language.
struct Ground {
    cluster: Cluster,
    java: Java,
    locks: LockClient,
}

impl Ground {
    async fn at(source: Source, cluster: Cluster, settings: &[&str]) -> Self {
        let java = Java::at(&cluster.urls().join(","), settings).await;
        // A message wakes a waiter, or it sleeps on.
        let config = patient().retry_timeout(60 * SECOND).safety_poll(3_600 * SECOND).build().unwrap();
        let locks = LockClient::connect_with(source, config).await.unwrap();
        Self { cluster, java, locks }
    }

    /// Both languages exclude and wake each other, with a lock of each type in the slot of this tag.
    async fn excludes_and_wakes(&self, tag: &str) {
        excludes_and_wakes::<fair::Row>(self, tag).await;
        excludes_and_wakes::<fenced::Row>(self, tag).await;
        excludes_and_wakes::<read::Row>(self, tag).await;
        excludes_and_wakes::<rlock::Row>(self, tag).await;
        excludes_and_wakes::<write::Row>(self, tag).await;
    }

    async fn end(self) {
        self.locks.shutdown().await.unwrap();
        let masters: Vec<&Commands> = self.cluster.servers.iter().map(|server| &**server).collect();
        self.java.end_on(&masters).await;
        nothing_is_left(|| self.cluster.keys(), || self.cluster.channels()).await;
    }
}

/// Guarantees 1 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_excludes_and_wakes_the_other_on_every_master() {
    let cluster = Cluster::start(3, 0);
    let ground = Ground::at(Source::cluster(cluster.urls()), cluster, &[]).await;
    for index in 0..3 {
        ground.excludes_and_wakes(&format!("{{{}}}", ground.cluster.name_on(index, "tag"))).await;
        let server = &ground.cluster.servers[index];
        assert!(server.calls("spublish") > 0 && server.calls("publish") == 0);
    }
    ground.end().await;
}

/// Guarantees 1 and 8. Redisson knows databases in a cluster from 4.0 on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "Valkey 9.0 is needed: scripts/nightly databases"]
async fn each_excludes_and_wakes_the_other_in_a_database_of_a_cluster() {
    let cluster = Cluster::with(3, 0, SECOND, &["--cluster-databases", "16"]);
    let source = Source::cluster(cluster.urls().into_iter().map(|url| format!("{url}3")));
    let ground = Ground::at(source, cluster, &["database=3"]).await;
    let guard = ground.locks.rlock("a").lock().await.unwrap();
    let mut connection = ground.cluster.servers[ground.cluster.master_of_key("a")].connect().unwrap();
    redis::cmd("SELECT").arg(3).exec(&mut connection).unwrap();
    assert!(redis::cmd("EXISTS").arg("a").query::<bool>(&mut connection).unwrap());
    guard.unlock().await.unwrap();
    ground.excludes_and_wakes("{tag}").await;
    ground.end().await;
}

async fn excludes_and_wakes<R: Row>(ground: &Ground, tag: &str) {
    let Ground { java, locks, cluster } = ground;
    let (name, server) = (format!("{}{tag}", R::NAME), &cluster.servers[cluster.master_of_key(tag)]);
    let guard = R::Rust::lock(locks, &name).lock().await.unwrap();
    let waiter = rival::<R>(java, "waiter");
    assert!(!waiter.try_lock(&name).await.unwrap());
    hand_over(server, guard, &waiter, &name).await;

    let holder = actor::<R>(java, "holder");
    holder.lock(&name).await.unwrap();
    assert!(R::Rust::rival(locks, &name).try_lock().await.unwrap().is_none());
    hand_back_on::<R>(server, locks, &holder, &name).await;
}
