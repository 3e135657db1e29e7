//! The keys of a queue outlive waiters that died, for as long as somebody of Java waits.

use crate::fair::{KEYS, PLACES, QUEUE, SCORES, java_queues, queue};
use crate::support::{Scene, eventually, patient};

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
