//! How long a writer lets new readers in while it waits.

use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::engine::handle::Handle;
use crate::protocol::IfHeld;

/// How long a writer lets new readers in. Readers that are there leave within a few milliseconds, if their sections are short, and then
/// nobody had to be stopped. If their sections are long, the writer waits for them anyway, and this time does not matter.
const PATIENCE: Duration = Duration::from_millis(20);

/// How far a writer is from stopping new readers. A lock of several members stops none.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriterIntent {
    /// When its patience began: with the first refusal, and again with each wake-up after it told the server. So the readers that a
    /// release wakes enter together, although other writers still wait. `None`: it was not refused, it never stops readers, or it told
    /// the server and was not woken since.
    since: Option<Moment>,
    /// The server was perhaps told to stop new readers.
    is_shown: bool,
    /// The last attempt told the server.
    tells: bool,
}

impl WriterIntent {
    /// An attempt was refused.
    pub(crate) fn refused(&mut self, handle: &Handle, at: Moment) {
        if let [only] = &handle.members[..]
            && only.lock.protocol.stops_readers()
            && !handle.config().writer_turn().is_zero()
            && !self.tells
        {
            self.since.get_or_insert(at);
        }
    }

    /// How long it still lets new readers in. `None`: the time of the next attempt does not depend on that.
    pub(crate) fn left(self) -> Option<Duration> {
        let since = self.since?;
        Some(PATIENCE.saturating_sub(clock::now().since(since)))
    }

    /// What the next attempt of a call that waits does if another owner holds the lock.
    pub(crate) fn if_held(&mut self) -> IfHeld {
        self.tells = self.left().is_some_and(|left| left.is_zero());
        if self.tells {
            self.since = None;
            self.is_shown = true;
        }
        match *self {
            Self { tells: true, .. } => IfHeld::BlockReaders,
            Self { is_shown: true, .. } => IfHeld::KeepBlocking,
            _ => IfHeld::Queue,
        }
    }

    /// Whether the server was perhaps told to stop new readers.
    pub(crate) const fn is_shown(self) -> bool {
        self.is_shown
    }
}
