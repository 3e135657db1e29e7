//! When a waiter keeps its place in the queue, and when it loses it.

use crate::fair::{QUEUE, SCORES, config, queue, queued, waits};
use crate::support::{Child, LIMIT, Scene, eventually, soon, timed};

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
