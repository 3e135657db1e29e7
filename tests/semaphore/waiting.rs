//! Waiting for permits: first come, first served within a client, one subscription, and no permit is left while somebody waits.

use futures_util::FutureExt;
use lockkeeper::{Error, LockConfigBuilder, LockGuard, PermitId, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{end, is_whole};
use crate::support::{MS, SECOND, Scene, eventually, listens, patient, poll_until, soon, timed};

/// No poll comes during a test, so a waiter is woken by a message or by another waiter.
fn without_polls() -> LockConfigBuilder {
    patient().safety_poll(3_600 * SECOND)
}

/// Starts a task that acquires permits. Returns when it waits.
pub(super) async fn queued(
    scene: &Scene,
    semaphore: &Semaphore,
    permits: u32,
) -> JoinHandle<LockGuard<PermitId>> {
    let (semaphore, before) = (semaphore.clone(), scene.server.scripts());
    let asks = scene.server.channels().is_empty();
    let task = tokio::spawn(async move { semaphore.acquire_many(permits).await.unwrap() });
    if asks {
        eventually("it was refused", || scene.server.scripts(), |&scripts| scripts >= before + 2).await;
        listens(&scene.server).await;
    }
    sleep(20 * MS).await; // those behind the front ask nothing
    task
}

/// The front wants more than there is. When it gives up, the waiter behind it takes what is available at once.
#[tokio::test]
async fn a_front_that_gives_up_leaves_the_available_permits_to_the_next() {
    for wait in [None, Some(300 * MS)] {
        let (scene, locks) = Scene::with_client_of(without_polls()).await;
        let semaphore = locks.semaphore("a", 3);
        let held = semaphore.acquire_many(2).await.unwrap();
        let before = scene.server.scripts();
        let mut large = match wait {
            None => semaphore.acquire_many(3).map(|permit| permit.map(Some)).boxed(),
            Some(wait) => semaphore.try_acquire_many_for(3, wait).boxed(),
        };
        poll_until(&mut large, || scene.server.scripts() >= before + 2).await;
        listens(&scene.server).await;
        let small = semaphore.clone();
        let small = tokio::spawn(async move { small.acquire().await.unwrap() });
        sleep(50 * MS).await;
        assert!(!small.is_finished(), "it stands behind");
        match wait {
            None => drop(large),
            Some(_) => assert!(large.await.unwrap().is_none()),
        }
        let (permit, waited) = timed(small).await;
        assert!(waited < 5 * SECOND, "{waited:?}");
        permit.unwrap().unlock().await.unwrap();
        held.unlock().await.unwrap();
        is_whole(&scene, &semaphore, 3).await;
        drop(semaphore);
        end(scene, [locks]).await;
    }
}

/// A front that wants more than a smaller total leaves, and the waiter behind it gets a permit.
#[tokio::test]
async fn a_smaller_total_wakes_waiters() {
    let (scene, locks) = Scene::with_client_of(without_polls()).await;
    let semaphore = locks.semaphore("a", 5);
    let held = semaphore.acquire().await.unwrap();
    let large = semaphore.clone();
    let large = tokio::spawn(async move { large.acquire_many(5).await });
    listens(&scene.server).await;
    let small = queued(&scene, &semaphore, 1).await;
    semaphore.resize(3).await.unwrap();
    assert!(matches!(soon(large).await.unwrap(), Err(Error::InvalidPermits { wanted: 5, total: 3, .. })));
    soon(small).await.unwrap().unlock().await.unwrap();
    held.unlock().await.unwrap();
    is_whole(&scene, &semaphore, 3).await;
    drop(semaphore);
    end(scene, [locks]).await;
}
