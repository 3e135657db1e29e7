//! Each language as holder and as waiter beside the other.

use std::time::Duration;

use lockkeeper::{Error, LockClient, LockConfig, LockGuard};
use lockkeeper_testkit::Commands;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::java::Actor;
use crate::support::fixture::{Fixture, Subject};
use crate::support::{Child, MS, SECOND, Scene, eventually, soon};
use crate::{Java, Row, Stage, actor, java_waiting, rival, waiting};

/// For tests in which a lease ends or is renewed.
pub const LEASE: Duration = Duration::from_secs(6);

/// A message takes milliseconds, the first steps of a JVM much longer, and a busy machine adds seconds. All of this is
/// far below a lease of 30 s, after which a waiter would attempt without a message.
pub const HAND_OFF: Duration = Duration::from_secs(6);

/// Rust releases, Java acquires.
pub async fn hand_over<T>(server: &Commands, guard: LockGuard<T>, waiter: &Actor, name: &str) {
    let woken = waits(server, waiter, name).await;
    assert!(guard.remaining() > HAND_OFF + SECOND / 2, "the lease must be longer than a hand-off");
    guard.unlock().await.unwrap();
    timeout(HAND_OFF, woken).await.expect("a message wakes the waiter").unwrap();
    assert!(waiter.is_held(name).await.unwrap());
    waiter.unlock(name).await.unwrap();
    eventually("no subscription is left", || server.channels(), Vec::is_empty).await;
}

async fn left(holder: &Actor, name: &str) -> Duration {
    Duration::from_millis(holder.remaining(name).await.unwrap().try_into().expect("the lock is held"))
}

/// Starts a Java waiter, whose task ends when it holds the lock.
pub async fn waits(server: &Commands, waiter: &Actor, name: &str) -> JoinHandle<()> {
    let (waiter, name) = (waiter.clone(), name.to_owned());
    java_waiting(server, &waiter.clone(), async move { waiter.lock(&name).await.unwrap() }).await
}

/// Java releases, Rust acquires.
async fn hand_back<R: Row>(stage: &Stage, holder: &Actor) {
    hand_back_on::<R>(&stage.scene.server, &stage.locks, holder, "a").await;
}

/// Java releases, Rust acquires.
pub async fn hand_back_on<R: Row>(server: &Commands, locks: &LockClient, holder: &Actor, name: &str) {
    let mut waiter = R::Rust::rival(locks, name);
    let woken = waiting::<R, _>(server, async move { waiter.lock().await.unwrap() }).await;
    assert!(left(holder, name).await > HAND_OFF + SECOND / 2, "the lease must be longer than a hand-off");
    holder.unlock(name).await.unwrap();
    let guard = timeout(HAND_OFF, woken).await.expect("a message wakes the waiter").unwrap();
    assert!(!holder.is_held(name).await.unwrap());
    guard.unlock().await.unwrap();
}

/// The remaining lease of `a`, and a time before it was read.
pub fn lease_left(scene: &Scene) -> (Instant, Duration) {
    let start = Instant::now();
    let left: u64 = scene.server.run(&["PTTL", "a"]);
    (start, Duration::from_millis(left))
}

fn not_the_owner(result: &Result<(), String>) -> bool {
    result.as_ref().is_err_and(|error| error.starts_with("IllegalMonitorStateException"))
}

/// Guarantees 1 and 3.
pub async fn java_waits_for_a_reentrant_rust_holder<R: Row>() {
    let stage = Stage::start().await;
    let mut lock = stage.lock::<R>();
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let waiter = rival::<R>(&stage.java, "waiter");
    assert!(!waiter.try_lock("a").await.unwrap());
    inner.unlock().await.unwrap();
    assert!(!waiter.try_lock("a").await.unwrap(), "one hold is left");
    hand_over(&stage.scene.server, outer, &waiter, "a").await;
    drop(lock);
    stage.end().await;
}

/// Guarantees 1 and 3.
pub async fn rust_waits_for_a_reentrant_java_holder<R: Row>() {
    let stage = Stage::start().await;
    let holder = actor::<R>(&stage.java, "holder");
    holder.lock("a").await.unwrap();
    holder.lock("a").await.unwrap();
    assert_eq!(holder.hold_count("a").await.unwrap(), 2);
    assert_eq!(stage.locks.inspect("a").await.unwrap().unwrap().holders[0].holds, 2);
    holder.unlock("a").await.unwrap();
    assert!(stage.rival::<R>().try_lock().await.unwrap().is_none(), "one hold is left");
    hand_back::<R>(&stage, &holder).await;
    // In Redisson, any caller can unlock a free fair lock without an error. So it was for read-write locks before 3.44.
    let is_lenient = R::JAVA == "fair" || R::Rust::IS_READ_WRITE && !stage.java.is_at_least(3, 44);
    let once_more = holder.unlock("a").await;
    assert!(not_the_owner(&once_more) || is_lenient, "a third unlock must fail in Java");
    stage.end().await;
}

/// Guarantees 1 and 7.
pub async fn a_java_watchdog_keeps_rust_out<R: Row>() {
    let stage = Stage::with_watchdog(LEASE).await;
    let holder = actor::<R>(&stage.java, "holder");
    holder.lock("a").await.unwrap();
    let start = Instant::now();
    let mut rival = stage.rival::<R>();
    while start.elapsed() < LEASE * 3 / 2 {
        assert!(rival.try_lock().await.unwrap().is_none(), "after {:?}", start.elapsed());
        sleep(50 * MS).await;
    }
    holder.unlock("a").await.unwrap();
    rival.try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
    drop(rival);
    stage.end().await;
}

/// Guarantees 1 and 7.
pub async fn a_rust_watchdog_keeps_java_out<R: Row>() {
    let stage = Stage::with_watchdog(LEASE).await;
    let guard = stage.lock::<R>().lock().await.unwrap();
    let start = Instant::now();
    let rival = rival::<R>(&stage.java, "rival");
    while start.elapsed() < LEASE * 3 / 2 {
        assert!(!rival.try_lock("a").await.unwrap(), "after {:?}", start.elapsed());
        sleep(50 * MS).await;
    }
    guard.unlock().await.unwrap();
    assert!(rival.try_lock("a").await.unwrap(), "the lock is free");
    rival.unlock("a").await.unwrap();
    stage.end().await;
}

/// Guarantee 8.
pub async fn rust_gets_the_lock_of_a_killed_jvm<R: Row>() {
    let scene = Scene::start();
    let java = Java::with(&scene, &[&format!("watchdog={}", LEASE.as_millis())]).await;
    let locks = scene.client_with(LockConfig::builder().safety_poll(60 * SECOND)).await;
    actor::<R>(&java, "holder").lock("a").await.unwrap();
    scene.raised("a").await;
    let mut waiter = R::Rust::rival(&locks, "a");
    let waiting = waiting::<R, _>(&scene.server, async move { waiter.lock().await.unwrap() }).await;
    let (start, left) = lease_left(&scene);
    java.kill().await;
    let guard = soon(waiting).await;
    assert!(start.elapsed() >= left, "{:?} of {left:?}", start.elapsed());
    guard.unwrap().unlock().await.unwrap();
    scene.end(locks).await;
}

pub async fn java_gets_the_lock_of_a_killed_rust_process<R: Row>() {
    let scene = Scene::start();
    let java = Java::start(&scene).await;
    let mut holder = Child::start("child", &format!("{} hold", R::NAME), &scene.server.url());
    holder.read_until("held");
    scene.raised("a").await;
    let waiter = rival::<R>(&java, "waiter");
    let waiting = waits(&scene.server, &waiter, "a").await;
    let (start, left) = lease_left(&scene);
    holder.kill();
    soon(waiting).await.unwrap();
    assert!(start.elapsed() >= left, "{:?} of {left:?}", start.elapsed());
    waiter.unlock("a").await.unwrap();
    drop(holder);
    java.end(&scene).await;
    scene.end(()).await;
}

/// Guarantee 2.
pub async fn java_gets_the_lock_when_a_rust_lease_ends<R: Row>() {
    let stage = Stage::start().await;
    let start = Instant::now();
    let guard = R::Rust::leased(&stage.locks, "a", SECOND).lock().await.unwrap();
    let waiter = rival::<R>(&stage.java, "waiter");
    soon(waiter.lock("a")).await.unwrap();
    assert!(start.elapsed() >= SECOND, "{:?}", start.elapsed());
    assert!(guard.is_lost());
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    waiter.unlock("a").await.expect("the release of the old guard must not end this hold");
    stage.end().await;
}

/// Guarantees 2 and 8.
pub async fn java_force_unlocks_a_rust_holder<R: Row>() {
    let lease = 2 * HAND_OFF; // at least two thirds of it remain
    let stage = Stage::with_watchdog(lease).await;
    let guard = stage.lock::<R>().lock().await.unwrap();
    let waiter = rival::<R>(&stage.java, "waiter");
    let woken = waits(&stage.scene.server, &waiter, "a").await;
    let ends = Instant::now() + guard.remaining();
    assert!(actor::<R>(&stage.java, "repair").force_unlock("a").await.unwrap());
    timeout(HAND_OFF, woken).await.expect("a message wakes the waiter").unwrap();
    soon(guard.ended()).await.unwrap_err();
    assert!(Instant::now() < ends, "a renewal finds the loss before the lease ends");
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    assert!(waiter.is_held("a").await.unwrap());
    waiter.unlock("a").await.unwrap();
    assert!(!actor::<R>(&stage.java, "repair").force_unlock("a").await.unwrap());

    let guard = stage.lock::<R>().lock().await.unwrap();
    let mut waiter = stage.rival::<R>();
    let woken = waiting::<R, _>(&stage.scene.server, async move { waiter.lock().await.unwrap() }).await;
    assert!(actor::<R>(&stage.java, "repair").force_unlock("a").await.unwrap());
    let next = timeout(HAND_OFF, woken).await.expect("a message wakes the waiter").unwrap();
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    next.unlock().await.unwrap();
    stage.end().await;
}

/// Guarantee 8.
pub async fn rust_force_unlocks_a_java_holder<R: Row>() {
    let stage = Stage::start().await;
    let holder = actor::<R>(&stage.java, "holder");
    holder.lock("a").await.unwrap();
    let waiter = rival::<R>(&stage.java, "waiter");
    let woken = waits(&stage.scene.server, &waiter, "a").await;
    assert!(stage.lock::<R>().force_unlock().await.unwrap());
    timeout(HAND_OFF, woken).await.expect("a message wakes the waiter").unwrap();
    assert!(not_the_owner(&holder.unlock("a").await));
    assert!(waiter.is_held("a").await.unwrap());
    waiter.unlock("a").await.unwrap();
    assert!(!stage.lock::<R>().force_unlock().await.unwrap());

    holder.lock("a").await.unwrap();
    let mut waiter = stage.rival::<R>();
    let woken = waiting::<R, _>(&stage.scene.server, async move { waiter.lock().await.unwrap() }).await;
    assert!(stage.lock::<R>().force_unlock().await.unwrap());
    let next = timeout(HAND_OFF, woken).await.expect("a message wakes the waiter").unwrap();
    assert!(not_the_owner(&holder.unlock("a").await));
    next.unlock().await.unwrap();
    stage.end().await;
}

pub async fn each_side_sees_the_holder<R: Row>() {
    let stage = Stage::start().await;
    let (java, lock) = (actor::<R>(&stage.java, "someone"), stage.lock::<R>());
    assert!(!java.is_locked("a").await.unwrap() && !lock.is_locked().await.unwrap());
    assert_eq!((java.remaining("a").await.unwrap(), lock.remaining_lease().await.unwrap()), (-2, None));

    let guard = stage.lock::<R>().lock().await.unwrap();
    assert!(java.is_locked("a").await.unwrap() && !java.is_held("a").await.unwrap());
    assert_eq!(java.hold_count("a").await.unwrap(), 0);
    assert!((20_000..=30_000).contains(&java.remaining("a").await.unwrap()));
    guard.unlock().await.unwrap();

    java.lock("a").await.unwrap();
    assert!(lock.is_locked().await.unwrap() && !lock.is_held());
    assert_eq!(lock.hold_count(), 0);
    let left = lock.remaining_lease().await.unwrap().unwrap().duration().unwrap();
    assert!(left > 20 * SECOND && left <= 30 * SECOND, "{left:?}");
    let found = stage.locks.inspect("a").await.unwrap().unwrap();
    assert!(found.holders[0].owner.starts_with(&java.who().await), "{found:?}");
    java.unlock("a").await.unwrap();
    drop(lock);
    stage.end().await;
}
