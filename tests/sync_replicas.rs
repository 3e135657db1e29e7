//! Guarantee 17, with `sync_replicas`: a hold that too few replicas have is not granted.

use crate::support::fixture::{Acquire, Fixture, PERMITS_OF, Subject, for_each_lock};
use crate::support::{LIMIT, MS, SECOND, Scene, Server, connect, eventually, soon, timed};
use futures_util::FutureExt;
use lockkeeper::{Error, LockClient, LockConfig, LockConfigBuilder};
use std::time::Duration;

/// A server with one replica.
struct Pair {
    scene: Scene,
    replica: Server,
}

impl Pair {
    async fn start() -> Self {
        let scene = Scene::with(Server::with(&["--repl-diskless-sync-delay", "0"]));
        let replica = Server::start();
        replica.run::<()>(&["REPLICAOF", "127.0.0.1", &scene.server.port().to_string()]);
        let replication = || scene.server.run::<String>(&["INFO", "replication"]);
        eventually("the replica follows", replication, |text| text.contains("state=online")).await;
        Self { scene, replica }
    }

    async fn client(&self, config: LockConfigBuilder) -> LockClient {
        connect(self.scene.server.url(), config.sync_replicas(1)).await
    }

    async fn end(self) {
        self.replica.run::<()>(&["REPLICAOF", "NO", "ONE"]);
        drop(self.replica);
        self.scene.end(()).await;
    }
}

/// It waits for seconds longer than anything here may take, unless it waits for the replica.
fn slow() -> LockConfigBuilder {
    LockConfig::builder().connections(1).watchdog_lease(2 * LIMIT).command_timeout(LIMIT / 2)
}

/// Guarantee 18. The server granted the hold, nobody got it, and the server refuses to release it.
#[tokio::test]
async fn a_refused_release_of_what_too_few_replicas_have_is_an_error_of_the_shutdown() {
    let scene = Scene::start();
    let config =
        LockConfig::builder().command_timeout(200 * MS).retry_timeout(Duration::ZERO).sync_replicas(1);
    let locks = connect(scene.user("~* &* +@all -hdel -del"), config).await;
    let refused = locks.rlock("a").try_lock().await;
    assert!(matches!(refused, Err(Error::TooFewReplicas { .. })), "{refused:?}");
    let ended = soon(locks.shutdown()).await;
    assert!(matches!(ended, Err(Error::Permission(_))), "{ended:?}");
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end(locks).await;
}

async fn a_hold_that_no_replica_has_is_not_granted<F: Subject>() {
    let pair = Pair::start().await;
    let config = LockConfig::builder().command_timeout(200 * MS).retry_timeout(SECOND);
    let locks = pair.client(config).await;
    pair.replica.freeze();
    let mut lock = F::lock(&locks, "a");
    let (refused, took) = timed(async { lock.lock().await }).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::TooFewReplicas { acknowledged: 0, wanted: 1, .. }), "{error:?}");
    assert!(error.is_transient() && error.to_string().contains("0 of 1 replicas have it"), "{error}");
    assert!(took >= 400 * MS, "it was not acquired anew: {took:?}");
    let refused = soon(lock.try_lock_for(500 * MS)).await;
    assert!(matches!(refused, Err(Error::TooFewReplicas { .. } | Error::TimedOut(_))), "{refused:?}");
    pair.scene.quiet().await;
    pair.replica.thaw();
    for _ in 0..20 {
        let guard = soon(lock.lock()).await.unwrap();
        assert!(
            pair.replica.keys().iter().any(|key| !key.starts_with(PERMITS_OF)),
            "the replica has it when it is granted"
        );
        guard.unlock().await.unwrap();
    }
    locks.shutdown().await.unwrap();
    drop((lock, locks));
    pair.end().await;
}

async fn reentries_renewals_and_releases_do_not_wait_for_replicas<F: Fixture>() {
    let pair = Pair::start().await;
    let locks = pair.client(slow()).await;
    let mut lock = F::lock(&locks, "a");
    let guard = soon(lock.lock()).await.unwrap();
    pair.replica.freeze();
    let acquiring = tokio::spawn({
        let locks = locks.clone();
        async move { F::lock(&locks, "b").lock().await }
    });
    let waiting = || pair.scene.server.run::<String>(&["INFO", "clients"]);
    eventually("an acquire waits", waiting, |text| text.contains("blocked_clients:1")).await;
    let in_time = async {
        let inner = lock.lock().await.unwrap();
        inner.extend(60 * SECOND).await.unwrap();
        inner.unlock().await.unwrap();
        guard.unlock().await.unwrap();
    };
    let ((), took) = timed(in_time).await;
    assert!(took < LIMIT / 4, "{took:?}");
    assert!(!acquiring.is_finished(), "it waits for the replica");
    pair.replica.thaw();
    soon(acquiring).await.unwrap().unwrap().unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    drop((lock, locks));
    pair.end().await;
}

/// Guarantee 11. Acquires and releases use different connections. After a dropped call, the client also releases on that of the acquire.
async fn a_shutdown_waits_for_no_copy_of_a_dropped_acquire<F: Fixture>() {
    let pair = Pair::start().await;
    let locks = pair.client(slow()).await;
    F::lock(&locks, "first").lock().await.unwrap().unlock().await.unwrap();
    for name in ["a", "b", "c"] {
        let mut lock = F::lock(&locks, name);
        assert!(lock.lock().now_or_never().is_none());
    }
    let (shut, took) = timed(locks.shutdown()).await;
    shut.unwrap();
    assert!(took < LIMIT / 2, "it waited {took:?}, until no copy can run");
    drop(locks);
    pair.end().await;
}

/// A server without replicas grants nothing: that is better than a setting without effect.
#[tokio::test]
async fn without_replicas_nothing_is_granted() {
    let scene = Scene::start();
    let config = LockConfig::builder().sync_replicas(2).command_timeout(200 * MS).retry_timeout(SECOND);
    let locks = connect(scene.server.url(), config).await;
    let refused = locks.rlock("a").lock().await;
    assert!(matches!(refused, Err(Error::TooFewReplicas { acknowledged: 0, wanted: 2, .. })), "{refused:?}");
    locks.shutdown().await.unwrap();
    scene.end(locks).await;
}

for_each_lock! {
    a_hold_that_no_replica_has_is_not_granted
    reentries_renewals_and_releases_do_not_wait_for_replicas
    a_shutdown_waits_for_no_copy_of_a_dropped_acquire
}

for_each_lock! {
    claim: ClaimedNames, permit: Permits => {
        a_hold_that_no_replica_has_is_not_granted
    }
}
