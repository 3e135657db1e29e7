//! A waiter that gives up leaves the queue, and nothing in it.

use std::time::Duration;

use tokio::time::sleep;

use crate::fair::{ALLOWANCE, PLACES, SCORES, config, lasting, left, queue, queued, waits};
use crate::support::{MS, SECOND, Scene, eventually, soon, throughout, timed};

/// Guarantees 8 and 11. The waiter times out or is dropped, also while it is woken. The next waiter is woken at once.
#[tokio::test]
async fn a_waiter_that_gives_up_leaves_the_queue_at_once() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client_with(lasting()).await, scene.client_with(lasting()).await);
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut first = locks.fair_lock("a");
    let (got, _) = tokio::join!(first.try_lock_for(3 * SECOND), queued(&scene, 1));
    assert!(got.unwrap().is_none());
    assert!(queue(&scene).is_empty(), "the waiter leaves the queue before its call returns");
    guard.unlock().await.unwrap();

    for round in 0..100_u64 {
        let guard = locks.fair_lock("a").lock().await.unwrap();
        let first = waits(&scene, &locks, 0).await;
        let second = waits(&scene, &beside, 1).await;
        guard.unlock().await.unwrap();
        sleep(Duration::from_micros(round * 13 % 1_500)).await; // at a different moment in each round
        first.abort();
        let (woken, took) = timed(second).await;
        woken.unwrap();
        assert!(took < 10 * SECOND, "round {round}: {took:?}");
        let _ = first.await;
    }
    drop((first, locks, beside));
    scene.end().await;
}

/// Guarantee 8. The waiter whose turn it is gives up before it acts. The next waiter is notified, and not by a
/// heartbeat.
#[tokio::test]
async fn a_notified_waiter_that_gives_up_notifies_the_next() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client_with(lasting()).await, scene.client_with(lasting()).await);
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let mut lock = locks.fair_lock("a");
    let notified = left(&scene, lock.lock()).await;
    let next = waits(&scene, &beside, 1).await;
    eventually("both waiters subscribe", || scene.server.channels(), |channels| channels.len() == 2).await;
    guard.unlock().await.unwrap();
    throughout(200 * MS, async || assert!(!next.is_finished(), "the turn belongs to the notified waiter"))
        .await;
    drop(notified);
    let (woken, took) = timed(next).await;
    woken.unwrap();
    assert!(took < 5 * SECOND, "{took:?}");
    drop((lock, locks, beside));
    scene.end().await;
}

/// Guarantee 11. The record of the waiter is gone, as after a long outage. Giving up removes what is left of its queue
/// entry.
#[tokio::test]
async fn a_waiter_that_gives_up_leaves_no_queue_entry() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    scene.server.run::<()>(&["DEL", PLACES]);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    queued(&scene, 0).await;
    guard.unlock().await.unwrap();

    // The same when the waiter finds the name in use as another kind of lock.
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    scene.server.run::<()>(&["HSET", "a", "mode", "read"]);
    let owner = queue(&scene).remove(0);
    scene.server.run::<()>(&["PUBLISH", &format!("redisson_lock__channel:{{a}}:{owner}"), "0"]);
    assert!(soon(waiting).await.is_err(), "the name is in use as another kind");
    queued(&scene, 0).await;
    drop(guard);
    let fields = || scene.server.run::<Vec<String>>(&["HKEYS", "a"]);
    eventually("the hold is released, and the foreign field is left", fields, |fields| *fields == ["mode"])
        .await;
    scene.server.run::<()>(&["DEL", "a"]);
    drop(locks);
    scene.end().await;
}

/// Guarantee 11. Only a release wakes the remaining waiter. The record of a waiter expires by itself if nothing
/// removes it.
#[tokio::test]
async fn a_waiter_that_gives_up_while_the_lock_is_held_wakes_nobody() {
    let scene = Scene::start();
    let (locks, beside) = (scene.client_with(config()).await, scene.client_with(config()).await);
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let first = waits(&scene, &locks, 0).await;
    let lasts_ms = scene.server.run::<i64>(&["PTTL", PLACES]);
    assert!(lasts_ms > 0, "{lasts_ms}");
    let second = waits(&scene, &beside, 1).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    queued(&scene, 1).await;
    assert_eq!(scene.server.calls("publish"), 0);
    guard.unlock().await.unwrap();
    soon(first).await.unwrap();
    drop((locks, beside));
    scene.end().await;
}

/// Guarantee 11. Redisson: testTryLockNonDelayed, testWaitTimeoutDrift. Timed-out waiters block no other waiter, and
/// no score drifts.
#[tokio::test]
async fn timed_out_waits_leave_nothing_behind() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let guard = locks.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &locks, 0).await;
    for _ in 0..30 {
        assert!(locks.fair_lock("a").try_lock_for(10 * MS).await.unwrap().is_none());
    }
    let scores: Vec<String> = scene.server.run(&["ZRANGE", SCORES, "0", "-1", "WITHSCORES"]);
    let time: Vec<f64> =
        scene.server.run::<Vec<String>>(&["TIME"]).iter().map(|part| part.parse().unwrap()).collect();
    let ahead = scores[1].parse::<f64>().unwrap() / 1e3 - time[0];
    assert!(scores.len() == 2 && ahead < 60.0 + ALLOWANCE.as_secs_f64() + 1.0, "{ahead} s ahead");
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    let guard = soon(locks.fair_lock("a").try_lock()).await;
    guard.unwrap().expect("the lock is free").unlock().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// Guarantee 11. Redisson: testAcquireFailedNotCalledOnRedisTimeout. The wait times out while the server is stopped.
#[tokio::test]
async fn a_wait_that_times_out_in_an_outage_leaves_nothing_behind() {
    let scene = Scene::start();
    let impatient = config().command_timeout(SECOND);
    let (ours, theirs) = (scene.client_with(impatient).await, scene.client_with(config()).await);
    let guard = theirs.fair_lock("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.fair_lock("a").try_lock_for(3 * SECOND).await.map(drop) }
    });
    queued(&scene, 1).await;
    scene.server.freeze();
    let _ = soon(waiting).await.unwrap();
    scene.server.thaw();
    queued(&scene, 0).await;
    guard.unlock().await.unwrap();
    ours.shutdown().await.unwrap();
    drop((ours, theirs));
    scene.end().await;
}
