//! What is told after a mutex was unlocked.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::clock;
use crate::base::sync::nothing_is_locked;
use crate::engine::hold::Hold;
use crate::engine::observer::Lasting;
use crate::telemetry::{LossCause, Renewed, Renewing};

/// What became of the holds of a grant while its desired state was locked.
///
/// To tell it runs code of the user: a `tracing` layer, a metrics recorder, the waker of a future. That code can call anything in this
/// crate, so a mutex that is locked meanwhile would stop the thread for ever. To drop the last reference to a hold runs such code, too:
/// it ends the hold's span.
#[derive(Default)]
#[must_use = "dropping it tells nothing: call `perform` with nothing locked"]
pub(crate) struct Effects {
    holds: SmallVec<[(Arc<Hold>, Fate); 1]>,
    renewed: Option<(Renewing, Renewed)>,
    /// A hold that lasted has ended. Its observer is told when this is dropped.
    lasted: Option<Box<Lasting>>,
}

/// What became of a hold.
#[derive(Clone, Copy)]
enum Fate {
    /// It left its grant. Perhaps its time was up before.
    Left,
    /// The server does not have it any more.
    Removed,
    /// The server did not have it any more when it was given back.
    Gone,
}

impl Effects {
    /// A hold left its grant. Perhaps its time was up before.
    pub(crate) fn left(&mut self, hold: Arc<Hold>) {
        self.holds.push((hold, Fate::Left));
    }

    /// The server does not have this member of a hold any more.
    pub(crate) fn loses(&mut self, hold: Arc<Hold>, member: usize) {
        hold.lose(member);
        self.holds.push((hold, Fate::Removed));
    }

    /// The server did not have this member of a hold any more when it was given back.
    pub(crate) fn was_gone(&mut self, hold: Arc<Hold>, member: usize) {
        let fate = if hold.was_gone(member) { Fate::Gone } else { Fate::Left };
        self.holds.push((hold, fate));
    }

    /// A renewal ended.
    pub(crate) fn renewed(&mut self, renewing: Renewing, outcome: Renewed) {
        self.renewed = Some((renewing, outcome));
    }

    /// A hold has ended, perhaps one that lasted.
    pub(crate) fn ended(&mut self, lasted: Option<Box<Lasting>>) {
        if lasted.is_some() {
            self.lasted = lasted;
        }
    }

    /// Tells it. Call this with nothing locked.
    pub(crate) fn perform(self) {
        if self.holds.is_empty() && self.renewed.is_none() {
            return;
        }
        nothing_is_locked();
        let now = clock::now();
        for (hold, fate) in &self.holds {
            match fate {
                Fate::Left if hold.is_given_back() => {}
                Fate::Left => _ = hold.is_found_lost(now),
                Fate::Removed => hold.tell_loss(Some(LossCause::Removed), now),
                Fate::Gone => hold.tell_gone(now),
            }
        }
        if let Some((renewing, outcome)) = self.renewed {
            renewing.tell(outcome);
        }
    }
}
