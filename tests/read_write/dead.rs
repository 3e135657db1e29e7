//! Dead readers and writers block nobody for longer than their own lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::read_write::{holds, reader, ready, waits_to_write};
use crate::support::{Child, LIMIT, MS, SECOND, Scene, eventually, fixed, lua, patient, soon, timed};

/// Guarantee 8. Redisson: testMultiInstanceReadLockZombieCleanup, testMultiInstanceZombieReadLockPerformance. Dead
/// readers count until their own keys expire, although others read all the time.
#[tokio::test]
async fn dead_readers_delay_a_writer_for_their_lease_and_no_longer() {
    let scene = Scene::start();
    let config = patient().safety_poll(500 * MS);
    let (ours, theirs) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let mut dead = ready(Child::start("read_write::child", "hold 20", &scene.server.url())).await;
    assert_eq!(holds(&scene).len(), 20);
    // There is always a live reader, which raises the lease of the lock.
    let is_over = Arc::new(AtomicBool::new(false));
    let reading = tokio::spawn({
        let (theirs, is_over) = (theirs.clone(), Arc::clone(&is_over));
        async move {
            while !is_over.load(Ordering::SeqCst) {
                let guard = reader(&theirs).lock().await.unwrap();
                sleep(50 * MS).await; // the time that each reads alone
                let next = reader(&theirs).lock().await.unwrap();
                guard.unlock().await.unwrap();
                next.unlock().await.unwrap();
            }
        }
    });
    dead.kill();
    let waiting = waits_to_write(&scene, &ours).await;
    eventually("the keys of the dead readers expire", || holds(&scene).len(), |&left| left < 3).await;
    is_over.store(true, Ordering::SeqCst);
    let over = Instant::now();
    soon(reading).await.unwrap();
    let took = soon(waiting).await.unwrap() - over;
    assert!(took < LIMIT / 2, "{took:?}"); // far below the lease of 30 s
    drop((ours, theirs));
    scene.end().await;
}

/// Guarantee 8. No live reader is left. The writer does not have to wait for the lease of the hash, which another
/// reader had extended.
#[tokio::test]
async fn a_released_long_lease_delays_nobody() {
    let scene = Scene::start();
    let config = patient().safety_poll(500 * MS);
    let locks = scene.client_with(config).await;
    let mut dead = ready(Child::start("read_write::child", "hold 1", &scene.server.url())).await;
    let long = reader(&locks).with(&fixed(3_600 * SECOND)).lock().await.unwrap();
    dead.kill();
    let killed = Instant::now();
    let waiting = waits_to_write(&scene, &locks).await;
    long.unlock().await.unwrap();
    let left: i64 = scene.server.run(&["PTTL", "a"]);
    assert!(left < 60_000, "Java's writers wait for this lease: {left} ms");
    let took = soon(waiting).await.unwrap() - killed;
    assert!(took < LIMIT / 2, "{took:?}");
    drop(locks);
    scene.end().await;
}

/// Guarantee 8.
#[tokio::test]
async fn readers_follow_a_killed_writer_when_its_lease_ends() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(60 * SECOND)).await;
    let mut dead = ready(Child::start("read_write::child", "write 1", &scene.server.url())).await;
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

/// Guarantee 8. A reader that leaves many looks at one of them. If that one is dead, it looks at others.
#[tokio::test]
async fn the_last_living_reader_among_many_frees_the_lock() {
    let scene = Scene::start();
    let release = lua::source("read/release.lua");
    let owner = |n| format!("00000000-0000-0000-0000-000000000000:{n}");
    let live = |n| {
        scene.server.run::<()>(&["SET", &format!("{{a}}:{}:rwlock_timeout:1", owner(n)), "1", "PX", "60000"])
    };
    for round in 0..60 {
        let is_alone = round % 2 == 0;
        scene.server.run::<()>(&["HSET", "a", "mode", "read"]);
        for n in 0..5 {
            scene.server.run::<()>(&["HSET", "a", &owner(n), "1"]);
        }
        live(0);
        if !is_alone {
            live(1);
        }
        let args = ["EVAL", &release, "2", "a", "redisson_rwlock:{a}", &owner(0), "1", "30000"];
        assert_eq!(scene.server.run::<i64>(&args), 0);
        assert_eq!(scene.server.run::<bool>(&["HEXISTS", "a", &owner(1)]), !is_alone, "round {round}");
        assert!(!scene.server.run::<bool>(&["HEXISTS", "a", &owner(0)]), "round {round}");
        scene.server.run::<()>(&["FLUSHALL"]);
    }
    scene.end().await;
}
