//! The dead are in nobody's way for longer than their own lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{Child, LIMIT, MS, SECOND, Scene, eventually, patient, soon, timed};
use crate::{holds, reader, ready, wants_to_write};

/// Redisson: testMultiInstanceReadLockZombieCleanup, testMultiInstanceZombieReadLockPerformance. Readers that died count
/// until their own keys end, although others read all the time.
#[tokio::test]
async fn dead_readers_hold_a_writer_up_for_their_lease_and_no_longer() {
    let scene = Scene::start();
    let config = patient().safety_poll(500 * MS);
    let (ours, theirs) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let mut dead = ready(Child::start("hold 20", &scene.server.url())).await;
    assert_eq!(holds(&scene).len(), 60);
    // Somebody always reads, and raises the lease of the lock.
    let is_over = Arc::new(AtomicBool::new(false));
    let reading = tokio::spawn({
        let (theirs, is_over) = (theirs.clone(), Arc::clone(&is_over));
        async move {
            while !is_over.load(Ordering::SeqCst) {
                let guard = reader(&theirs).lock().await.unwrap();
                sleep(50 * MS).await; // so long each reads alone
                let next = reader(&theirs).lock().await.unwrap();
                guard.unlock().await.unwrap();
                next.unlock().await.unwrap();
            }
        }
    });
    dead.kill();
    let waiting = wants_to_write(&scene, &ours).await;
    eventually("their keys end", || holds(&scene).len(), |&left| left < 3).await;
    is_over.store(true, Ordering::SeqCst);
    let over = Instant::now();
    soon(reading).await.unwrap();
    let took = soon(waiting).await.unwrap() - over;
    assert!(took < LIMIT / 2, "{took:?}"); // and not the lease of 30 s
    drop((ours, theirs));
    scene.end().await;
}

/// Nobody else reads: the writer need not wait for the lease of the hash, which another reader made long.
#[tokio::test]
async fn a_long_lease_that_was_given_back_holds_nobody_up() {
    let scene = Scene::start();
    let config = patient().safety_poll(500 * MS);
    let locks = scene.client_with(config).await;
    let mut dead = ready(Child::start("hold 1", &scene.server.url())).await;
    let long = reader(&locks).lease(3_600 * SECOND).unwrap().lock().await.unwrap();
    dead.kill();
    let killed = Instant::now();
    let waiting = wants_to_write(&scene, &locks).await;
    long.unlock().await.unwrap();
    let left: i64 = scene.server.run(&["PTTL", "a"]);
    assert!(left < 60_000, "Java's writers wait for that: {left} ms");
    let took = soon(waiting).await.unwrap() - killed;
    assert!(took < LIMIT / 2, "{took:?}");
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn a_writer_that_was_killed_is_followed_when_its_lease_ends() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(60 * SECOND)).await;
    let mut dead = ready(Child::start("write 1", &scene.server.url())).await;
    dead.kill();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let locks = locks.clone();
        waiting.spawn(async move { reader(&locks).lock().await.unwrap() });
    }
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(took < LIMIT / 2, "{took:?}");
    drop(guards);
    drop(locks);
    scene.end().await;
}
