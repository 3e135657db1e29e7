//! When a waiter keeps its place in the queue, and when it loses it.

use crate::fair::{ALLOWANCE, PLACES, QUEUE, SCORES, config, left, queue, queued, waits};
use crate::support::{
    Child, LIMIT, MS, SECOND, Scene, connect, eventually, patient, soon, throughout, timed,
};

/// Guarantee 9. A waiting process is killed or stopped, and its waiters are passed over. Also if the first waiter dies
/// while the lock is free.
#[tokio::test]
async fn a_dead_process_is_passed_over() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    for (signal, waiters) in [("KILL", 1), ("STOP", 1), ("KILL", 20)] {
        let guard = locks.fair_lock("a").lock().await.unwrap();
        let dead = Child::start("fair::child", &waiters.to_string(), &scene.server.url());
        queued(&scene, waiters).await;
        let waiting = waits(&scene, &locks, waiters).await;
        dead.signal(signal);
        guard.unlock().await.unwrap();
        let (woken, took) = timed(waiting).await;
        woken.unwrap();
        assert!(took < LIMIT / 2, "{signal}, {waiters} of them: {took:?}");
        drop(dead);
    }
    scene.server.run::<()>(&["FLUSHALL"]);
    drop(locks);
    scene.end().await;
}

/// Guarantee 9. For several allowances, and across a broken connection.
#[tokio::test]
async fn a_live_waiter_keeps_its_place() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let allowance = 3 * SECOND;
    let config = patient().fair_allowance(allowance);
    let ours = connect(proxy.url(), config.clone()).await;
    let theirs = scene.client_with(config).await;
    let guard = theirs.fair_lock("a").lock().await.unwrap();
    let first = waits(&scene, &ours, 0).await;
    let second = waits(&scene, &theirs, 1).await;
    let third = waits(&scene, &ours, 2).await;
    let order = queue(&scene);
    for _ in 0..3 {
        throughout(allowance, async || assert_eq!(queue(&scene), order)).await;
        proxy.cut();
    }
    guard.unlock().await.unwrap();
    let times = [soon(first).await.unwrap(), soon(second).await.unwrap(), soon(third).await.unwrap()];
    assert!(times.is_sorted());
    ours.shutdown().await.unwrap(); // through the proxy
    drop((ours, theirs, proxy));
    scene.end().await;
}

/// Guarantee 15.
#[tokio::test]
async fn a_waiter_keeps_its_place_on_a_server_without_memory() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    // Each refused attempt calls it twice. A later attempt would need memory.
    eventually("the waiter attempts again", || scene.server.calls("hexists"), |&calls| calls >= 4).await;
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(scene.server.try_run::<()>(&["SET", "x", "1"]).is_err_and(|error| error.code() == Some("OOM")));
    let record = || scene.server.run::<Vec<String>>(&["HVALS", PLACES]);
    for _ in 0..3 {
        let before = record();
        eventually("a heartbeat is recorded", record, |now| *now != before).await;
    }
    scene.server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    drop(locks);
    scene.end().await;
}

/// Guarantee 9. A process that is stopped for too long loses its place and queues again.
#[tokio::test]
async fn a_process_stopped_for_too_long_queues_again_at_the_end() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut away = Child::start("fair::child", "1", &scene.server.url());
    queued(&scene, 1).await;
    let waiting = waits(&scene, &locks, 1).await;
    away.signal("STOP");
    queued(&scene, 1).await; // passed over
    away.signal("CONT");
    queued(&scene, 2).await; // and back
    guard.unlock().await.unwrap();
    let got_it = soon(waiting).await.unwrap();
    assert!(tokio::task::spawn_blocking(move || away.read_until("end")).await.unwrap().len() >= 2);
    assert!(got_it.elapsed() < LIMIT / 2);
    drop(locks);
    scene.end().await;
}

/// Guarantee 9. The first waiter in the queue is not polled any longer. Its process is alive, and still it is passed
/// over.
#[tokio::test]
async fn an_unpolled_future_at_the_head_of_the_queue_loses_its_place() {
    let scene = Scene::start();
    let config = config().safety_poll(200 * MS);
    let locks = scene.client_with(config).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let left = left(&scene, lock.lock()).await;
    let waiting = waits(&scene, &locks, 1).await;
    guard.unlock().await.unwrap();
    let (woken, took) = timed(waiting).await;
    woken.unwrap();
    assert!(took < LIMIT / 2, "{took:?}");
    soon(left).await.unwrap().unlock().await.unwrap();
    drop((lock, locks));
    scene.end().await;
}

/// Guarantee 9. When the future is polled again it queues again, and from then on keeps its place like any other
/// waiter.
#[tokio::test]
async fn a_future_that_is_polled_again_queues_again_and_keeps_its_place() {
    let scene = Scene::start();
    let allowance = 3 * SECOND;
    let locks = scene.client_with(config().fair_allowance(allowance).safety_poll(200 * MS)).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let left = left(&scene, lock.lock()).await;
    let waiting = waits(&scene, &locks, 1).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let holding = async {
        queued(&scene, 1).await;
        let order = queue(&scene);
        let is_kept = async || {
            // Each attempt removes dead waiters.
            assert!(locks.fair_lock("a").try_lock().await.unwrap().is_none());
            assert_eq!(queue(&scene), order);
        };
        throughout(2 * allowance, is_kept).await;
        guard.unlock().await.unwrap();
    };
    let (guard, ()) = tokio::join!(left, holding);
    guard.unwrap().unlock().await.unwrap();
    drop((lock, locks));
    scene.end().await;
}

/// Guarantee 9. Its turn has not come, so it was not notified, and keeps its place although it is not polled.
#[tokio::test]
async fn an_unpolled_future_keeps_its_place_until_its_turn() {
    let scene = Scene::start();
    let locks = scene.client_with(config().safety_poll(200 * MS)).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let left = left(&scene, lock.lock()).await;
    let order = queue(&scene);
    throughout(3 * ALLOWANCE, async || assert_eq!(queue(&scene), order)).await;
    guard.unlock().await.unwrap();
    soon(left).await.unwrap().unlock().await.unwrap();
    drop((lock, locks));
    scene.end().await;
}

/// Guarantee 9. A Java client with a wrong clock removes live waiters, which attempt before their next heartbeat.
#[tokio::test]
async fn a_waiter_removed_from_the_queue_returns_with_its_next_attempt() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let first = waits(&scene, &locks, 0).await;
    let second = waits(&scene, &locks, 1).await;
    let order = queue(&scene);
    for round in 0..20 {
        for owner in &order {
            scene.server.run::<()>(&["LREM", QUEUE, "1", owner]);
            scene.server.run::<()>(&["ZREM", SCORES, owner]);
        }
        for owner in order.iter().rev() {
            scene.server.run::<()>(&["PUBLISH", &format!("redisson_lock__channel:{{a}}:{owner}"), "0"]);
        }
        eventually("both waiters are back in order", || queue(&scene), |found| *found == order).await;
        assert_eq!(scene.server.run::<usize>(&["ZCARD", SCORES]), 2, "round {round}");
    }
    guard.unlock().await.unwrap();
    assert!(soon(first).await.unwrap() < soon(second).await.unwrap());
    drop(locks);
    scene.end().await;
}
