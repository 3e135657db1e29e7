//! An acquire under way on one grant.

use std::sync::Arc;

use super::Grant;
use super::part::OwnerKey;
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;

/// An acquire under way on a grant. If this value is dropped before it became a hold, the background undoes the
/// acquire.
pub(crate) struct PendingHold {
    pub(crate) grant: Arc<Grant>,
    pub(crate) owner: OwnerKey,
    /// The hold count that the acquire makes: 1 for a first acquire, more for a re-entry.
    pub(crate) want: u32,
    /// It became a hold, or was given up.
    pub(crate) is_over: bool,
    /// The key of this value in the list of acquires under way.
    key: usize,
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
        let nested_in_write = write.is_some();
        let grant = Arc::new(Grant::new(target, write.map(|write| &**write), owner, caller));
        Self::new(grant, owner, 1, nested_in_write)
    }

    /// Begins a grant for each of these locks, all with one new owner id.
    pub(crate) fn claim(locks: impl IntoIterator<Item = Arc<LockRef>>, caller: Caller) -> Vec<Self> {
        let owner = OwnerKey::default();
        let mut first = None;
        let begin = |lock| {
            let grant = Arc::new(Grant::new(lock, first.as_deref(), owner, caller));
            first.get_or_insert_with(|| Arc::clone(&grant));
            Self::new(grant, owner, 1, false)
        };
        locks.into_iter().map(begin).collect()
    }

    /// Re-enters a grant. `None`: the owner has no hold there.
    pub(crate) fn reenter(grant: &Arc<Grant>, owner: OwnerKey, now: Moment) -> Option<Self> {
        let want = lock(&grant.state).machine.reenters(owner, now)?;
        Some(Self::new(Arc::clone(grant), owner, want, false))
    }

    /// Makes the pending hold of an owner that was added to a grant. The server has already granted the hold.
    pub(crate) fn attached(grant: &Arc<Grant>, owner: OwnerKey) -> Self {
        Self::new(Arc::clone(grant), owner, 1, false)
    }

    fn new(grant: Arc<Grant>, owner: OwnerKey, want: u32, nested_in_write: bool) -> Self {
        let key = grant.lock.engine.under_way.add(Arc::clone(&grant));
        Self { grant, owner, want, is_over: false, key, nested_in_write }
    }

    /// Becomes a hold, which the server granted until `until`. False: a shutdown gave the acquire up meanwhile.
    pub(crate) fn take(&mut self, hold: &Arc<Hold>, until: Moment, now: Moment) -> bool {
        self.is_over = self.grant.add_hold(self.owner, hold, until, now);
        self.is_over
    }

    /// Gives the acquire up. What the server can have of it is owed from here on, because the target no longer counts the
    /// acquire. The background undoes it.
    pub(crate) fn give_up(&mut self, now: Moment) {
        self.is_over = true;
        self.grant.ends_pending(self.owner, now);
    }
}

impl Drop for PendingHold {
    fn drop(&mut self) {
        if !self.is_over {
            self.give_up(clock::now());
        }
        // Remove the acquire from the list last: a shutdown that finds the list empty must find the undo in the
        // background.
        self.grant.lock.engine.under_way.remove(self.key);
    }
}
