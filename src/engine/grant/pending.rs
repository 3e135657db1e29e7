//! An acquire under way on one grant.

use std::sync::Arc;

use super::desired::Desired;
use super::{Caller, Grant};
use crate::base::clock::Moment;
use crate::base::sync::lock;
use crate::engine::acquire::under_way::Pending;
use crate::engine::grant::seat::Tenure;
use crate::engine::grant::share::Share;
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;

/// An acquire under way on a grant. If a `PendingHold` is dropped before it became a hold, the acquire is undone.
pub(crate) struct PendingHold {
    pub(crate) grant: Arc<Grant>,
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
    pub(crate) fn first(target: Arc<LockRef>, write: Option<&Arc<Grant>>, caller: Caller) -> Self {
        let nested_in_write = write.is_some();
        let grant = Arc::new(Grant::new(target, write.map(|write| &**write), caller));
        Self::new(grant, 1, nested_in_write)
    }

    /// Re-enters a grant. `None`: the grant has no hold.
    pub(crate) fn again(grant: &Arc<Grant>, now: Moment) -> Option<Self> {
        let mut desired = lock(&grant.desired);
        // With the desired state locked: from here on, no concurrent release lowers the count below one.
        let live = desired.live(now);
        if live == 0 {
            return None;
        }
        desired.pending += 1;
        let want = live + desired.pending;
        Some(Self::new(Arc::clone(grant), want, false))
    }

    /// Takes over a hold that another owner passed on. The server has granted it already.
    pub(crate) fn taken_over(target: Arc<LockRef>, tenure: Tenure, caller: Caller) -> Self {
        Self::new(Arc::new(Grant::succeed(target, tenure, caller)), 1, false)
    }

    /// Joins other readers of this client. The server has granted their hold already.
    pub(crate) fn joined(target: Arc<LockRef>, share: Arc<Share>, caller: Caller) -> Self {
        Self::new(Arc::new(Grant::join(target, share, caller)), 1, false)
    }

    fn new(grant: Arc<Grant>, want: u32, nested_in_write: bool) -> Self {
        let key = grant.lock.engine.under_way.add(Arc::<Grant>::clone(&grant));
        Self { grant, want, is_taken: false, key, nested_in_write }
    }

    /// Becomes a hold, after the server granted it. False: a shutdown gave it up meanwhile.
    pub(crate) fn take(&mut self, hold: &Arc<Hold>, member: usize, now: Moment) -> bool {
        let mut desired = lock(&self.grant.desired);
        if desired.is_given_up {
            return false;
        }
        self.is_taken = true;
        self.grant.ends_pending(&mut desired);
        // Perhaps another hold made the server's lease longer than this hold lasts.
        desired.outlasts |= desired.was_held;
        desired.was_held = true;
        desired.held_since.get_or_insert(now);
        desired.holds.push((Arc::clone(hold), member));
        self.grant.schedule_renewal(&mut desired, now);
        if self.grant.is_of_earlier_master() {
            // The renewals of the switch perhaps came before this hold was scheduled.
            self.grant.lock.engine.renewals.rush();
        }
        true
    }

    /// Gives up, if it did not become a hold. Returns the grant if the owner has to release this grant before the next attempt.
    pub(crate) fn give_up(self) -> Option<Arc<Grant>> {
        if self.is_taken {
            return None;
        }
        let grant = Arc::clone(&self.grant);
        drop(self);
        grant.owes_release().then_some(grant)
    }
}

impl Grant {
    /// Records that one acquire has ended.
    fn ends_pending(self: &Arc<Self>, desired: &mut Desired) {
        desired.pending -= 1;
        self.leave_queue(desired);
    }
}

impl Pending for Grant {
    fn give_up(self: Arc<Self>) {
        let mut desired = lock(&self.desired);
        if desired.pending == 0 {
            return;
        }
        desired.is_given_up = true;
        self.leave_queue(&mut desired);
        drop(desired);
        self.reconcile_later();
    }
}

impl Drop for PendingHold {
    fn drop(&mut self) {
        if !self.is_taken {
            let mut desired = lock(&self.grant.desired);
            self.grant.ends_pending(&mut desired);
            drop(desired);
            self.grant.reconcile_later();
        }
        // This comes last, so that a shutdown which finds no acquire under way finds the undo in the background.
        self.grant.lock.engine.under_way.remove(self.key);
    }
}
