//! An acquire under way on one grant.

use std::sync::Arc;

use super::owed::Owed;
use super::sharing::Offer;
use super::{Grant, OwnerKey, PartKey, began};
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
    /// The key of this value in the list of acquires under way. `None`: another owner of the client gave the hold.
    listed: Option<usize>,
    /// The owner holds the write lock, so no other owner can block this read.
    pub(crate) nested_in_write: bool,
}

impl PendingHold {
    /// Begins a grant. Its owner id is that of `write`, a grant that this owner holds and that lends it, or a new one.
    pub(crate) fn acquire(
        target: Arc<LockRef>,
        write: Option<&Arc<Grant>>,
        owner: OwnerKey,
        caller: Caller,
    ) -> Self {
        let grant = Arc::new(Grant::new(target, write.map(|write| &**write)));
        let part = grant.ask(|state| state.attaches(owner, began(caller)));
        let mut pending = Self::listed(grant, part, 1);
        pending.nested_in_write = write.is_some();
        pending
    }

    /// Begins a grant for each of these locks, all with one new owner id.
    pub(crate) fn claim(locks: impl IntoIterator<Item = Arc<LockRef>>, caller: Caller) -> Vec<Self> {
        let owner = OwnerKey::default();
        let mut first: Option<Arc<Grant>> = None;
        let begin = |lock| {
            let grant = Arc::new(Grant::new(lock, first.as_deref()));
            first.get_or_insert_with(|| Arc::clone(&grant));
            let part = grant.ask(|state| state.attaches(owner, began(caller)));
            Self::listed(grant, part, 1)
        };
        locks.into_iter().map(begin).collect()
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
        self.listed = Some(self.grant.lock.engine.under_way.add(Arc::clone(&self.grant)));
    }

    /// Becomes a hold, which the server granted until `until`. False: a shutdown gave the acquire up meanwhile.
    pub(crate) fn take(&mut self, hold: &Arc<Hold>, until: Moment, now: Moment) -> bool {
        self.is_over = self.grant.add_hold(self.part, hold, until, now);
        self.is_over
    }

    /// Leaves what the server granted to other owners of this client. `None`: a shutdown gave the acquire up meanwhile.
    pub(crate) fn offer(&mut self, now: Moment) -> Option<Offer> {
        self.is_over = self.grant.event(now, |state| state.is_offered_anew(self.part));
        self.is_over.then(|| Offer(Arc::clone(&self.grant)))
    }

    /// Gives the acquire up. Returns what has to be released.
    pub(crate) fn give_up(&mut self, now: Moment) -> Option<Owed> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        let late = self.grant.late_until(now);
        self.grant.change(now, |shell| shell.state.ends_pending(self.part, late)).1
    }
}

impl Drop for PendingHold {
    fn drop(&mut self) {
        if !self.is_over {
            drop(self.give_up(clock::now()));
        }
        // Remove the acquire from the list last: a shutdown that finds the list empty must find the release in the
        // background.
        if let Some(listed) = self.listed {
            self.grant.lock.engine.under_way.remove(listed);
        }
    }
}
