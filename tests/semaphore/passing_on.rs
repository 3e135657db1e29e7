//! Guarantee 19 for permits: a client hands a permit to its next waiter without a command.

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockkeeper::LockConfigBuilder;
use tokio::time::sleep;

use super::waiting::queued;
use super::{end, is_whole};
use crate::support::{MS, SECOND, Scene, patient, soon, throughout};

/// Hands over for long enough that no budget ends in a test.
fn hands_over() -> LockConfigBuilder {
    patient().sharing(SECOND)
}

/// Both permits come back before a waiter takes the first one.
#[tokio::test]
async fn permits_that_come_back_together_are_handed_over_together() {
    let (scene, locks) = Scene::with_client_of(hands_over()).await;
    let semaphore = locks.semaphore("a", 2);
    let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let tasks = [queued(&scene, &semaphore, 1).await, queued(&scene, &semaphore, 1).await];
    let mut ids = held.each_ref().map(|permit| permit.id());
    let before = scene.server.scripts();
    for permit in held {
        assert!(permit.unlock().now_or_never().unwrap().is_ok());
    }
    let next = soon(join_all(tasks)).await.into_iter().map(Result::unwrap);
    let next: Vec<_> = next.collect();
    let mut now_held = [next[0].id(), next[1].id()];
    ids.sort_unstable();
    now_held.sort_unstable();
    assert_eq!((now_held, scene.server.scripts()), (ids, before));
    drop(next);
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

/// The order is first come, first served, so a call for several permits is not overtaken: until it has them, the server gets all back.
#[tokio::test]
async fn a_call_for_several_permits_is_not_overtaken_by_handing_over() {
    let (scene, locks) = Scene::with_client_of(hands_over()).await;
    let semaphore = locks.semaphore("a", 2);
    let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let batch = queued(&scene, &semaphore, 2).await;
    let mut small = queued(&scene, &semaphore, 1).await;
    let [first, second] = held;
    first.unlock().await.unwrap();
    throughout(100 * MS, async || {
        assert!((&mut small).now_or_never().is_none(), "it overtook");
        sleep(5 * MS).await;
    })
    .await;
    second.unlock().await.unwrap();
    let batch = soon(batch).await.unwrap();
    assert_eq!(batch.num_permits(), 2);
    batch.unlock().await.unwrap();
    let small = soon(small).await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 1, "it has what it asked for");
    small.unlock().await.unwrap();
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks]).await;
}
