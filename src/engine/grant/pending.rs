//! An acquire under way on one grant.

use std::sync::Arc;

use super::Grant;
use super::part::OwnerKey;
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;

/// An acquire under way on a grant. If it is dropped before it became a hold, the acquire is undone.
pub(crate) struct PendingHold {
    pub(crate) grant: Arc<Grant>,
    pub(crate) owner: OwnerKey,
    /// The count to ask for.
    pub(crate) want: u32,
    is_taken: bool,
    /// Its key among the acquires under way.
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

    /// For an owner that was added to a grant. The server has granted the hold already.
    pub(crate) fn attached(grant: &Arc<Grant>, owner: OwnerKey) -> Self {
        Self::new(Arc::clone(grant), owner, 1, false)
    }

    fn new(grant: Arc<Grant>, owner: OwnerKey, want: u32, nested_in_write: bool) -> Self {
        let key = grant.lock.engine.under_way.add(Arc::clone(&grant));
        Self { grant, owner, want, is_taken: false, key, nested_in_write }
    }

    /// Becomes a hold, after the server granted it until `until`. False: a shutdown gave it up meanwhile.
    pub(crate) fn take(&mut self, hold: &Arc<Hold>, member: usize, until: Moment, now: Moment) -> bool {
        self.is_taken = self.grant.add_hold(self.owner, (hold, member), until, now);
        self.is_taken
    }

    /// Gives up. Returns the grant, if it did not become a hold.
    pub(crate) fn give_up(self) -> Option<Arc<Grant>> {
        (!self.is_taken).then(|| Arc::clone(&self.grant))
    }
}

impl Drop for PendingHold {
    fn drop(&mut self) {
        if !self.is_taken {
            // What the server can have of it is undone from here on.
            self.grant.ends_pending(self.owner, clock::now());
        }
        // This comes last, so that a shutdown which finds no acquire under way finds the undo in the background.
        self.grant.lock.engine.under_way.remove(self.key);
    }
}
