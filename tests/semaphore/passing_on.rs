//! Guarantee 19 for permits: a client hands a permit to its next waiter without a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockkeeper::{LockConfigBuilder, Semaphore};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::waiting::queued;
use super::{end, is_whole};
use crate::support::{MS, SECOND, Scene, patient, soon, throughout};

/// Hands over for long enough that no budget ends in a test.
fn hands_over() -> LockConfigBuilder {
    patient().sharing(SECOND)
}

/// Tasks of one client use two permits. Returns how many sections there were, and how many scripts ran for them.
async fn contend(scene: &Scene, semaphore: &Semaphore, drops: bool) -> (u64, u64) {
    let before = scene.server.scripts();
    let inside = Arc::new(AtomicI64::new(0));
    let tasks = (0..8).map(|_| {
        let (semaphore, inside) = (semaphore.clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            for _ in 0..100 {
                let permit = semaphore.acquire().await.unwrap();
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 2, "more are inside than permits");
                yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                if drops {
                    drop(permit);
                } else {
                    permit.unlock().await.unwrap();
                }
            }
        })
    });
    soon(join_all(tasks)).await.into_iter().for_each(Result::unwrap);
    (800, scene.server.scripts() - before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_take_turns_without_commands() {
    let scene = Scene::start();
    let locks = scene.client_with(hands_over()).await;
    let plain = scene.client_with(patient().sharing(Duration::ZERO)).await;
    for drops in [false, true] {
        // A task that the machine stops takes no permit, and after a moment its client releases what was meant for it. So the best
        // of some rounds counts.
        let mut rounds = Vec::new();
        while rounds.last().is_none_or(|&(sections, scripts)| scripts * 4 >= sections) {
            assert!(rounds.len() < 5, "sections and scripts: {rounds:?}");
            rounds.push(contend(&scene, &locks.semaphore("a", 2), drops).await);
        }
        is_whole(&scene, &locks.semaphore("a", 2), 2).await;
        let (sections, scripts) = contend(&scene, &plain.semaphore("a", 2), drops).await;
        // An acquire and a release each, of which some go out together.
        assert!(
            scripts * 2 >= 3 * sections,
            "{scripts} scripts for {sections} sections without handing over"
        );
        is_whole(&scene, &locks.semaphore("a", 2), 2).await;
    }
    end(scene, [locks, plain]).await;
}

/// Both permits come back before a waiter takes the first one.
#[tokio::test]
async fn permits_that_come_back_together_are_handed_over_together() {
    let scene = Scene::start();
    let locks = scene.client_with(hands_over()).await;
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
    let scene = Scene::start();
    let locks = scene.client_with(hands_over()).await;
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
    soon(small).await.unwrap().unlock().await.unwrap();
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks]).await;
}
