//! A server that answers and refuses.

use std::time::Duration;

use lockkeeper::Error;

use crate::server_faults::{answers, impatient};
use crate::support::fixture::Fixture;
use crate::support::{
    MS, SECOND, Scene, Server, connect, eventually, fixed, patient, poll_until, renewed, soon, throughout,
    timed, within,
};
use tokio::time::sleep;

/// Guarantee 15.
pub async fn out_of_memory_refuses_new_locks_but_not_renewal_or_release<F: Fixture>() {
    let (scene, locks) = Scene::with_client_of(patient().watchdog_lease(5 * SECOND)).await;
    let hurried = scene.client_with(patient().retry_timeout(200 * MS)).await;
    let mut lock = F::lock(&locks, "a");
    let outer = lock.lock().await.unwrap();
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(answers(&scene.server, &["SET", "x", "1"], "OOM"));

    let before = scene.server.errors("OOM");
    let error = soon(async { F::lock(&hurried, "b").lock().await }).await.unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory(_)) && error.is_transient() && !error.outcome_unknown(),
        "{error:?}"
    );
    assert!(scene.server.errors("OOM") >= before + 2, "it is repeated");
    assert!(matches!(F::lock(&hurried, "b").try_lock().await, Err(Error::OutOfMemory(_))));
    drop(hurried);

    let inner = lock.lock().await.expect("re-entry needs no memory");
    for _ in 0..2 {
        renewed(&outer).await;
    }
    assert!(lock.is_locked().await.unwrap() && locks.inspect("b").await.unwrap().is_none());
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(!lock.force_unlock().await.unwrap());
    // It is acquired when there is memory again, if that is within `retry_timeout`.
    let (mut later, before) = (F::lock(&locks, "b"), scene.server.errors("OOM"));
    let mut waiting = Box::pin(later.lock());
    poll_until(&mut waiting, || scene.server.errors("OOM") >= before + 2).await;
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    soon(waiting).await.unwrap().unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    scene.end((lock, later, locks)).await;
}

/// Guarantee 17. `READONLY`: acquires are retried inside their limit, and a release gets no verdict from a replica.
pub async fn a_replica_grants_nothing<F: Fixture>() {
    let (scene, proxy, locks) = Scene::behind_proxy(impatient()).await;
    let mut lock = F::lock(&locks, "a");
    let guard = lock.lock().await.unwrap();
    let gone = F::lock(&locks, "gone").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "gone"]);
    scene.server.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(answers(&scene.server, &["SET", "x", "1"], "READONLY"));

    let (refused, took) = timed(async { F::lock(&locks, "b").lock().await }).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::ReadOnly(_)) && error.is_transient(), "{error:?}");
    assert!(took >= 200 * MS, "the acquire was not retried: {took:?}");
    assert!(matches!(F::lock(&locks, "b").try_lock().await, Err(Error::ReadOnly(_))));
    assert!(
        matches!(F::lock(&locks, "b").is_locked().await, Err(Error::ReadOnly(_))),
        "a replica may be behind"
    );
    for guard in [guard, gone] {
        assert!(
            matches!(guard.unlock().await, Err(Error::ReadOnly(_))),
            "a replica cannot tell whether the lock is held"
        );
    }

    let before = proxy.accepted();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { F::lock(&locks, "c").try_lock_for(10 * SECOND).await }
    });
    eventually("it connects again and again", || proxy.accepted(), |&now| now >= before + 3).await;
    scene.server.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    soon(waiting).await.unwrap().unwrap().expect("the lock is free").unlock().await.unwrap();
    scene.quiet().await; // the background releases the remaining holds
    soon(locks.shutdown()).await.unwrap();
    scene.end((lock, locks, proxy)).await;
}

/// Guarantee 17. `LOADING`.
pub async fn acquires_wait_for_a_server_that_loads_its_data<F: Fixture>() {
    let server = Server::with(&["--rdbcompression", "no", "--key-load-delay", "0"]);
    let mut scene = Scene::with(server);
    let locks = scene.client_with(impatient()).await;
    let fill = "for i = 1, 3000 do redis.call('set', 'filler ' .. i, string.rep('x', 400)) end";
    scene.server.run::<()>(&["EVAL", fill, "0"]);
    scene.server.run::<()>(&["SAVE"]);
    scene.server.slow_loading(Duration::from_millis(15)); // for 45 s in all
    scene.server.restart();
    assert!(answers(&scene.server, &["GET", "a"], "LOADING"), "the server is up and loading");

    let error = F::lock(&locks, "a").lock().await.expect_err("this client has a short limit");
    assert!(matches!(error, Error::Unavailable(_)) && error.is_transient(), "{error:?}");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { F::lock(&locks, "a").try_lock_for(15 * SECOND).await }
    });
    throughout(300 * MS, async || assert!(!waiting.is_finished())).await;
    scene.server.run::<()>(&["CONFIG", "SET", "key-load-delay", "0"]);
    let guard = soon(waiting).await.unwrap().unwrap().expect("the lock is free");
    guard.unlock().await.unwrap();
    scene.server.run::<()>(&["FLUSHALL"]);
    let _ = locks.shutdown().await; // its limit for this is short, too
    scene.end(locks).await;
}

/// Guarantee 17. `BUSY`.
pub async fn acquires_wait_for_a_server_that_is_busy_with_a_script<F: Fixture>() {
    let scene = Scene::start();
    scene.server.run::<()>(&["CONFIG", "SET", "busy-reply-threshold", "50"]);
    let proxy = scene.proxy().await;
    let (locks, hasty) = (
        connect(proxy.url(), patient().connections(1)).await,
        scene.client_with(impatient().connections(1)).await,
    );
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    let mut endless = scene.server.connect().unwrap();
    let running = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut endless).is_err()
    });
    eventually("the server is busy", || answers(&scene.server, &["GET", "a"], "BUSY"), |&busy| busy).await;

    let error = F::lock(&hasty, "b").lock().await.expect_err("this client has a short limit");
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let unlocking = tokio::spawn(guard.unlock());
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { F::lock(&locks, "b").try_lock_for(10 * SECOND).await }
    });
    eventually("both are refused, and one again", || proxy.errors("BUSY"), |&refused| refused >= 3).await;
    scene.server.run::<()>(&["SCRIPT", "KILL"]);
    assert!(running.join().unwrap());
    soon(waiting).await.unwrap().unwrap().expect("the lock is free").unlock().await.unwrap();
    soon(unlocking).await.unwrap().unwrap();
    let _ = hasty.shutdown().await; // its limit for this is short, too
    locks.shutdown().await.unwrap();
    scene.end((locks, hasty, proxy)).await;
}

/// The locks that are held. Token counters stay.
fn held(scene: &Scene) -> Vec<String> {
    scene.server.keys().into_iter().filter(|key| !key.contains("token")).collect()
}

/// Guarantee 17. The user may not log in for a second, and its connections end.
#[tokio::test]
async fn a_release_is_repeated_until_the_user_may_log_in_again() {
    let scene = Scene::start();
    let locks = connect(scene.user("~* &* +@all"), patient()).await;
    let (unlocked, dropped) =
        (locks.rlock("a").lock().await.unwrap(), locks.rlock("b").lock().await.unwrap());
    scene.user("off");
    scene.server.run::<usize>(&["CLIENT", "KILL", "USER", "u"]);
    let refused = unlocked.unlock().await;
    assert!(matches!(refused, Err(Error::Authentication(_))), "{refused:?}");
    drop(dropped);
    let refused = locks.shutdown().await;
    assert!(matches!(refused, Err(Error::Authentication(_))), "{refused:?}");
    scene.user("on");
    within(5 * SECOND, "both locks are released", || held(&scene), Vec::is_empty).await;
    locks.shutdown().await.unwrap();
    scene.end(locks).await;
}

/// Guarantee 18. A refused release that nothing allows again ends with the lease: the client does not ask for ever.
#[tokio::test]
async fn a_refused_release_is_repeated_only_until_its_lease_has_ended() {
    let scene = Scene::start();
    let locks = connect(scene.user("~* &* +@all"), patient()).await;
    let guard = locks.rlock("a").with(&fixed(2 * SECOND)).lock().await.unwrap();
    scene.user("-evalsha");
    drop(guard);
    sleep(SECOND).await;
    let refused = || scene.server.refusals("evalsha");
    assert!(refused() >= 2, "the release is repeated");
    eventually("the lease ends", || held(&scene), Vec::is_empty).await;
    // The client counts the lease from the time of the drop, which is a little later.
    soon(async {
        while locks.shutdown().await.is_err() {
            sleep(20 * MS).await;
        }
    })
    .await;
    scene.end(locks).await;
}

/// Guarantee 17. Every other code by which a server, or its cluster, says that it cannot serve the command now.
#[tokio::test]
async fn transient_refusals_are_retried() {
    const REFUSAL: &str = "-NOREPLICAS Not";
    let (scene, proxy, locks) = Scene::behind_proxy(patient()).await;
    for code in ["NOREPLICAS", "ASK", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "MOVED", "TRYAGAIN"] {
        proxy.doctor(REFUSAL, &format!("-{code:width$}", width = REFUSAL.len() - 1));
        scene.server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        assert!(answers(&scene.server, &["SET", "x", "1"], "NOREPLICAS"));
        let locking = tokio::spawn({
            let locks = locks.clone();
            async move { locks.rlock("a").lock().await }
        });
        throughout(100 * MS, async || assert!(!locking.is_finished(), "{code}")).await;
        scene.server.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        soon(locking).await.unwrap().expect(code).unlock().await.unwrap();
    }
    locks.shutdown().await.unwrap();
    scene.end((locks, proxy)).await;
}
