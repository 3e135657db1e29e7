//! A slot of which some keys have moved, and others have not.

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::LockClient;
use lockkeeper_testkit::Cluster;
use tokio::time::Instant;

use crate::cluster::{client, client_with, end};
use crate::support::fixture::{FairLocks, FencedLocks, Fixture, RLocks, ReadLocks, WriteLocks};
use crate::support::{SECOND, eventually, fixed, patient, quiet, renewed, soon, waiter};

/// Clients whose calls soon fail while no server can run them.
async fn brief_clients(group: &Cluster) -> [LockClient; 2] {
    let client = || client_with(group, patient().command_timeout(2 * SECOND));
    [client().await, client().await]
}

/// Moves one half of the keys of a lock that is held, and checks that no rival is granted it.
async fn nobody_else_is_granted<F: Fixture>(
    group: &Cluster,
    [ours, theirs]: [&LockClient; 2],
    name: &str,
    lock_moves: bool,
) {
    let guard = F::lock(ours, name).lock().await.unwrap();
    let slot = group.slot_of(name);
    let from = group.master_of(slot);
    let to = (from + 1) % 3;
    group.open_slot(slot, to);
    for key in group.keys_in(from, slot) {
        if (key == name) == lock_moves {
            group.move_key(&key, to);
        }
    }
    assert_eq!(group.keys_in(to, slot).contains(&name.to_owned()), lock_moves);
    // An error says that the server cannot tell now.
    let tried = soon(F::rival(theirs, name).try_lock_for(SECOND)).await;
    match &tried {
        Ok(granted) => assert!(granted.is_none(), "{name} was granted while it is held"),
        Err(error) => assert!(error.is_transient(), "{name}: {error}"),
    }
    assert!(!guard.is_lost());
    group.close_slot(slot, to);
    assert!(F::rival(theirs, name).try_lock().await.unwrap().is_none(), "{name} is held");
    guard.unlock().await.unwrap();
    let guard = soon(F::rival(theirs, name).lock()).await.unwrap();
    guard.unlock().await.unwrap();
}

/// Guarantee 1. A script that followed the hash alone would find no key of the reader, and take it for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_is_not_granted_while_only_the_hash_of_a_reader_has_moved() {
    let group = Cluster::start(3, 0);
    let [ours, theirs] = brief_clients(&group).await;
    let refused = group.errors("ASK");
    nobody_else_is_granted::<ReadLocks>(&group, [&ours, &theirs], "a", true).await;
    assert!(group.errors("ASK") > refused, "a server has only a part of the lock");
    end(&group, [&ours, &theirs]).await;
}

/// Guarantee 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_is_granted_twice_while_it_is_half_moved() {
    let group = Cluster::start(3, 0);
    let [ours, theirs] = brief_clients(&group).await;
    let both = [&ours, &theirs];
    nobody_else_is_granted::<FairLocks>(&group, both, "fair", true).await;
    nobody_else_is_granted::<FencedLocks>(&group, both, "fenced 1", true).await;
    nobody_else_is_granted::<FencedLocks>(&group, both, "fenced 2", false).await;
    nobody_else_is_granted::<ReadLocks>(&group, both, "read", false).await;
    nobody_else_is_granted::<RLocks>(&group, both, "rlock 1", true).await;
    nobody_else_is_granted::<RLocks>(&group, both, "rlock 2", false).await;
    nobody_else_is_granted::<WriteLocks>(&group, both, "write", true).await;
    end(&group, both).await;
}

/// The calls of a reader are repeated until the slot is closed. Then they do what they should.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_half_moved_releases_when_the_slot_is_closed() {
    let group = Cluster::start(3, 0);
    let ours = client(&group).await;
    let guard = ours.read_write_lock("a").into_read().lock().await.unwrap();
    let slot = group.slot_of("a");
    let from = group.master_of(slot);
    let to = (from + 1) % 3;
    group.open_slot(slot, to);
    group.move_key("a", to);
    assert_eq!((group.keys_in(from, slot).len(), group.keys_in(to, slot).len()), (1, 1));
    let refused = group.errors("ASK");
    let releasing = tokio::spawn(guard.unlock());
    eventually("it is refused", || group.errors("ASK"), |now| *now > refused + 1).await;
    assert!(!releasing.is_finished());
    group.close_slot(slot, to);
    soon(releasing).await.unwrap().unwrap();
    end(&group, [&ours]).await;
}

/// Guarantee 8. The lock has moved, and those who wait for it still listen at the node that has the slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_a_slot_that_moves_wakes_a_waiter() {
    for is_forced in [false, true] {
        let group = Cluster::start(3, 0);
        let config = || patient().safety_poll(60 * SECOND);
        let [ours, theirs] = [client_with(&group, config()).await, client_with(&group, config()).await];
        let guard = ours.rlock("a").with(&fixed(60 * SECOND)).lock().await.unwrap();
        let waiting = waiter(theirs.rlock("a"));
        eventually("the waiter listens", || group.channels(), |channels| channels.len() == 1).await;
        // The attempt that follows the subscription.
        quiet(|| group.servers.iter().map(|server| server.calls("evalsha")).sum()).await;
        let slot = group.slot_of("a");
        let to = (group.master_of(slot) + 1) % 3;
        group.open_slot(slot, to);
        group.move_key("a", to);
        let asked = group.errors("ASK");
        if is_forced {
            assert!(ours.rlock("a").force_unlock().await.unwrap());
        } else {
            guard.unlock().await.unwrap();
        }
        assert!(group.errors("ASK") > asked, "the release was redirected");
        soon(waiting).await.unwrap().unlock().await.unwrap();
        group.close_slot(slot, to);
        end(&group, [&ours, &theirs]).await;
    }
}

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
