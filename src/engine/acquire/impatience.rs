//! How long a writer lets new readers in while it waits.

use std::time::Duration;

use crate::clock::{self, Moment};
use crate::engine::handle::Handle;
use crate::protocol::Waits;

/// How far a writer is from stopping new readers. A lock of several members stops none.
#[derive(Clone, Copy)]
pub(super) enum Impatience {
    /// It was not refused, or it never stops readers.
    None,
    /// Its patience began with the first refusal.
    From(Moment),
    /// It told the server. Later attempts tell it again, because the intent can end before the wait.
    Shown,
}

impl Impatience {
    /// An attempt was refused.
    pub(super) fn refused(&mut self, handle: &Handle, at: Moment) {
        if let ([only], Self::None) = (&handle.members[..], &self)
            && only.lock.protocol.stops_readers()
            && !handle.config().writer_patience().is_zero()
        {
            *self = Self::From(at);
        }
    }

    /// How long it still lets new readers in. `None`: the time of the next attempt does not depend on that.
    pub(super) fn left(self, handle: &Handle) -> Option<Duration> {
        let Self::From(since) = self else { return None };
        Some(handle.config().writer_patience().saturating_sub(clock::now().since(since)))
    }

    /// What the next attempt of a call that waits does if another owner holds the lock.
    pub(super) fn waits(&mut self, handle: &Handle) -> Waits {
        if self.left(handle).is_some_and(|left| left.is_zero()) {
            *self = Self::Shown;
        }
        if self.is_shown() { Waits::Long } else { Waits::Yes }
    }

    /// Whether the server was perhaps told to stop new readers.
    pub(super) const fn is_shown(self) -> bool {
        matches!(self, Self::Shown)
    }
}
