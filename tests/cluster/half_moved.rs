//! A slot of which some keys have moved, and others have not.

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper_testkit::Cluster;
use tokio::time::Instant;

use crate::cluster::{client_with, end};
use crate::support::{SECOND, listens, patient, poll_until, renewed, soon, waiter, woken_by_message};

/// Guarantee 7. The master that has the slot lacks the keys of some locks, so these are renewed one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_hold_in_a_half_moved_slot_is_renewed() {
    const LEASE: Duration = Duration::from_secs(3);
    let group = Cluster::start(3, 0);
    let locks = client_with(&group, patient().watchdog_lease(LEASE)).await;
    let names: Vec<String> = (0..20).map(|number| format!("{number}{{tag}}")).collect();
    let guards = join_all(names.iter().map(async |name| locks.rlock(name).lock().await.unwrap())).await;
    let slot = group.slot_of("tag");
    let from = group.master_of(slot);
    let to = (from + 1) % 3;
    group.open_slot(slot, to);
    for name in names.iter().step_by(2) {
        group.move_key(name, to);
    }
    let start = Instant::now();
    while start.elapsed() < 2 * LEASE {
        join_all(guards.iter().map(renewed)).await;
    }
    assert!(group.servers[from].errors("ASK") > 0, "a batch was refused");
    assert_eq!((group.keys_in(from, slot).len(), group.keys_in(to, slot).len()), (10, 10));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    end(&group, [&locks]).await;
}

/// Guarantee 17. An acquire that waits for a replica goes where the slot is under way to, and waits there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_waits_for_a_replica_is_sent_on() {
    let group = Cluster::start(3, 1);
    let config = patient().sync_replicas(1).retry_timeout(2 * SECOND);
    let locks = client_with(&group, config).await;
    let slot = group.slot_of("a");
    let from = group.master_of(slot);
    let to = (from + 1) % 3;
    group.open_slot(slot, to);
    let guard = soon(locks.rlock("a").lock()).await.unwrap();
    assert!(group.servers[from].errors("ASK") > 0, "the acquire was sent on");
    assert_eq!(group.keys_in(to, slot), ["a"]);
    assert_eq!(group.keys_in(to + 3, slot), ["a"], "the replica has it");
    guard.unlock().await.unwrap();
    group.close_slot(slot, to);
    soon(locks.rlock("a").lock()).await.unwrap().unlock().await.unwrap();
    end(&group, [&locks]).await;
}

/// Guarantee 8. The lock has moved, and those who wait listen where it was. The node that releases it reaches nobody, and the unlock is
/// dropped before it tells them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_unlock_in_a_half_moved_slot_wakes_the_waiter() {
    let group = Cluster::start(3, 0);
    let client = async || client_with(&group, patient().safety_poll(3_600 * SECOND)).await;
    let (locks, other) = (client().await, client().await);
    let slot = group.slot_of("a");
    let from = group.master_of(slot);
    let to = (from + 1) % 3;
    let told = || group.servers[from].calls("spublish");
    // On a busy machine, the client can tell them before this test sees the release. Then it tries again.
    for round in 0.. {
        assert!(round < 20, "each unlock told them before it could be dropped");
        let guard = locks.rlock("a").lock().await.unwrap();
        let waiting = waiter(other.rlock("a"));
        listens(&group.servers[from]).await;
        group.open_slot(slot, to);
        group.move_key("a", to);
        let before = told();
        let mut unlocking = Box::pin(guard.unlock());
        poll_until(&mut unlocking, || group.keys_in(to, slot).is_empty()).await;
        let is_dropped_first = told() == before;
        drop(unlocking);
        woken_by_message(waiting).await.unlock().await.unwrap();
        group.close_slot(slot, from);
        if is_dropped_first {
            break;
        }
    }
    end(&group, [&locks, &other]).await;
}
