//! Promises 15 and 17: what a server can do to its clients, and that it was really done.

#![allow(unreachable_pub, reason = "a test")]

#[path = "../support/mod.rs"]
mod support;

mod outages;
mod refusals;

use lockkeeper::LockConfigBuilder;
use outages::*;
use refusals::*;
use support::fixture::for_each_lock;
use support::{MS, Server, patient};

/// Of answers that refuse; not of those that are late.
fn impatient() -> LockConfigBuilder {
    patient().retry_timeout(400 * MS)
}

/// The server answers this command with this error code.
fn answers(server: &Server, command: &[&str], code: &str) -> bool {
    server.try_run::<redis::Value>(command).is_err_and(|error| error.code() == Some(code))
}

for_each_lock! {
    scripts_that_were_flushed_are_loaded_again
    killed_connections_are_replaced
    a_server_that_restarts_with_its_data_keeps_the_locks
    calls_ride_out_a_restart
    a_paused_server_delays_and_loses_nothing
    without_memory_held_locks_live_and_end_and_new_ones_are_refused
    a_replica_grants_nothing
    a_server_that_loads_its_data_is_waited_for
    a_server_that_is_busy_with_a_script_is_waited_for
    a_connection_to_a_replica_is_made_anew
    under_load_no_fault_lets_two_in_or_leaves_a_lock
}
