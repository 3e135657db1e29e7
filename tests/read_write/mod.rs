//! What a read-write lock guarantees beyond every other lock: readers share it, a writer holds it alone, and dead
//! readers block nobody for longer than their lease.
//!
//! Redisson's `testExpireRead` unlocks a read hold that had expired, and expects no error. Here that is `NotHeld`, as
//! for any lock. Its other tests have a counterpart, here or in `tests/conformance`.

mod dead;
mod owners;
mod patience;
mod scale;

use crate::support::Scene;
use lockkeeper::{LockClient, LockGuard, ReadLock, WriteLock};

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
