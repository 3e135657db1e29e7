//! Waiting for permits: first come, first served within a client, one subscription, and no permit is left while somebody waits.

use std::sync::{Arc, Mutex};

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

/// The waiters are woken across clients, and one message is enough for many permits.
#[tokio::test]
async fn one_release_of_many_permits_serves_as_many_waiters() {
    let scene = Scene::start();
    let clients = [scene.client_with(without_polls()).await, scene.client_with(without_polls()).await];
    let batch = clients[0].semaphore("a", 6).acquire_many(6).await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..6 {
        waiting.push(queued(&scene, &clients[number % 2].semaphore("a", 6), 1).await);
    }
    batch.unlock().await.unwrap();
    let mut permits = Vec::new();
    for task in waiting {
        permits.push(soon(task).await.unwrap());
    }
    drop(permits);
    is_whole(&scene, &clients[0].semaphore("a", 6), 6).await;
    end(scene, clients).await;
}

/// A call for many is not starved by calls for one, and those behind it keep their order.
#[tokio::test]
async fn waiters_of_a_client_are_served_in_their_order_also_for_several_permits() {
    let scene = Scene::start();
    let locks = scene.client_with(without_polls()).await;
    let semaphore = locks.semaphore("a", 3);
    let mut held: Vec<LockGuard<PermitId>> = Vec::new();
    for _ in 0..3 {
        held.push(semaphore.acquire().await.unwrap());
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, wanted) in [1, 3, 1, 2, 1].into_iter().enumerate() {
        let (semaphore, order) = (semaphore.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let permit = semaphore.acquire_many(wanted).await.unwrap();
            order.lock().unwrap().push(number);
            sleep(5 * MS).await; // the work
            permit.unlock().await.unwrap();
        }));
        sleep(20 * MS).await;
    }
    for permit in held {
        permit.unlock().await.unwrap();
        sleep(20 * MS).await;
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    assert_eq!(order[..2], [0, 1], "{order:?}");
    let place = |number| order.iter().position(|found| *found == number).unwrap();
    assert!(place(2) < place(4) && order.len() == 5, "{order:?}");
    is_whole(&scene, &semaphore, 3).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

/// The front wants more than there is. When it gives up, the waiter behind it takes what is available at once.
#[tokio::test]
async fn a_front_that_gives_up_leaves_the_available_permits_to_the_next() {
    for wait in [None, Some(300 * MS)] {
        let scene = Scene::start();
        let locks = scene.client_with(without_polls()).await;
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
    let scene = Scene::start();
    let locks = scene.client_with(without_polls()).await;
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

/// The permit of a client that died: no message comes, and the waiter knows when the lease ends. So it attempts then, and not all the time
/// while the slack passes.
#[tokio::test]
async fn a_permit_that_nobody_renews_comes_back_when_its_lease_ends() {
    let scene = Scene::start();
    let locks = scene.client_with(without_polls()).await;
    let semaphore = locks.semaphore("a", 2);
    let _held = semaphore.acquire().await.unwrap();
    let lease = SECOND;
    let dead = semaphore.clone().with(&crate::support::fixed(lease)).acquire().await.unwrap();
    dead.leak();
    let before = scene.server.scripts();
    let (permit, waited) = timed(semaphore.acquire()).await;
    assert!(waited >= lease && waited < lease + 5 * SECOND, "{waited:?}");
    // When it came, when it had subscribed, and at the end. A record of the wait is written and removed beside.
    let scripts = scene.server.scripts() - before;
    assert!(scripts <= 8, "{scripts} scripts for one wait");
    permit.unwrap().unlock().await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    drop(_held);
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

/// Guarantee 9. Ten thousand waiters cost one subscription, and as many attempts as permits come back.
#[tokio::test]
async fn ten_thousand_waiters_cost_one_subscription_and_one_attempt_for_each_permit() {
    const WAITERS: u64 = 10_000;
    let scene = Scene::start();
    let locks = scene.client_with(without_polls()).await;
    let semaphore = locks.semaphore("a", 2);
    let held = semaphore.acquire_many(2).await.unwrap();
    let first = queued(&scene, &semaphore, 1).await;
    let before = scene.server.scripts();
    let tasks: Vec<_> = (1..WAITERS)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().await.unwrap().unlock().await.unwrap() })
        })
        .collect();
    sleep(300 * MS).await;
    assert_eq!(scene.server.channels(), ["redisson_sc:{a}"]);
    assert!(scene.server.scripts() <= before + 2, "those behind the front ask nothing");
    held.unlock().await.unwrap();
    soon(first).await.unwrap().unlock().await.unwrap();
    for task in tasks {
        tokio::time::timeout(120 * SECOND, task).await.expect("in time").unwrap();
    }
    // An attempt and a release for each; some attempts come too early, because two permits circulate.
    let scripts = scene.server.scripts() - before;
    assert!(scripts <= 2 * WAITERS + WAITERS / 2, "{scripts} scripts for {WAITERS} waiters");
    println!("{scripts} scripts for {WAITERS} waiters");
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks]).await;
}
