//! Shutting a client down: what it waits for, and what is left on the server when every call has ended.

#[path = "support/mod.rs"]
mod support;

use lockkeeper::{BaseLock, Error, LockConfig};
use support::fixture::{Fixture, for_each_lock};
use support::{Faults, MS, SECOND, Scene, connect, eventually, patient, poll_until, soon, timed};
use tokio::task::JoinSet;
use tokio::time::sleep;

const TASKS: usize = 64;

/// Acquires that are under way when the client is shut down end with `Closed`, and the server has nothing of them when
/// `shutdown` and all calls have returned.
async fn shutdown_leaves_no_lock_of_an_acquire_under_way<F: Fixture>() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let mut total = 0;
    for round in 0..10_u32 {
        proxy.set(Faults::default());
        let locks = connect(proxy.url(), patient()).await;
        // A network with some distance: what is under way at a moment is more than nothing.
        proxy.set(Faults { delay: 5 * MS, ..Faults::default() });
        let mut calls = JoinSet::new();
        for task in 0..TASKS {
            let (locks, name) = (locks.clone(), format!("<{task}>"));
            calls.spawn(async move { (F::lock(&locks, &name).lock().await, name) });
        }
        sleep(2 * MS * round).await; // at another moment in each round
        soon(locks.shutdown()).await.unwrap();
        let (held, closed): (Vec<_>, Vec<_>) =
            soon(calls.join_all()).await.into_iter().partition(|(got, _)| got.is_ok());
        // What is done after this is done too late: a process would have ended by now.
        let is_left =
            |key: &String| !key.contains("token") && closed.iter().any(|(_, name)| key.contains(name));
        let left: Vec<String> = scene.server.keys().into_iter().filter(is_left).collect();
        assert_eq!(left, [""; 0], "round {round}");
        total += closed.len();
        for (guard, _) in held {
            soon(guard.unwrap().unlock()).await.unwrap();
        }
        scene.server.run::<()>(&["FLUSHALL"]); // counters of fenced locks never end
        drop(locks);
    }
    assert!(total > TASKS, "{total} acquires were under way");
    drop(proxy);
    scene.end().await;
}

/// A waiter for a fair lock has a place in the queue on the server, which goes with it.
#[tokio::test]
async fn shutdown_leaves_no_place_in_a_queue() {
    const WAITERS: usize = 50;
    let scene = Scene::start();
    let beside = scene.client().await;
    for round in 0..5 {
        let guard = beside.fair_lock("a").lock().await.unwrap();
        let locks = scene.client().await;
        let mut calls = JoinSet::new();
        for _ in 0..WAITERS {
            let locks = locks.clone();
            calls.spawn(async move { locks.fair_lock("a").lock().await.map(drop) });
        }
        let queued = || scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{a}"]);
        eventually("some are in the queue", queued, |&len| len > WAITERS / 2).await;
        soon(locks.shutdown()).await.unwrap();
        for result in soon(calls.join_all()).await {
            assert!(matches!(result, Err(Error::Closed)), "{result:?}");
        }
        assert_eq!(queued(), 0, "round {round}");
        guard.unlock().await.unwrap();
    }
    drop(beside);
    scene.end().await;
}

/// A waiter that nobody polls cannot end its call. Its place in the queue is given back all the same.
#[tokio::test]
async fn shutdown_gives_back_the_place_of_a_future_that_is_not_polled() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client().await, scene.client().await);
    let guard = beside.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let mut waiting = Box::pin(lock.lock());
    poll_until(&mut waiting, || !scene.server.channels().is_empty()).await;
    soon(locks.shutdown()).await.unwrap();
    assert_eq!(scene.server.run::<usize>(&["LLEN", "redisson_lock_queue:{a}"]), 0);
    assert!(matches!(soon(waiting).await, Err(Error::Closed)));
    guard.unlock().await.unwrap();
    drop((lock, locks, beside));
    scene.end().await;
}

/// It does not wait for those who hold: their guards are theirs until the lease ends.
#[tokio::test]
async fn shutdown_does_not_wait_for_guards() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.rlock("a").lock().await.map(drop) }
    });
    eventually("it waits", || scene.server.channels(), |channels| channels.len() == 1).await;
    soon(locks.shutdown()).await.unwrap();
    assert!(matches!(soon(waiting).await.unwrap(), Err(Error::Closed)));
    assert!(!guard.is_lost());
    guard.unlock().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// A server that does not answer does not keep `shutdown` for longer than `retry_timeout`.
#[tokio::test]
async fn shutdown_is_bounded_beside_a_silent_server() {
    let scene = Scene::start();
    let config = LockConfig::builder().command_timeout(200 * MS).retry_timeout(SECOND);
    let locks = connect(scene.server.url(), config).await;
    let mut calls = JoinSet::new();
    scene.server.freeze();
    for task in 0..TASKS {
        let locks = locks.clone();
        calls.spawn(async move { locks.rlock(format!("{task}")).lock().await.map(drop) });
    }
    tokio::task::yield_now().await;
    let (closed, took) = timed(locks.shutdown()).await;
    assert!(closed.is_err(), "what it could not release is reported");
    assert!(took < 8 * SECOND, "{took:?}");
    scene.server.thaw();
    soon(calls.join_all()).await;
    drop(locks);
    scene.end().await;
}

for_each_lock! { shutdown_leaves_no_lock_of_an_acquire_under_way }
