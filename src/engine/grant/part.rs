//! What one owner has of a grant.

use smallvec::SmallVec;
use tokio::task;

use crate::base::Caller;
use crate::base::clock::Moment;
use crate::engine::hold::EARLY;
use crate::engine::hold::deadline::Deadline;
use crate::engine::hold::effects::Effects;

/// Distinguishes the owners of this process that stand on one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerKey(pub(super) u64);

/// Who began to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Began {
    /// The task. If another task re-enters, two tasks share a handle, and the user is warned.
    pub(super) task: Option<task::Id>,
    /// Where in the program the acquire began.
    pub(super) at: Caller,
}

/// What one owner has of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part<H> {
    pub(super) owner: OwnerKey,
    began: Began,
    /// Acquires under way. A release meanwhile must not take away what the server grants to them.
    pub(super) pending: u32,
    pub(super) holds: SmallVec<[H; 1]>,
    /// When the leaked holds end, sorted so that the next end is the last item.
    leaked: Vec<Moment>,
}

impl<H: Deadline> Part<H> {
    /// Makes the part of an owner that begins to acquire.
    pub(super) fn pending(owner: OwnerKey, began: Began) -> Self {
        Self { owner, began, pending: 1, holds: SmallVec::new(), leaked: Vec::new() }
    }

    /// Counts the holds that can be relied on now.
    pub(super) fn live(&self, now: Moment) -> u32 {
        let live = self.holds.iter().filter(|hold| hold.relies_on(now)).count();
        let leaked = self.leaked.iter().filter(|end| **end > now).count();
        u32::try_from(live + leaked).unwrap_or(u32::MAX)
    }

    /// The hold count to show.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.holds.len() + self.leaked.len()).unwrap_or(u32::MAX) + self.pending
    }

    pub(super) fn has_holds(&self) -> bool {
        !self.holds.is_empty() || !self.leaked.is_empty()
    }

    /// Whether this hold is the only thing that the owner has.
    pub(super) fn has_only(&self, hold: &H) -> bool {
        self.pending == 0 && self.leaked.is_empty() && matches!(&self.holds[..], [only] if only.is_same(hold))
    }

    pub(super) fn take(&mut self, hold: &H) -> Option<H> {
        let index = self.holds.iter().position(|other| other.is_same(hold))?;
        Some(self.holds.swap_remove(index))
    }

    /// Leaves a hold with this deadline to end by itself.
    pub(super) fn leaks(&mut self, deadline: Moment) {
        // A guard reports its loss `EARLY` before the deadline. A leaked hold ends no later than that.
        let end = deadline.minus(EARLY);
        let at = self.leaked.partition_point(|other| *other > end);
        self.leaked.insert(at, end);
    }

    /// When the first of its leaked holds ends.
    pub(super) fn first_leaked(&self) -> Option<Moment> {
        self.leaked.last().copied()
    }

    /// Removes holds that have ended. If the hold is no longer needed, its release follows.
    pub(super) fn forget_ended(&mut self, now: Moment, effects: &mut Effects<H>) {
        let mut index = 0;
        while let Some(hold) = self.holds.get(index) {
            if hold.relies_on(now) {
                index += 1;
            } else {
                effects.left(self.holds.swap_remove(index));
            }
        }
        while self.first_leaked().is_some_and(|end| end <= now) {
            self.leaked.pop();
        }
    }

    #[cfg(test)]
    pub(super) fn each_leaked(&mut self, change: &mut dyn FnMut(&mut Moment)) {
        self.leaked.iter_mut().for_each(change);
    }

    pub(super) fn lose_all(&mut self, effects: &mut Effects<H>) {
        self.holds.drain(..).for_each(|hold| effects.loses(hold));
        self.leaked.clear();
    }

    /// Whether another task than this one began to acquire.
    pub(crate) fn is_foreign(&self, this: Option<task::Id>) -> bool {
        matches!((self.began.task, this), (Some(began), Some(this)) if began != this)
    }

    /// Where in the program the owner acquired, if it has a valid hold.
    pub(super) fn held_at(&self, now: Moment) -> Option<Caller> {
        (self.live(now) > 0).then_some(self.began.at)
    }
}
