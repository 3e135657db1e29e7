//! What a read-write lock guarantees beyond every other lock: readers share it, a writer holds it alone, and dead
//! readers block nobody for longer than their lease.
//!
//! Redisson's `testExpireRead` unlocks a read hold that had expired, and expects no error. Here that is `NotHeld`, as
//! for any lock. Its other tests have a counterpart, here or in `tests/conformance`.

mod dead;
mod foreign_commands;
mod leases;
mod owners;
mod patience;
mod scale;
mod wakes;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Scene, child, connect, eventually, patient};
use lockkeeper::{LockClient, LockGuard, ReadLock, WriteLock};
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// Watchdog lease of holders that die.
const LEASE: Duration = Duration::from_secs(3);

fn reader(locks: &LockClient) -> ReadLock<'static> {
    locks.read_write_lock("a").into_read()
}

fn writer(locks: &LockClient) -> WriteLock<'static> {
    locks.read_write_lock("a").into_write()
}

async fn can_read(locks: &LockClient) -> bool {
    let got = reader(locks).try_lock().await.unwrap();
    was_granted(got).await
}

async fn can_write(locks: &LockClient) -> bool {
    let got = writer(locks).try_lock().await.unwrap();
    was_granted(got).await
}

/// Releases the guard, if there is one.
async fn was_granted(got: Option<LockGuard>) -> bool {
    let was_granted = got.is_some();
    if let Some(guard) = got {
        guard.unlock().await.unwrap();
    }
    was_granted
}

/// The keys of the read holds on the server.
fn holds(scene: &Scene) -> Vec<String> {
    let mut keys: Vec<String> = scene.server.run(&["KEYS", "{a}:*:rwlock_timeout:*"]);
    keys.sort();
    keys
}

/// Starts a writer. Returns when it is subscribed. The task returns the time of its acquire, after its release.
async fn waits_to_write(scene: &Scene, locks: &LockClient) -> JoinHandle<Instant> {
    let locks = locks.clone();
    let before = scene.server.channels().len();
    let waiting = tokio::spawn(async move {
        let guard = writer(&locks).lock().await.unwrap();
        let at = Instant::now();
        guard.unlock().await.unwrap();
        at
    });
    eventually("the waiter subscribes", || scene.server.channels().len(), |&now| now > 0 && now >= before)
        .await;
    waiting
}

/// The second process. In a normal test run it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some((role, url)) = child::role() else { return };
    let (what, count) = role.split_once(' ').unwrap();
    let count: usize = count.parse().unwrap();
    let config =
        if what == "read" { patient() } else { patient().watchdog_lease(LEASE).sharing(Duration::ZERO) };
    let locks = connect(url, config).await;
    match what {
        // All hold the lock together, or the barrier is never passed.
        "read" => {
            let inside = Arc::new(Barrier::new(count));
            let mut reading = JoinSet::new();
            for _ in 0..count {
                let (locks, inside) = (locks.clone(), Arc::clone(&inside));
                reading.spawn(async move {
                    let guard = reader(&locks).lock().await.unwrap();
                    inside.wait().await;
                    guard.unlock().await.unwrap();
                });
            }
            reading.join_all().await;
            println!("end");
        }
        "hold" => {
            let mut guards = Vec::new();
            for _ in 0..count {
                let mut lock = reader(&locks);
                for _ in 0..3 {
                    guards.push(lock.lock().await.unwrap());
                }
            }
            println!("ready");
            pending().await
        }
        _ => {
            let _guard = writer(&locks).lock().await.unwrap();
            println!("ready");
            pending().await
        }
    }
}
