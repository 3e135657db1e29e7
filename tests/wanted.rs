//! `LockGuard::wanted`: a holder hears that another owner waits.

use std::time::Duration;

use crate::support::{SECOND, Scene, connect, eventually, patient, soon};
use futures_util::future::join_all;
use lockkeeper::{BaseLock, Lock};
use tokio::time::timeout;

/// Longer than the time between two questions.
const A_QUESTION_LATER: Duration = SECOND;

async fn enters(mut lock: Lock<'_, impl BaseLock>) {
    lock.lock().await.unwrap().unlock().await.unwrap();
}

/// So a task that waits for it does not stay behind.
#[tokio::test]
async fn it_ends_with_the_hold() {
    let (scene, locks) = Scene::with_client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let wanted = tokio::spawn(guard.wanted());
    guard.unlock().await.unwrap();
    soon(wanted).await.unwrap();
    scene.end(locks).await;
}

/// Readers of one lock in one client ask together, and all hear of a writer.
#[tokio::test]
async fn the_guards_of_a_lock_share_a_question() {
    let (scene, locks) = Scene::with_client().await;
    let mut guards = Vec::new();
    for _ in 0..10 {
        guards.push(locks.read_write_lock("a").into_read().lock().await.unwrap());
    }
    let mut wanted = join_all(guards.iter().map(|guard| guard.wanted()));
    let asked = || scene.server.calls("pubsub|numsub");
    let before = asked();
    assert!(timeout(A_QUESTION_LATER, &mut wanted).await.is_err());
    let asked = asked() - before;
    assert!((2..=5).contains(&asked), "{asked} questions");
    let writes = tokio::spawn(enters(locks.clone().read_write_lock("a").into_write()));
    soon(wanted).await;
    drop(guards);
    soon(writes).await.unwrap();
    scene.end(locks).await;
}

/// Without the right to ask, and while no server answers, the future waits. The lock works.
#[tokio::test]
async fn who_may_not_ask_hears_nothing() {
    let scene = Scene::start();
    let url = scene.user("~* &* +@all -pubsub");
    let locks = connect(url, patient()).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let waits = tokio::spawn(enters(locks.clone().rlock("a")));
    eventually("it listens", || scene.server.channels(), |channels| channels.len() == 1).await;
    assert!(timeout(A_QUESTION_LATER, guard.wanted()).await.is_err());
    guard.unlock().await.unwrap();
    soon(waits).await.unwrap();
    scene.end(locks).await;
}
