//! Shutting a client down: what `shutdown` waits for, and what is left on the server when every call has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt, stream};
use lockkeeper::{Error, LockConfig, LockConfigBuilder, LockGuard};

use crate::support::{
    Faults, LIMIT, MS, SECOND, Scene, calls_of, connect, eventually, fixed, patient, renewed, soon,
    throughout, timed,
};
use tokio::time::{sleep, timeout};

/// Guarantees 7 and 12. Guards that end together do not fill the connection: what waits there for longer than `command_timeout` would be
/// taken for a silent server, and renewals would wait behind it.
#[tokio::test]
async fn releases_of_many_guards_are_sent_a_thousand_at_a_time() {
    // By the background, and by the futures of callers.
    const MOST: usize = 2 * 1_000;
    let (scene, proxy, locks) = Scene::behind_proxy(patient()).await;
    let acquiring = (0..2 * MOST).map(|number| {
        let mut lock = locks.rlock(format!("{number}"));
        async move { lock.lock().await.unwrap() }
    });
    let mut dropped: Vec<_> = stream::iter(acquiring).buffer_unordered(64).collect().await;
    let unlocked = dropped.split_off(MOST);
    let is_release = calls_of("rlock/release.lua");
    let most_together = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most_together);
    proxy.answer(move |words| {
        if is_release(words) {
            seen.fetch_max(words[2].parse().unwrap(), Ordering::SeqCst);
        }
        None
    });
    proxy.set(Faults::replies_held());
    let before = proxy.commands();
    drop(dropped);
    let unlocking = tokio::spawn(join_all(unlocked.into_iter().map(LockGuard::unlock)));
    let sent = || proxy.commands() - before;
    eventually("the first ones are under way", sent, |&sent| sent >= 4).await;
    let most = MOST / 64 + 10;
    throughout(300 * MS, async || assert!(sent() <= most, "{} commands are under way", sent())).await;
    proxy.set(Faults::default());
    for result in soon(unlocking).await.unwrap() {
        result.unwrap();
    }
    assert_eq!(most_together.load(Ordering::SeqCst), 64, "releases in one command");
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.keys(), [""; 0]);
    scene.end((locks, proxy)).await;
}

/// A shutdown goes on while the server answers releases, and gives up this long after the last answer. Then it names a lock that is left.
#[tokio::test]
async fn a_shutdown_goes_on_while_releases_are_answered_and_names_a_lock_that_is_left() {
    const LOCKS: usize = 7;
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let config = LockConfig::builder().command_timeout(SECOND).retry_timeout(2 * SECOND);
    let locks = connect(proxy.url(), config).await;
    let mut guards = Vec::new();
    for _ in 0..2 {
        // At first, several releases go out with the text of the script. The proxy knows only those with its hash.
        guards.clear();
        scene.quiet().await;
        for number in 0..LOCKS {
            guards.push(locks.rlock(format!("{number}")).lock().await.unwrap());
        }
    }
    let is_release = calls_of("rlock/release.lua");
    let released = Arc::new(AtomicUsize::new(0));
    let most = Arc::clone(&released);
    proxy.answer(move |words| {
        let is_early = || words[3].parse::<usize>().unwrap() >= most.load(Ordering::SeqCst);
        match is_release(words) {
            // Each release by itself.
            true if words[2] != "1" => Some("-TRYAGAIN one by one\r\n".to_owned()),
            true if is_early() => Some("-LOADING Redis is loading the dataset\r\n".to_owned()),
            _ => None,
        }
    });
    drop(guards);
    let shutdown = tokio::spawn({
        let locks = locks.clone();
        async move { timed(locks.shutdown()).await }
    });
    for number in 1..LOCKS {
        sleep(600 * MS).await; // less than `retry_timeout`, and all together more
        released.store(number, Ordering::SeqCst);
    }
    let (ended, took) = soon(shutdown).await.unwrap();
    let error = ended.unwrap_err();
    assert_eq!(scene.server.keys(), [(LOCKS - 1).to_string()], "the others were released, {error}");
    assert_eq!(error.lock().unwrap().name, (LOCKS - 1).to_string(), "{error}");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    assert!(took > 4 * SECOND && took < LIMIT / 2, "{took:?}");
    released.store(LOCKS, Ordering::SeqCst);
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.keys(), [""; 0]);
    scene.end((locks, proxy)).await;
}

/// Guarantee 11. The server was away when the lock was released, and until the lease had ended: nothing is left of the lock.
#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_lease_that_has_ended() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let lease = 3 * SECOND;
    let locks = connect(proxy.url(), patient().retry_timeout(SECOND / 2)).await;
    let guard = locks.rlock("a").with(&fixed(lease)).lock().await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    guard.unlock().await.unwrap_err();
    eventually("the lease ends", || scene.server.run::<bool>(&["EXISTS", "a"]), |is_held| !is_held).await;
    soon(locks.shutdown()).await.expect("nothing is left that has to be released");
    proxy.refuse(false);
    scene.end((locks, proxy)).await;
}

/// With `retry_timeout` zero ("do not retry") a healthy server gets no time to answer.
#[tokio::test]
async fn shutdown_without_retries_still_waits_for_an_answer() {
    let (scene, locks) = Scene::with_client_of(patient().retry_timeout(Duration::ZERO)).await;
    drop(locks.rlock("a").lock().await.unwrap());
    let shut = locks.shutdown().await;
    let keys = scene.server.keys();
    assert!(shut.is_ok() && keys.is_empty(), "{shut:?}, left {keys:?}");
    scene.end(locks).await;
}

/// A client whose locks outlast a test.
fn one_connection() -> LockConfigBuilder {
    LockConfig::builder().command_timeout(500 * MS).connections(1).watchdog_lease(60 * SECOND)
}

/// Guarantee 2. The answer waits in the client, and the shutdown finds nothing either.
#[tokio::test]
async fn an_unlock_polled_after_a_shutdown_returns_not_held() {
    let (scene, locks) = Scene::with_client_of(one_connection()).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "a"]);
    let mut unlocking = Box::pin(guard.unlock());
    assert!((&mut unlocking).now_or_never().is_none());
    soon(locks.shutdown()).await.unwrap();
    let answer = soon(unlocking).await;
    assert!(matches!(answer, Err(Error::NotHeld(_))), "{answer:?}");
    scene.end(locks).await;
}

/// Guarantee 11. The server no longer knows the script, so its answer alone releases nothing.
#[tokio::test]
async fn shutdown_finishes_an_unlock_that_nobody_polls_any_more() {
    let (scene, locks) = Scene::with_client_of(one_connection()).await;
    let (mut first, mut second) = (locks.rlock("a"), locks.rlock("b"));
    let guards = [first.lock().await.unwrap(), second.lock().await.unwrap()];
    scene.server.run::<()>(&["SCRIPT", "FLUSH"]);
    let [one, other] = guards.map(|guard| Box::pin(guard.unlock()));
    let mut unlocking = [one, other];
    for unlocking in &mut unlocking {
        assert!(unlocking.now_or_never().is_none());
    }
    soon(locks.shutdown()).await.unwrap();
    assert!(scene.server.errors("NOSCRIPT") > 0, "the unlocks were executed");
    assert_eq!(scene.server.keys(), [""; 0]);
    let [one, other] = unlocking;
    soon(one).await.unwrap();
    drop(other);
    scene.end((first, second, locks)).await;
}

/// Guarantee 11. The connection is gone when `unlock` begins, and nobody polls it when it is back.
#[tokio::test]
async fn an_unlock_that_nobody_polls_any_more_is_done_by_the_background() {
    let scene = Scene::start();
    let beside = scene.client().await;
    for shuts_down in [false, true] {
        let proxy = scene.proxy().await;
        let locks = connect(proxy.url(), one_connection()).await;
        let guard = locks.rlock("a").lock().await.unwrap();
        renewed(&guard).await; // the next renewal comes after 6 s at the earliest
        proxy.refuse(true);
        proxy.cut();
        if !shuts_down {
            timeout(SECOND, locks.inspect("a")).await.unwrap_err(); // the client notices it
        }
        let mut unlocking = Box::pin(guard.unlock());
        assert!((&mut unlocking).now_or_never().is_none());
        proxy.refuse(false);
        if shuts_down {
            soon(locks.shutdown()).await.unwrap();
            assert_eq!(scene.server.keys(), [""; 0]);
        }
        let (rival, waited) = timed(async { beside.rlock("a").lock().await }).await;
        assert!(waited < 5 * SECOND, "{waited:?}");
        rival.unwrap().unlock().await.unwrap();
        soon(unlocking).await.unwrap();
        locks.shutdown().await.unwrap();
        drop((locks, proxy));
    }
    scene.end(beside).await;
}
