//! Guarantee 19 for permits: a client hands a permit to its next waiter without a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockkeeper::{Error, LockConfigBuilder, Semaphore};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::waiting::queued;
use super::{end, is_whole};
use crate::support::{MS, SECOND, Scene, eventually, patient, poll_until, soon, throughout, timed};

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

/// Waiters are cancelled, or run out of time, at the moment at which a permit is handed to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_leave_hide_no_permit() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(hands_over()).await, scene.client().await);
    let semaphore = locks.semaphore("a", 2);
    let inside = Arc::new(AtomicI64::new(0));
    let (got, left) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks = (0..8_u64).map(|number| {
        let (semaphore, inside) = (semaphore.clone(), Arc::clone(&inside));
        let (got, left) = (Arc::clone(&got), Arc::clone(&left));
        tokio::spawn(async move {
            for round in 0..150_u64 {
                let patience = Duration::from_micros((number * 37 + round * 101) % 900);
                let permit = match number % 3 {
                    0 => Some(semaphore.acquire().await.unwrap()),
                    1 => timeout(patience, semaphore.acquire()).await.ok().transpose().unwrap(),
                    _ => semaphore.try_acquire_for(patience).await.unwrap(),
                };
                let Some(permit) = permit else {
                    left.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 2, "more are inside than permits");
                yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                got.fetch_add(1, Ordering::Relaxed);
                if round % 2 == 0 {
                    drop(permit);
                } else {
                    permit.unlock().await.unwrap();
                }
            }
        })
    });
    soon(join_all(tasks)).await.into_iter().for_each(Result::unwrap);
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert!(count(&got) > 400 && count(&left) > 20, "{got:?} sections, {left:?} left");
    soon(other.semaphore("a", 2).acquire_many(2)).await.unwrap().unlock().await.unwrap();
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks, other]).await;
}

/// The waiter in front is a future that nobody polls. The permit is released for others after a moment.
#[tokio::test]
async fn a_permit_that_nobody_takes_is_released() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(hands_over()).await, scene.client().await);
    let semaphore = locks.semaphore("a", 1);
    let held = semaphore.acquire().await.unwrap();
    let before = scene.server.scripts();
    let mut unpolled = Box::pin(semaphore.acquire());
    poll_until(&mut unpolled, || scene.server.scripts() >= before + 2).await;
    locks.inspect("a").await.unwrap(); // so the answers have arrived
    assert!((&mut unpolled).now_or_never().is_none());
    held.unlock().await.unwrap();
    let (permit, took) = timed(other.semaphore("a", 1).acquire()).await;
    assert!(took < 2 * SECOND, "{took:?}: without a message it would take three seconds");
    permit.unwrap().unlock().await.unwrap();
    soon(unpolled).await.unwrap().unlock().await.unwrap();
    is_whole(&scene, &semaphore, 1).await;
    drop(semaphore);
    end(scene, [locks, other]).await;
}

/// A permit that was removed and then handed over is told at its next renewal, or at its release.
#[tokio::test]
async fn a_permit_that_was_removed_is_told_to_whoever_has_it() {
    let scene = Scene::start();
    let lease = 3 * SECOND;
    let locks = scene.client_with(hands_over().watchdog_lease(lease)).await;
    let other = scene.client().await;
    let semaphore = locks.semaphore("a", 1);
    for waits in [true, false] {
        let held = semaphore.acquire().await.unwrap();
        let waiting = queued(&scene, &semaphore, 1).await;
        let id = held.id();
        held.unlock().await.unwrap();
        let next = soon(waiting).await.unwrap();
        assert_eq!(next.id(), id, "it was handed over");
        assert!(other.semaphore("a", 1).force_unlock(id).await.unwrap());
        let rival = other.semaphore("a", 1).try_acquire().await.unwrap().expect("it is free");
        if waits {
            let (_, waited) = timed(next.ended()).await;
            assert!(waited < lease * 2 / 3, "{waited:?}: only the end of its lease told it");
            drop(next);
        } else {
            assert!(matches!(next.unlock().await, Err(Error::NotHeld(_))));
        }
        rival.unlock().await.unwrap();
    }
    is_whole(&scene, &semaphore, 1).await;
    drop(semaphore);
    end(scene, [locks, other]).await;
}

/// While permits go round within a client, a smaller total takes effect, and other clients get permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smaller_total_and_other_clients_are_served_while_permits_go_round() {
    let scene = Scene::start();
    let clients = [scene.client().await, scene.client().await];
    let (is_over, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI64::new(3)));
    let inside = Arc::new(AtomicI64::new(0));
    let counts = clients.clone().map(|locks| {
        let count = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (semaphore, count) = (locks.semaphore("a", 3), Arc::clone(&count));
                let (inside, most, is_over) = (Arc::clone(&inside), Arc::clone(&most), Arc::clone(&is_over));
                tokio::spawn(async move {
                    while is_over.load(Ordering::Relaxed) == 0 {
                        let permit = semaphore.acquire().await.unwrap();
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now <= most.load(Ordering::SeqCst), "{now} are inside");
                        count.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        permit.unlock().await.unwrap();
                    }
                })
            })
            .collect();
        (count, tasks)
    });
    for total in [3, 1] {
        clients[0].semaphore("a", 3).resize(total).await.unwrap();
        let number = || scene.server.run::<i64>(&["GET", "a"]);
        eventually("as many came back", number, |&available| available >= 0).await;
        most.store(total.into(), Ordering::SeqCst);
        for _ in 0..10 {
            for (count, _) in &counts {
                let before = count.load(Ordering::Relaxed);
                eventually("it gets a turn", || count.load(Ordering::Relaxed), |&now| now > before + 10)
                    .await;
            }
        }
    }
    is_over.store(1, Ordering::Relaxed);
    for (_, tasks) in counts {
        soon(join_all(tasks)).await.into_iter().for_each(Result::unwrap);
    }
    is_whole(&scene, &clients[0].semaphore("a", 1), 1).await;
    end(scene, clients).await;
}

/// Options that only the server can grant: a lease of its own, or a longest hold.
#[tokio::test]
async fn permits_with_a_lease_of_their_own_are_granted_by_the_server() {
    let scene = Scene::start();
    let locks = scene.client_with(hands_over()).await;
    let plain = locks.semaphore("a", 1);
    let leased = plain.clone().with(&crate::support::fixed(20 * SECOND));
    for (first, second) in [(&plain, &leased), (&leased, &plain)] {
        let held = first.acquire().await.unwrap();
        let (id, waiting) = (held.id(), queued(&scene, second, 1).await);
        held.unlock().await.unwrap();
        let next = soon(waiting).await.unwrap();
        assert_ne!(next.id(), id);
        next.unlock().await.unwrap();
    }
    is_whole(&scene, &plain, 1).await;
    drop((plain, leased));
    end(scene, [locks]).await;
}

/// Tasks that drop their permits, at a shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_while_permits_go_round_leaves_none() {
    let scene = Scene::start();
    let keeper = scene.client().await;
    for _ in 0..10 {
        let locks = scene.client_with(hands_over()).await;
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let semaphore = locks.semaphore("a", 2);
                tokio::spawn(async move {
                    while let Ok(permit) = semaphore.acquire().await {
                        yield_now().await;
                        drop(permit);
                    }
                })
            })
            .collect();
        sleep(5 * MS).await;
        locks.shutdown().await.unwrap();
        soon(join_all(tasks)).await.into_iter().for_each(Result::unwrap);
        is_whole(&scene, &keeper.semaphore("a", 2), 2).await;
    }
    end(scene, [keeper]).await;
}
