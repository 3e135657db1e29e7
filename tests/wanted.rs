//! `LockGuard::wanted`: a holder hears that another owner waits.

use std::pin::pin;
use std::time::Duration;

use crate::support::{SECOND, Scene, connect, eventually, patient, soon};
use lockkeeper::{BaseLock, Lock, LockClient, LockGuard, MultiLock};
use tokio::time::timeout;

/// Longer than the time between two questions.
const A_QUESTION_LATER: Duration = SECOND;

/// Nobody waits at first, then `waits` does.
async fn hears<T: Send + Sync + 'static>(
    guard: LockGuard<T>,
    waits: impl Future<Output = ()> + Send + 'static,
    type_of: &str,
) {
    let mut wanted = pin!(guard.wanted());
    assert!(timeout(A_QUESTION_LATER, &mut wanted).await.is_err(), "{type_of}: nobody waits");
    let waits = tokio::spawn(waits);
    soon(wanted).await;
    guard.unlock().await.unwrap();
    soon(waits).await.unwrap();
}

async fn enters(mut lock: Lock<'_, impl BaseLock>) {
    lock.lock().await.unwrap().unlock().await.unwrap();
}

async fn all_types_hear(locks: &LockClient, other: &LockClient) {
    let rw = |locks: &LockClient| locks.read_write_lock("rw");
    let both = |locks: &LockClient| MultiLock::new(["m1", "m2"].map(|name| locks.rlock(name))).unwrap();
    let semaphore = |locks: &LockClient| locks.semaphore("semaphore", 1);
    let permit = semaphore(locks).acquire().await.unwrap();
    let waiting = semaphore(other);
    let other = || other.clone();
    tokio::join!(
        Box::pin(hears(locks.rlock("rlock").lock().await.unwrap(), enters(other().rlock("rlock")), "rlock")),
        Box::pin(hears(
            locks.fair_lock("fair").lock().await.unwrap(),
            enters(other().fair_lock("fair")),
            "fair"
        )),
        Box::pin(hears(
            locks.fenced_lock("fenced").lock().await.unwrap(),
            enters(other().fenced_lock("fenced")),
            "fenced"
        )),
        Box::pin(hears(
            rw(locks).into_read().lock().await.unwrap(),
            enters(rw(&other()).into_write()),
            "read"
        )),
        Box::pin(hears(both(locks).lock().await.unwrap(), enters(other().rlock("m2")), "multi")),
        Box::pin(hears(
            permit,
            async move { waiting.acquire().await.unwrap().unlock().await.unwrap() },
            "semaphore"
        )),
    );
    semaphore(locks).delete().await.unwrap();
    hears(rw(locks).into_write().lock().await.unwrap(), enters(rw(&other()).into_read()), "write").await;
}

#[tokio::test]
async fn a_holder_of_each_type_hears_that_an_owner_waits() {
    let scene = Scene::start();
    let (locks, other) = (scene.client().await, scene.client().await);
    // Boxed: the futures of all types together are large.
    Box::pin(all_types_hear(&locks, &other)).await;
    // Also if it is an owner of the same client.
    Box::pin(all_types_hear(&locks, &locks)).await;
    drop((locks, other));
    scene.end().await;
}

/// So a task that waits for it does not stay behind.
#[tokio::test]
async fn it_ends_with_the_hold() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let wanted = tokio::spawn(guard.wanted());
    guard.unlock().await.unwrap();
    soon(wanted).await.unwrap();
    drop(locks);
    scene.end().await;
}

/// Without the right to ask, and while no server answers, the future waits. The lock works.
#[tokio::test]
async fn who_may_not_ask_hears_nothing() {
    let scene = Scene::start();
    scene.server.run::<()>(&["ACL", "SETUSER", "locker", "on", ">secret", "~*", "&*", "+@all", "-pubsub"]);
    let url = format!("redis://locker:secret@127.0.0.1:{}/", scene.server.port());
    let locks = connect(url, patient()).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let waits = tokio::spawn(enters(locks.clone().rlock("a")));
    eventually("it listens", || scene.server.channels(), |channels| channels.len() == 1).await;
    assert!(timeout(A_QUESTION_LATER, guard.wanted()).await.is_err());
    guard.unlock().await.unwrap();
    soon(waits).await.unwrap();
    drop(locks);
    scene.end().await;
}
