//! What a run did, as the judge reads it. The tests under load of `tests/` write such histories, too, and have them judged.

use serde::{Deserialize, Serialize};

/// The types of locks, and semaphores, as `ls` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Examined {
    Rlock,
    Fair,
    Read,
    Write,
    Fenced,
    Semaphore,
}

/// The process that starts the workers.
pub(super) const MAIN: u32 = 0;

/// How many permits the semaphore has.
pub(super) const PERMITS: u32 = 2;

/// An event, and who did it or to whom it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Event {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub(super) at: u64,
    /// The number of a worker. A worker that replaces a killed one has another number. 0: the process that starts the workers.
    pub(super) process: u32,
    #[serde(flatten)]
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum What {
    /// The run begins.
    Began { lease_ms: u64 },
    /// A call begins to acquire a lock. `call` is a number of its process.
    Asked { call: u32, lock: Examined, number: u32 },
    /// The call returned a guard. Read in this order: the clock, then that the guard is not lost.
    Entered { call: u32, token: Option<u64> },
    /// The section did a step, in the same order as above.
    Worked { call: u32 },
    /// The guard told that it is lost.
    Told { call: u32 },
    /// The section is over, and the release begins. The guard was not lost, as above.
    Leaving { call: u32 },
    /// The release returned. `ok`: without an error.
    Left { call: u32, ok: bool },
    /// The call returned no guard, or was cancelled.
    GaveUp { call: u32 },
    /// The process runs. Of the process that starts the workers: the server answered, too.
    Awake,
    /// The worker is about to be killed.
    Killed,
    /// The worker is about to be stopped.
    Paused,
    /// The worker was continued.
    Resumed,
    /// No byte passes between the worker and the server from now on.
    Cut,
    /// Bytes pass again.
    Joined,
    /// The worker ended as it should.
    Ended,
    /// Another server than before is a master.
    FailedOver { server: String },
    /// What is left on the server after the end of all leases.
    LeftBehind { keys: Vec<String> },
}

/// So many locks there are of each type. The others go on while one is blocked by a dead holder.
pub(super) const LOCKS: u32 = 3;

/// The name of a lock. Both sides of a read-write lock have the same.
pub(super) fn name_of(lock: Examined, number: u32) -> String {
    let kind = match lock {
        Examined::Rlock => "rlock",
        Examined::Fair => "fair",
        Examined::Fenced => "fenced",
        Examined::Read | Examined::Write => "read-write",
        Examined::Semaphore => "semaphore",
    };
    format!("{kind}-{number}")
}
