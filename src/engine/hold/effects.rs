//! What is reported to the user after a mutex was unlocked.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Hold;
use crate::base::clock;
use crate::base::sync::nothing_is_locked;
use crate::telemetry::Renewed;

/// What became of the holds of an id while its mutex was locked.
///
/// Reporting this runs code of the user: a `tracing` layer, a metrics recorder, the waker of a future. Such code can
/// call anything in this crate, so a mutex that is locked meanwhile would block the thread for ever. Dropping the last
/// reference to a hold runs such code, too, because it ends the hold's span.
#[must_use = "dropping it tells nothing: call `perform` with nothing locked"]
#[derive(Default)]
pub(crate) struct Effects {
    holds: SmallVec<[(Arc<Hold>, Fate); 1]>,
    /// How a renewal ended.
    pub(crate) renewed: Option<Renewed>,
    /// The lock is perhaps free, and perhaps no message says so.
    pub(crate) is_free: bool,
}

/// What became of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its deadline has perhaps passed.
    Left,
    /// The server no longer has it.
    Removed,
    /// The server no longer had it when it was released.
    Gone,
}

impl Effects {
    /// Records that a hold is no longer listed. Its deadline has perhaps passed.
    pub(crate) fn left(&mut self, hold: Arc<Hold>) {
        self.holds.push((hold, Fate::Left));
    }

    /// Records that the server no longer has this hold.
    pub(crate) fn loses(&mut self, hold: Arc<Hold>) {
        hold.lose();
        self.holds.push((hold, Fate::Removed));
    }

    /// Records that the server no longer had this hold when it was released.
    pub(crate) fn was_gone(&mut self, hold: Arc<Hold>) {
        hold.lose();
        self.holds.push((hold, Fate::Gone));
    }

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
