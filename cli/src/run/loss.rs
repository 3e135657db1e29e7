//! How the lock of a command was lost.

use std::time::Duration;

use super::clock::Moment;
use crate::args::Run;

/// How the lock was lost.
pub(super) struct Loss {
    pub(super) text: String,
    /// The command was stopped because of it.
    pub(super) stopped: bool,
}

impl Loss {
    pub(super) fn new(text: &str, stopped: bool) -> Self {
        Self { text: text.to_owned(), stopped }
    }
}

/// Why a lock ends, for the user.
#[derive(Clone, Copy)]
pub(super) struct Causes {
    acquired_at: Moment,
    has_lease: bool,
    longest: Option<Duration>,
}

/// The command is stopped by so much before the end of a longest hold, at most: the margin of the library is added to that.
const BEFORE: Duration = Duration::from_secs(1);

impl Causes {
    /// For a lock that was acquired just now.
    pub(super) fn of(run: &Run) -> Self {
        Self { acquired_at: Moment::now(), has_lease: run.lease.is_some(), longest: run.max_hold }
    }

    /// Why the command may run only until this moment.
    pub(super) fn of_end(self, until: Moment) -> &'static str {
        let is_longest =
            |longest: Duration| until.plus(BEFORE.min(longest / 4)) >= self.acquired_at.plus(longest);
        if self.longest.is_some_and(is_longest) {
            "the time of --max-hold is over"
        } else if self.has_lease {
            "the time of --lease is over"
        } else {
            "the lock could not be renewed in time"
        }
    }

    /// The command goes on although nobody can stop it. What becomes of the lock?
    pub(super) fn of_survivor(self) -> &'static str {
        if self.has_lease || self.longest.is_some() {
            "a process of the command cannot be killed, and the lock ends before that process"
        } else {
            "a process of the command cannot be killed: the lock stays held until that process ends"
        }
    }

    /// Why the keeper says that the lock is gone.
    pub(super) fn of_loss(self, was_removed: bool, until: Moment) -> &'static str {
        if was_removed {
            "the server no longer has the lock: somebody released or deleted it, or the server lost its data"
        } else {
            self.of_end(until)
        }
    }
}
