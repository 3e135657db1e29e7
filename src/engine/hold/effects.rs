//! What a grant reports after its mutex was unlocked.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Hold;
use super::deadline::Deadline;
use crate::base::clock;
use crate::base::sync::nothing_is_locked;
use crate::telemetry::Renewed;

/// What became of the holds of a grant while its mutex was locked.
///
/// Reporting this runs code of the user: a `tracing` layer, a metrics recorder, the waker of a future. Such code can
/// call anything in this crate, so a mutex that is locked meanwhile would block the thread for ever. Dropping the last
/// reference to a hold runs such code, too, because it ends the hold's span.
#[must_use = "dropping it tells nothing: call `perform` with nothing locked"]
pub(crate) struct Effects<H> {
    holds: SmallVec<[(H, Fate); 1]>,
    /// How a renewal ended.
    pub(crate) renewed: Option<Renewed>,
    /// The lock is perhaps free, and perhaps no message says so.
    pub(crate) is_free: bool,
}

/// What became of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The hold left its grant. Its deadline had perhaps passed before.
    Left,
    /// The server no longer has the hold.
    Removed,
    /// The server no longer had the hold when it was released.
    Gone,
}

impl<H> Default for Effects<H> {
    fn default() -> Self {
        Self { holds: SmallVec::new(), renewed: None, is_free: false }
    }
}

impl<H: Deadline> Effects<H> {
    /// Records that a hold left its grant. Its deadline had perhaps passed before.
    pub(crate) fn left(&mut self, hold: H) {
        self.holds.push((hold, Fate::Left));
    }

    /// Records that the server no longer has this hold.
    pub(crate) fn loses(&mut self, mut hold: H) {
        hold.lose();
        self.holds.push((hold, Fate::Removed));
    }

    /// Records that the server no longer had this hold when it was released.
    pub(crate) fn was_gone(&mut self, mut hold: H) {
        hold.lose();
        self.holds.push((hold, Fate::Gone));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.renewed.is_none() && !self.is_free
    }

    #[cfg(test)]
    pub(crate) fn holds(&self) -> &[(H, Fate)] {
        &self.holds
    }
}

impl Effects<Arc<Hold>> {
    /// Reports what became of the holds. Call this with nothing locked.
    pub(crate) fn perform(self) {
        if self.holds.is_empty() {
            return;
        }
        nothing_is_locked();
        let now = clock::now();
        for (hold, fate) in &self.holds {
            match fate {
                Fate::Left if hold.is_given_back() => {}
                Fate::Left => _ = hold.is_found_lost(now),
                Fate::Removed => hold.tell_loss(now),
                Fate::Gone => hold.tell_gone(now),
            }
        }
    }
}
