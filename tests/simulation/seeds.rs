//! Seeds that every test run tries: that they repeat, and those that found something in the engine.

use std::collections::BTreeMap;

use crate::oracle::Oracle;
use crate::plan::{Deployment, FaultKind, Kind, Mode, Options, Plan};
use crate::world;

fn run_drawn(seed: u64, options: &Options) -> world::Report {
    world::run(&Plan::draw(seed, options), false, &|_| {})
}

fn run(seed: u64, kind: Kind, mode: Option<Mode>) -> world::Report {
    run_drawn(seed, &Options { kinds: vec![kind], mode, ..Options::default() })
}

fn run_in(deployment: Deployment, seed: u64, kind: Kind, mode: Mode) -> world::Report {
    run_drawn(seed, &Options { kinds: vec![kind], mode: Some(mode), deployment, bursts: false })
}

fn assert_holds(seed: u64, kind: Kind, mode: Option<Mode>) {
    let report = run(seed, kind, mode);
    assert!(report.oracle.violations.is_empty(), "seed {seed}, {kind:?}: {:#?}", report.oracle.violations);
}

/// For a seed that was found among all kinds and modes.
fn assert_drawn_holds(seed: u64) {
    let violations = run_drawn(seed, &Options::default()).oracle.violations;
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
}

/// For a seed that was found among all kinds and modes of clusters.
fn assert_cluster_holds(seed: u64) {
    let options = Options { deployment: Deployment::Cluster, ..Options::default() };
    let violations = run_drawn(seed, &options).oracle.violations;
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
}

/// Also with another order of seeds on the same thread, which keeps its scripts.
#[test]
fn the_same_seed_has_the_same_trace() {
    let all = (0..).zip(Kind::ALL.iter().copied());
    let first: Vec<_> = all.map(|(seed, kind)| (seed, kind, run(seed, kind, None).hash)).collect();
    // A shutdown in the middle ends many calls at once.
    let run_drawn = |seed| run_drawn(seed, &Options::default()).hash;
    assert_eq!(run_drawn(90_042), run_drawn(90_042));
    for (seed, kind, hash) in first.into_iter().rev() {
        assert_eq!(run(seed, kind, None).hash, hash, "seed {seed}, {kind:?}");
    }
}

#[test]
fn worlds_of_each_kind_and_mode_keep_the_rules() {
    for kind in Kind::ALL {
        for mode in Mode::ALL {
            assert_holds(7, *kind, Some(*mode));
        }
    }
}

/// A call for a fair lock was dropped while its acquire was on the way, on the connection that waits for replicas. Its release on
/// the other connection overtook it.
#[test]
fn a_release_overtakes_no_acquire_that_waits_for_replicas() {
    assert_cluster_holds(1_795_916_059);
}

/// Many calls come together, and several go out in one command.
#[test]
fn worlds_with_small_limits_keep_the_rules() {
    for (seed, mode) in (30_000..).zip(Mode::ALL) {
        let options = Options { mode: Some(*mode), bursts: true, ..Options::default() };
        let Oracle { violations, counts, .. } = run_drawn(seed, &options).oracle;
        assert!(violations.is_empty(), "seed {seed}, {mode:?}: {violations:#?}");
        let together = counts.get("calls with others in a command").copied().unwrap_or_default();
        assert!(together > 20, "seed {seed}, {mode:?}: {counts:?}");
    }
}

/// Slots move, masters are replaced, and nodes and sentinels are silent.
#[test]
fn worlds_in_which_masters_are_replaced_keep_the_rules() {
    for deployment in [Deployment::Cluster, Deployment::Sentinels] {
        let mut counts = BTreeMap::<&str, u64>::new();
        let kinds = Kind::ALL.iter().filter(|kind| **kind != Kind::Red);
        for (seed, kind) in (0..).zip(kinds) {
            let mode = if seed % 3 == 2 { Mode::Gentle } else { Mode::Chaos };
            let Oracle { violations, counts: all, .. } = run_in(deployment, seed, *kind, mode).oracle;
            assert!(
                violations.is_empty(),
                "{deployment:?}, seed {seed}, {kind:?}, {mode:?}: {violations:#?}"
            );
            for (what, count) in all {
                *counts.entry(what).or_default() += count;
            }
        }
        let no_slots = (deployment == Deployment::Sentinels).then_some(&FaultKind::MoveSlot);
        for fault in FaultKind::CHANGES.iter().filter(|fault| Some(*fault) != no_slots) {
            assert!(counts.contains_key(fault.text()), "no {} in {deployment:?}: {counts:?}", fault.text());
        }
    }
}

/// Acquires wait for a replica, which then takes the place of its master without the last writes.
#[test]
fn a_replica_that_takes_over_has_the_holds_that_it_was_waited_for() {
    for deployment in [Deployment::Cluster, Deployment::Sentinels] {
        let options = Options { deployment, ..Options::default() };
        let Oracle { violations, counts, .. } = run_drawn(80_130, &options).oracle;
        assert!(violations.is_empty(), "{deployment:?}: {violations:#?}");
        assert!(counts.contains_key("holds that a replica had"), "{deployment:?}: {counts:?}");
    }
}

#[test]
fn the_same_seed_has_the_same_trace_if_masters_are_replaced() {
    let run = |seed, deployment| run_in(deployment, seed, Kind::RLock, Mode::Chaos).hash;
    for deployment in [Deployment::Cluster, Deployment::Sentinels] {
        let first = [0, 1].map(|seed| run(seed, deployment));
        assert_eq!([1, 0].map(|seed| run(seed, deployment)), [first[1], first[0]]);
    }
}

/// A node that took the place of its master between two questions gave its slots the number of an earlier claim. A client that
/// reached only the old master afterwards turned back to it.
#[test]
fn a_master_that_is_asked_while_it_is_promoted_claims_its_slots_anew() {
    assert_cluster_holds(30_499);
}

/// A timed `MultiLock` whose member was refused reported that no server had answered. And waiters of several processes kept
/// acquiring and releasing the free members, without a pause.
#[test]
fn a_refused_multi_lock_waits_and_reports_that_it_was_refused() {
    for seed in [5, 97] {
        assert_holds(seed, Kind::Multi, None);
    }
}

/// A `MultiLock` whose attempt on one member had an unknown outcome went to the end of that member's queue. The waiters in front
/// of it were refused by what the attempt had been granted, for a whole lease.
#[test]
fn a_multi_lock_behind_others_finds_out_what_its_attempt_was_granted() {
    assert_drawn_holds(111_138);
}

/// A `MultiLock` whose other member was on a server without memory told this to the queue for the first member. Timed calls for the
/// first member alone, on a server with memory, then failed with `OutOfMemory`.
#[test]
fn the_fault_of_another_member_is_not_reported_by_others() {
    assert_drawn_holds(235_598);
}

/// A majority was granted without the member for which the owner had waited. Its release did not wake the others that waited for
/// this member.
#[test]
fn the_waiters_for_a_member_that_was_not_granted_wait_for_another() {
    assert_drawn_holds(104_531);
}

/// The lease of a permit ended while another permit was just granted, and the next waiter knew nothing of that end.
#[test]
fn who_waits_for_a_permit_asks_when_the_next_one_ends() {
    assert_drawn_holds(1_795_686_493);
}

/// A waiter came to the front, and polled anew from then on. So those behind it attempted before it.
#[test]
fn a_waiter_that_comes_to_the_front_keeps_the_order() {
    assert_drawn_holds(1_795_695_585);
}

/// A hold had ended when it was leaked, and stayed on the server for the lease of another hold of its owner.
#[test]
fn a_hold_that_is_leaked_after_its_end_stays_no_longer() {
    assert_drawn_holds(1_795_696_491);
}

/// Nobody polled the front. Of those behind it, one that wanted two permits always attempted first, and was refused.
#[test]
fn a_call_for_two_permits_does_not_keep_others_from_attempting() {
    assert_drawn_holds(1_795_702_413);
}

/// An acquire took for most of a lease. The first renewal came after the end of the hold, so the client released the lock, which was to stay
/// held.
#[test]
fn a_late_grant_is_kept_for_its_minimum_hold_time() {
    assert_drawn_holds(1_800_000_666);
}

/// The lease of a call had ended that could not leave the queue, and its place had not. The shutdown reported success.
#[test]
fn a_shutdown_tries_to_leave_a_queue_for_as_long_as_a_place_lasts() {
    assert_holds(2_001_000_059, Kind::Fair, None);
}

/// A heartbeat was on the way for seconds, and renewed places that had ended: a shutdown had left them behind.
#[test]
fn a_late_heartbeat_keeps_no_place() {
    assert_holds(2_000_600_108, Kind::Fair, None);
}

/// The clock of a server was set back beside a hold that was passed on, and forward beside a call that was behind another one.
#[test]
fn worlds_in_which_clocks_are_set_keep_the_rules() {
    for seed in [70_111, 70_122] {
        let options = Options { bursts: true, ..Options::default() };
        let violations = run_drawn(seed, &options).oracle.violations;
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    }
}
