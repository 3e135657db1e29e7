//! What every type of lock has to do, for each of them.
//!
//! A type takes part through a [`Fixture`]: how to make a handle of it, and of its rival, the lock of the same name
//! that excludes it. A new type is one more line at the end of this file.

#![allow(missing_docs, unreachable_pub, reason = "a test")]

#[path = "../support/mod.rs"]
mod support;

mod cancellation;
mod concurrency;
mod leases;
mod ownership;
mod waiting;

use std::time::Duration;

use lockkeeper::LockClient;
use support::fixture::{
    FairLocks, FencedLocks, Fixture, Lending, MultiLocks, RLocks, ReadLocks, SingleMultiLocks,
    SingleRedLocks, WriteLocks,
};
use support::{Scene, patient};

/// A client whose watchdog lease is this long.
async fn client_with_lease(scene: &Scene, lease: Duration) -> LockClient {
    scene.client_with(patient().watchdog_lease(lease)).await
}

macro_rules! conformance {
    ($($kind:ident: $fixture:ty { $($module:ident: $($test:ident)*;)* })*) => {
        $(mod $kind {
            $($(
                #[tokio::test]
                async fn $test() {
                    crate::$module::$test::<$fixture>().await;
                }
            )*)*
        })*
    };
    (lent: $($kind:ident: $fixture:ty;)*) => {
        mod lent {
            conformance! { $($kind: $fixture {
                ownership: an_owner_enters_again_by_name;
                leases:
                    entering_again_and_leaving_never_shortens_the_lease
                    a_watchdog_hold_and_a_fixed_lease_do_not_shorten_each_other;
            })* }
        }
    };
    ($($kind:ident: $fixture:ty;)*) => {
        conformance! { $($kind: $fixture {
            ownership:
                a_lock_is_free_held_and_free_again
                a_rival_does_not_get_in
                two_handles_are_two_owners
                a_handle_enters_again
                only_the_owner_is_told_that_it_holds
                only_the_owner_releases
                a_hold_that_is_gone_is_not_held
                force_unlock_ends_the_hold_and_wakes_a_waiter
                what_is_dropped_is_free_for_the_same_handle_at_once
                inspect_tells_who_holds;
            leases:
                the_lease_is_what_was_asked_for
                a_fixed_lease_ends
                a_watchdog_lease_does_not_end
                a_lease_that_is_leaked_ends
                a_longest_hold_ends
                a_longest_hold_begins_with_the_grant
                a_lease_can_be_extended
                run_stops_the_work_when_the_lock_is_lost
                the_locks_of_a_client_that_is_gone_end;
            waiting:
                a_waiter_is_woken_by_the_release
                a_waiter_gives_up_after_its_time
                a_waiter_gets_a_lock_whose_lease_ended
                waiters_of_one_process_are_served_in_turn
                a_client_that_shuts_down_wakes_its_waiters
                without_a_server_a_wait_is_an_error;
            cancellation:
                a_dropped_lock_leaves_nothing
                a_dropped_wait_leaves_nothing
                a_dropped_try_leaves_nothing
                a_dropped_reentry_leaves_the_outer_hold
                a_dropped_unlock_releases
                a_dropped_inner_unlock_releases_one
                dropped_queries_leave_nothing
                drops_at_random_moments_under_load_leave_nothing
                shutdown_releases_what_was_dropped
                shutdown_tells_what_it_could_not_release
                a_guard_can_be_dropped_anywhere;
            concurrency:
                tasks_of_one_client_lose_no_update
                many_clients_lose_no_update
                many_locks_on_few_names_leave_no_subscription
                try_lock_and_unlock_never_disagree
                locks_survive_a_server_that_lost_its_data;
        })* }
    };
}

conformance! {
    fair: crate::FairLocks;
    fenced: crate::FencedLocks;
    multi: crate::MultiLocks;
    read: crate::ReadLocks;
    red: crate::SingleRedLocks;
    rlock: crate::RLocks;
    single: crate::SingleMultiLocks;
    write: crate::WriteLocks;
}

// What an owner lends is not part of another lock.
conformance! {
    lent:
    fair: crate::FairLocks;
    fenced: crate::FencedLocks;
    read: crate::ReadLocks;
    rlock: crate::RLocks;
    write: crate::WriteLocks;
}
