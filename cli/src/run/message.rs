//! What the front and the keeper tell each other, one line of JSON each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::Moment;
use crate::args::{Connection, Run};
use crate::exit::Failure;

/// From the front to the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is one for each run")]
pub(super) enum Order {
    /// Acquire a lock. This is the first order.
    Acquire { connection: Connection, run: Run },
    /// The process group of the command, which waits at its gate.
    Guard(i32),
    /// The command has ended.
    Release,
}

/// From the keeper to the front.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The user is to read this.
    Notice(String),
    /// The lock is held.
    Held(Hold),
    /// The keeper stops the command if the front does not: the command can run.
    Guarded,
    /// The command may run until this moment. Then it has to be gone.
    Until(Moment),
    /// The lock is gone: the command must not run any more.
    Lost {
        /// The keeper has killed it.
        killed: bool,
        /// The lease had not ended.
        was_removed: bool,
    },
    /// The lock was released.
    Released(Release),
    /// There is no lock.
    Failed(Failure),
}

/// A lock that was acquired.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) until: Moment,
    /// As `lockkeeper show` names it.
    pub(super) owner: String,
    /// How long the command has between `SIGTERM` and `SIGKILL`.
    pub(super) grace: Duration,
    pub(super) token: Option<u64>,
}

/// How a lock was released.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Release {
    /// The server still had it.
    pub(super) was_held: bool,
    /// The keeper had killed the command before.
    pub(super) killed: bool,
    /// Why it is not known whether the server released it.
    pub(super) problem: Option<String>,
}
