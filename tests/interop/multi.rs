//! `MultiLock` and Redisson's `RedissonMultiLock` over the same names.

use std::time::Duration;

use lockkeeper::{LockClient, LockGuard, MultiLock};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::java::{Actor, IN_VAIN, LATCH};
use crate::support::{MS, Scene, eventually};
use crate::{Stage, java_waiting};

/// The order of the members in Java and in Rust.
const ORDERS: [(&str, &str); 4] = [("a,b", "a,b"), ("a,b", "b,a"), ("b,a", "a,b"), ("b,a", "b,a")];

fn of(locks: &LockClient, names: &str) -> MultiLock {
    MultiLock::new(names.split(',').map(|name| locks.rlock(name))).unwrap()
}

/// The locks that are held.
fn held(scene: &Scene) -> Vec<String> {
    let mut names: Vec<String> = scene.server.keys();
    names.retain(|name| !name.starts_with(LATCH));
    names.sort_unstable();
    names
}

/// One owner holds both locks once, with the lease of its watchdog.
fn has_both(scene: &Scene) -> bool {
    held(scene) == ["a", "b"]
        && ["a", "b"].iter().all(|name| {
            let left: u64 = scene.server.run(&["PTTL", name]);
            scene.server.run::<Vec<String>>(&["HVALS", name]) == ["1"] && (20_000..=30_000).contains(&left)
        })
}

/// Starts a Rust waiter. Returns when it has attempted on so many members in each of its two rounds, before and after
/// subscribing: from here on only a message wakes it.
async fn waits(scene: &Scene, locks: &LockClient, names: &str, members: u64) -> JoinHandle<LockGuard> {
    let before = scene.server.calls("pttl");
    let mut lock = of(locks, names);
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    let looks = || (scene.server.calls("pttl") - before, scene.server.channels());
    eventually("the waiter has attempted twice", looks, |(made, channels)| {
        *made >= 2 * members && !channels.is_empty()
    })
    .await;
    assert!(!waiting.is_finished());
    waiting
}

async fn java_waits(scene: &Scene, actor: &Actor, names: &str) -> JoinHandle<()> {
    let (waiter, names) = (actor.clone(), names.to_owned());
    java_waiting(&scene.server, actor, async move { waiter.lock(&names).await.unwrap() }).await
}

/// Java waits for three seconds at most and then starts again, so only a message is faster than this.
const BY_A_MESSAGE: Duration = Duration::from_millis(2_800);

async fn woken<T>(waiting: JoinHandle<T>) -> T {
    timeout(BY_A_MESSAGE, waiting).await.expect("a message wakes the waiter").unwrap()
}

/// Guarantee 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_excludes_the_other_in_any_order() {
    let stage = Stage::start().await;
    let java = stage.java.actor("one", "multi");
    let who = java.who().await;
    let has_java = || ["a", "b"].map(|name| stage.scene.server.run::<bool>(&["HEXISTS", name, &who]));
    for (theirs, ours) in ORDERS {
        java.lock(theirs).await.unwrap();
        assert!(has_both(&stage.scene) && has_java() == [true; 2]);
        let mut lock = of(&stage.locks, ours);
        assert!(lock.is_locked().await.unwrap() && lock.try_lock().await.unwrap().is_none());
        assert!(lock.try_lock_for(100 * MS).await.unwrap().is_none());
        assert!(has_both(&stage.scene) && has_java() == [true; 2]);
        java.unlock(theirs).await.unwrap();
        assert!(held(&stage.scene).is_empty());

        let guard = lock.lock().await.unwrap();
        assert!(has_both(&stage.scene));
        assert!(!java.try_lock(theirs).await.unwrap());
        assert!(!java.try_lock_within(theirs, IN_VAIN).await.unwrap());
        assert!(has_both(&stage.scene) && has_java() == [false; 2]);
        guard.unlock().await.unwrap();
        assert!(held(&stage.scene).is_empty());
    }
    stage.end().await;
}

/// Guarantee 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_woken_by_the_other_in_any_order() {
    let stage = Stage::start().await;
    let java = stage.java.actor("one", "multi");
    for (theirs, ours) in ORDERS {
        java.lock(theirs).await.unwrap();
        let waiting = waits(&stage.scene, &stage.locks, ours, 1).await;
        java.unlock(theirs).await.unwrap();
        let guard = woken(waiting).await;

        let waiting = java_waits(&stage.scene, &java, theirs).await;
        guard.unlock().await.unwrap();
        woken(waiting).await;
        assert!(has_both(&stage.scene));
        java.unlock(theirs).await.unwrap();
        eventually("no subscription is left", || stage.scene.server.channels(), Vec::is_empty).await;
    }
    stage.end().await;
}

/// Rust holds one of the locks alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_waiter_keeps_the_other_members() {
    let stage = Stage::start().await;
    let java = stage.java.actor("one", "multi");
    let guard = stage.locks.rlock("b").lock().await.unwrap();
    let waiting = java_waits(&stage.scene, &java, "a,b").await;
    assert!(
        stage.locks.rlock("a").try_lock().await.unwrap().is_none(),
        "Java holds the other member while it waits"
    );
    guard.unlock().await.unwrap();
    woken(waiting).await;
    assert!(has_both(&stage.scene));
    java.unlock("a,b").await.unwrap();
    stage.end().await;
}
