//! An acquire under way on one grant.

use std::sync::Arc;

use super::sharing::Offer;
use super::{Grant, PartKey, began};
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;

/// An acquire under way on a grant. If this value is dropped before it became a hold, what the server can have of it is released.
pub(crate) struct PendingHold {
    pub(crate) grant: Arc<Grant>,
    pub(crate) part: PartKey,
    /// The hold count that the acquire makes: 1 for a first acquire, more for a re-entry.
    pub(crate) want: u32,
    /// It became a hold, or was given up.
    is_over: bool,
    /// In the list of acquires under way. `None`: another owner of the client gave the hold. Dropped last, so that a shutdown that does not
    /// find it there finds the release in the background.
    listed: Option<InList>,
    /// The owner holds the write lock, so no other owner can block this read.
    pub(crate) nested_in_write: bool,
}

impl PendingHold {
    /// Begins a grant. Its owner id is that of `write`, a grant that this owner holds and that lends it, or a new one.
    pub(crate) fn acquire(target: Arc<LockRef>, write: Option<&Arc<Grant>>, caller: Caller) -> Self {
        let grant = Arc::new(Grant::new(target, write.map(|write| &**write)));
        let part = grant.ask(|state| state.attaches(began(caller)));
        let mut pending = Self::listed(grant, part, 1);
        pending.nested_in_write = write.is_some();
        pending
    }

    /// Begins a grant for each of these locks, all with one new owner id.
    pub(crate) fn claim(locks: impl IntoIterator<Item = Arc<LockRef>>, caller: Caller) -> Vec<Self> {
        let mut all = Vec::<Self>::new();
        for lock in locks {
            all.push(Self::acquire(lock, all.first().map(|first| &first.grant), caller));
        }
        all
    }

    /// Re-enters a grant. `None`: the owner has no hold there.
    pub(super) fn reenter(grant: &Arc<Grant>, part: PartKey, now: Moment) -> Option<Self> {
        let want = grant.ask(|state| state.reenters(part, now))?;
        Some(Self::listed(Arc::clone(grant), part, want))
    }

    /// Makes the pending hold of an owner to which another owner gave a hold.
    pub(super) const fn given(grant: Arc<Grant>, part: PartKey) -> Self {
        Self { grant, part, want: 1, is_over: false, listed: None, nested_in_write: false }
    }

    fn listed(grant: Arc<Grant>, part: PartKey, want: u32) -> Self {
        let mut pending = Self { grant, part, want, is_over: false, listed: None, nested_in_write: false };
        pending.enlist();
        pending
    }

    /// Adds it to the list of acquires under way, for which a shutdown waits.
    pub(crate) fn enlist(&mut self) {
        let key = self.grant.lock.engine.under_way.add(Arc::clone(&self.grant));
        self.listed = Some(InList(Arc::clone(&self.grant), key));
    }

    /// Becomes a hold, which the server granted until `until`, and which the watchdog renews from here on. False: a shutdown gave the acquire
    /// up meanwhile.
    pub(crate) fn take(&mut self, hold: &Arc<Hold>, until: Moment, now: Moment) -> bool {
        let (hold, rules) = (Arc::clone(hold), self.grant.rules());
        let (is_taken, epoch) =
            self.grant.event(now, |state| (state.holds(self.part, hold, (until, now), rules), state.epoch));
        if is_taken && epoch != self.grant.epoch() {
            // Perhaps another server became the master during the attempt. Its rush of renewals perhaps ran before this
            // hold was scheduled, so everything is renewed once more.
            self.grant.lock.engine.renewals.rush();
        }
        self.is_over = is_taken;
        is_taken
    }

    /// Leaves what the server granted to other owners of this client. `None`: a shutdown gave the acquire up meanwhile.
    pub(crate) fn offer(&mut self, now: Moment) -> Option<Offer> {
        self.is_over = self.grant.event(now, |state| state.is_offered_anew(self.part));
        self.is_over.then(|| Offer(Arc::clone(&self.grant)))
    }

    /// Gives the acquire up. Returns whether its release begins.
    pub(crate) fn give_up(&mut self, now: Moment) -> bool {
        if std::mem::replace(&mut self.is_over, true) {
            return false;
        }
        let late = self.grant.late_until(now);
        self.grant.change(now, |shell| shell.state.ends_pending(self.part, late)).1.is_some()
    }
}

impl Drop for PendingHold {
    fn drop(&mut self) {
        if !self.is_over {
            self.give_up(clock::now());
        }
    }
}

/// What is in the list of acquires under way until this is dropped, also if code of the user panics before.
struct InList(Arc<Grant>, usize);

impl Drop for InList {
    fn drop(&mut self) {
        self.0.lock.engine.under_way.remove(self.1);
    }
}
