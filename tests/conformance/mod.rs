//! What every type of lock guarantees, tested for each of them, and for permits and claimed names as far as these have it.
//!
//! A type takes part through a [`Subject`], which makes a handle of it, and a handle of its rival: what has the same name and excludes
//! it. A new type is one more line at the end of this file.

#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod cancellation;
mod concurrency;
mod leases;
mod ownership;
mod waiting;

use std::time::Duration;

use crate::support::fixture::{
    ClaimedNames, FairLocks, FencedLocks, Fixture, Lending, MultiLocks, Permits, RLocks, ReadLocks,
    SingleMultiLocks, SingleRedLocks, Subject, WriteLocks,
};
use crate::support::{Scene, patient};
use lockkeeper::LockClient;

/// A client whose watchdog lease is this long.
async fn client_with_lease(scene: &Scene, lease: Duration) -> LockClient {
    scene.client_with(patient().watchdog_lease(lease)).await
}

macro_rules! tests {
    ($fixture:ty { $($module:ident: $($test:ident)*;)* }) => {
        $($(
            #[tokio::test]
            async fn $test() {
                crate::conformance::$module::$test::<$fixture>().await;
            }
        )*)*
    };
}

/// What locks, permits and claimed names have in common.
macro_rules! of_all {
    ($fixture:ty) => {
        tests! { $fixture {
            ownership:
                a_rival_is_refused
                what_a_call_costs;
            leases:
                a_fixed_lease_ends
                a_watchdog_lease_does_not_end
                what_a_hold_costs
                a_hold_ends_after_max_hold
                a_lock_stays_held_for_its_least_time
                run_stops_the_work_when_the_lock_is_lost
                what_a_second_time_does
                the_locks_of_a_client_that_shut_down_expire;
            waiting:
                a_waiter_is_woken_by_the_release
                a_wait_times_out
                a_waiter_gets_a_lock_whose_lease_ended;
            concurrency:
                locks_work_again_after_the_server_lost_its_data;
        } }
    };
}

/// The same for what one can wait for.
macro_rules! of_waits {
    ($fixture:ty) => {
        tests! { $fixture {
            ownership:
                a_holder_hears_that_an_owner_waits;
            waiting:
                waiters_of_one_process_are_served_in_order
                a_client_that_shuts_down_wakes_its_waiters
                without_a_server_a_wait_is_an_error;
            concurrency:
                tasks_of_one_client_lose_no_update
                many_clients_lose_no_update;
        } }
    };
}

macro_rules! locks {
    ($($kind:ident: $fixture:ty;)*) => {
        $(mod $kind {
            of_all! { $fixture }
            of_waits! { $fixture }
            tests! { $fixture {
                ownership:
                    a_lock_is_free_held_and_free_again
                    a_handle_reenters
                    only_the_owner_releases
                    releasing_a_hold_that_is_gone_returns_not_held
                    force_unlock_ends_the_hold_and_wakes_a_waiter
                    a_dropped_guard_frees_the_lock_for_its_handle_at_once
                    inspect_shows_the_holder;
                leases:
                    the_lease_is_what_was_asked_for
                    a_leaked_lease_ends
                    max_hold_counts_from_the_grant
                    a_lease_can_be_extended;
                cancellation:
                    a_dropped_call_leaves_nothing
                    shutdown_releases_what_was_dropped
                    shutdown_reports_what_it_could_not_release
                    a_guard_can_be_dropped_anywhere;
            } }
        })*
    };
}

/// `Owner` makes no multi locks or red locks.
macro_rules! lent {
    ($($kind:ident: $fixture:ty;)*) => {
        $(mod $kind {
            tests! { $fixture {
                ownership: an_owner_reenters_by_name;
                leases:
                    reentry_and_partial_release_never_shorten_the_lease
                    a_watchdog_hold_and_a_fixed_lease_do_not_shorten_each_other;
            } }
        })*
    };
}

mod claim {
    of_all! { crate::conformance::ClaimedNames }
    tests! { crate::conformance::cancellation::Jobs { cancellation: a_dropped_call_leaves_nothing; } }
}

mod permit {
    of_all! { crate::conformance::Permits }
    of_waits! { crate::conformance::Permits }
    tests! { crate::conformance::cancellation::Batch<1> { cancellation: a_dropped_call_leaves_nothing; } }
}

mod permits {
    tests! { crate::conformance::cancellation::Batch<2> { cancellation: a_dropped_call_leaves_nothing; } }
}

locks! {
    fair: crate::conformance::FairLocks;
    fenced: crate::conformance::FencedLocks;
    multi: crate::conformance::MultiLocks;
    read: crate::conformance::ReadLocks;
    red: crate::conformance::SingleRedLocks;
    rlock: crate::conformance::RLocks;
    single: crate::conformance::SingleMultiLocks;
    write: crate::conformance::WriteLocks;
}

mod lent {
    lent! {
        fair: crate::conformance::FairLocks;
        fenced: crate::conformance::FencedLocks;
        read: crate::conformance::ReadLocks;
        rlock: crate::conformance::RLocks;
        write: crate::conformance::WriteLocks;
    }
}
