//! What a fair lock guarantees beyond every other lock: it is granted in request order, whichever waiter dies or gives
//! up.
//!
//! Redisson's tests of drifting scores (`…TimeoutDrift_Descrete`) have no counterpart: here scores are refreshed, and
//! no waiter depends on them.

mod cost;
mod order;
mod places;
mod scale;

use std::time::Duration;

use crate::support::{Scene, child, connect, eventually, patient};
use lockkeeper::{LockClient, LockConfigBuilder};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

const ALLOWANCE: Duration = Duration::from_millis(1_500);

/// How long each waiter holds the lock that it waited for, so that other waiters can give up meanwhile.
const SECTION: Duration = Duration::from_millis(5);

/// The keys of the fair lock `a`, as its scripts take them.
const KEYS: [&str; 6] = [
    "a",
    "redisson_lock_queue:{a}",
    "redisson_lock_timeout:{a}",
    "lockkeeper_fair:{a}",
    "lockkeeper_fair_tickets:{a}",
    "redisson_lock__channel:{a}",
];
const QUEUE: &str = KEYS[1];
const SCORES: &str = KEYS[2];
const PLACES: &str = KEYS[3];
const TICKETS: &str = KEYS[4];

fn config() -> LockConfigBuilder {
    patient().fair_allowance(ALLOWANCE)
}

fn queue(scene: &Scene) -> Vec<String> {
    scene.server.run(&["LRANGE", QUEUE, "0", "-1"])
}

/// Adds a Java client to the queue, as Redisson does.
fn java_queues(scene: &Scene) {
    scene.server.run::<()>(&["RPUSH", QUEUE, "java:1"]);
    scene.server.run::<()>(&["ZADD", SCORES, &(scene.server.now_ms() + 300_000).to_string(), "java:1"]);
}

/// Puts sixty Java clients first that are dead. One script removes twenty.
fn dead_java_is_first(scene: &Scene) {
    for number in 0..60 {
        let java = format!("java:{number}");
        scene.server.run::<()>(&["LPUSH", QUEUE, &java]);
        scene.server.run::<()>(&["ZADD", SCORES, "1", &java]);
    }
}

async fn queued(scene: &Scene, count: usize) {
    eventually(&format!("the queue has {count} waiters"), || queue(scene), |queue| queue.len() == count)
        .await;
}

/// Starts a waiter. Returns when it is in the queue behind `before` others. The task returns the time of its acquire.
async fn waits(scene: &Scene, locks: &LockClient, before: usize) -> JoinHandle<Instant> {
    let locks = locks.clone();
    let waiting = tokio::spawn(async move {
        let guard = locks.fair_lock("a").lock().await.unwrap();
        let at = Instant::now();
        sleep(SECTION).await;
        guard.unlock().await.unwrap();
        at
    });
    queued(scene, before + 1).await;
    waiting
}

/// The second process. In a normal test run it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some((role, url)) = child::role() else { return };
    let locks = connect(url, config()).await;
    let mut waiting = JoinSet::new();
    for _ in 0..role.parse().unwrap() {
        let locks = locks.clone();
        waiting.spawn(async move { locks.fair_lock("a").lock().await.unwrap().unlock().await.unwrap() });
    }
    waiting.join_all().await;
    println!("end");
}
