//! Another program removes keys of a queue, or the server evicts them. Every waiter is still granted the lock, and none blocks
//! the others.

use futures_util::future::join_all;
use lockkeeper::LockClient;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fair::{KEYS, PLACES, QUEUE, SCORES, TICKETS, config, java_queues, queue, queued};
use crate::support::{LIMIT, Scene, connect, eventually, patient, soon};

/// Guarantees 8 and 9. Waiters of one client are queued. These keys are removed, and perhaps the message connection is cut. After
/// some heartbeats the holder releases. All waiters and a new one are granted the lock, and no key is left.
async fn waiters_survive(removed: &[&str], waiters: usize, is_cut: bool) {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    let (locks, beside) = (connect(proxy.url(), config()).await, scene.client_with(config()).await);
    let guard = beside.fair_lock("a").lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for number in 1..=waiters {
        let locks: LockClient = locks.clone();
        waiting.spawn(async move { locks.fair_lock("a").lock().await.unwrap().unlock().await.unwrap() });
        queued(&scene, number).await;
    }
    scene.server.run::<()>(&[&["DEL"], removed].concat());
    if is_cut {
        proxy.cut();
    }
    let scripts = scene.server.calls("evalsha");
    let heartbeats = scripts + 5 + 2 * waiters as u64;
    eventually("several heartbeats", || scene.server.calls("evalsha"), |&now| now >= heartbeats).await;
    guard.unlock().await.unwrap();
    let granted = timeout(2 * LIMIT, waiting.join_all()).await;
    assert!(granted.is_ok(), "without {removed:?} some are never granted it");
    let new = beside.fair_lock("a").try_lock_for(LIMIT).await.unwrap();
    new.expect("nobody is in front of it").unlock().await.unwrap();
    // The cut may have left attempts of unknown outcome. They are undone as long as the server can be reached.
    soon(locks.shutdown()).await.unwrap();
    drop((locks, beside, proxy));
    scene.end().await;
}

/// All subsets of the four keys.
#[tokio::test]
async fn every_waiter_is_granted_the_lock_after_keys_were_removed() {
    let keys = [QUEUE, SCORES, PLACES, TICKETS];
    let case = |subset: usize| {
        let removed: Vec<_> = (0..4).filter(|bit| subset >> bit & 1 == 1).map(|bit| keys[bit]).collect();
        async move { waiters_survive(&removed, 3, false).await }
    };
    // Five at a time: each case asks its server all the time, on the thread on which all clients run.
    for subsets in [1..6, 6..11, 11..16] {
        join_all(subsets.map(case)).await;
    }
}

/// A Java client adds its place to keys that have an expiry. The keys outlast the wait of every Java client, even if all Rust
/// waiters die at once. If only Java's waiters are left, the keys have no expiry.
#[tokio::test]
async fn the_place_of_a_java_client_outlives_dead_waiters_in_rust() {
    let scene = Scene::start();
    let beside = scene.client_with(patient()).await;
    let guard = beside.fair_lock("a").lock().await.unwrap();
    // A process that dies right after its first attempt.
    scene.server.script("fair/acquire.lua", &KEYS, &["rust:1", "30000", "100"]);
    java_queues(&scene);
    let lasts_ms = |key: &str| scene.server.run::<i64>(&["PTTL", key]);
    for key in [QUEUE, SCORES] {
        assert!(lasts_ms(key) > 3_600_000, "{key}: {} ms", lasts_ms(key));
    }
    let is_dead = || scene.server.run::<String>(&["HGET", PLACES, "rust:1"]);
    let now =
        |record: &String| record.split(' ').next().unwrap().parse::<u64>().unwrap() < scene.server.now_ms();
    eventually("its waiter counts as dead", is_dead, now).await;
    guard.unlock().await.unwrap();
    assert_eq!(queue(&scene), ["java:1"]);
    assert_eq!([QUEUE, SCORES].map(lasts_ms), [-1, -1], "nobody here would renew the expiry");
    scene.server.run::<()>(&["FLUSHALL"]);
    drop(beside);
    scene.end().await;
}
