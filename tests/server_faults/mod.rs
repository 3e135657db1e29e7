//! Guarantees 15 and 17: faults of a server. Each test checks that the fault really happened.

#![allow(unreachable_pub, reason = "a test")]

mod outages;
mod refusals;

use crate::support::fixture::for_each_lock;
use crate::support::{MS, Server, patient};
use lockkeeper::LockConfigBuilder;
use outages::*;
use refusals::*;

/// For tests of refusals, which arrive at once. Late replies need longer time-outs.
fn impatient() -> LockConfigBuilder {
    patient().retry_timeout(400 * MS)
}

/// Returns whether the server answers this command with this error code.
fn answers(server: &Server, command: &[&str], code: &str) -> bool {
    server.try_run::<redis::Value>(command).is_err_and(|error| error.code() == Some(code))
}

for_each_lock! {
    fair: FairLocks, read: ReadLocks, rlock: RLocks => {
        scripts_that_were_flushed_are_loaded_again
        out_of_memory_refuses_new_locks_but_not_renewal_or_release
        a_replica_grants_nothing
        acquires_wait_for_a_server_that_loads_its_data
        acquires_wait_for_a_server_that_is_busy_with_a_script
    }
}
