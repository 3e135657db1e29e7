//! Holds that the owners of one client give each other without a command.
//!
//! For the server this is one hold all the time, with one owner id. A hold is offered to the waiter in front, or kept for the readers that
//! wait, and meanwhile the offer keeps it on the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::owner_grants::OwnerKey;
use super::pending::PendingHold;
use super::{Caller, Grant};
use crate::base::clock::Moment;
use crate::base::sync::lock;
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;

/// A hold that the next owner can have. Dropping it releases the hold, if no other owner stands on the grant.
pub(crate) struct Offer {
    grant: Arc<Grant>,
    /// The hold of the owner that gave it. The server has not said yet whether it still had that hold.
    former: Option<Arc<Hold>>,
    is_accepted: bool,
}

impl Offer {
    pub(crate) const fn new(grant: Arc<Grant>, former: Option<Arc<Hold>>) -> Self {
        Self { grant, former, is_accepted: false }
    }

    /// Takes the hold, as an acquire that the server has granted already, with its deadline. `None`: it is lost.
    pub(crate) fn accept(
        mut self,
        owner: OwnerKey,
        caller: Caller,
        now: Moment,
    ) -> Option<(PendingHold, Moment)> {
        let mut desired = self.grant.desired();
        let until = desired.lease.until;
        if desired.is_gone || until <= now || self.grant.is_perhaps_gone() {
            drop(desired);
            return None;
        }
        self.is_accepted = true;
        desired.offers -= 1;
        desired.attach(owner, caller);
        drop(desired);
        Some((PendingHold::attached(&self.grant, owner), until))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.is_accepted {
            let mut desired = self.grant.desired();
            desired.offers -= 1;
            desired.given_back.extend(self.former.take().map(|hold| (hold, 0)));
            drop(desired);
            self.grant.reconcile_later();
        }
    }
}

/// Whether other readers of the client can join a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Joining {
    #[default]
    NotYet,
    Open,
    Closed,
}

/// The newest read grant of each lock, by the key of the lock. The readers of the client join it.
#[derive(Default)]
pub(crate) struct ReadGrants(Mutex<HashMap<Arc<str>, Weak<Grant>>>);

impl ReadGrants {
    pub(crate) fn set(&self, lock_key: &Arc<str>, grant: &Arc<Grant>) {
        let _before = lock(&self.0).insert(Arc::clone(lock_key), Arc::downgrade(grant));
    }

    /// No reader joins the holds of a lock any more that its client has now.
    pub(crate) fn close(&self, lock_key: &str) {
        if let Some(grant) = self.newest(lock_key) {
            grant.close_to_readers();
        }
    }

    fn newest(&self, lock_key: &str) -> Option<Arc<Grant>> {
        // The caller drops the grant after the map is unlocked: the drop of a grant locks it.
        lock(&self.0).get(lock_key).and_then(Weak::upgrade)
    }

    /// Forgets a grant that is dropped.
    pub(crate) fn forget(&self, lock_key: &str) {
        let mut grants = lock(&self.0);
        if grants.get(lock_key).is_some_and(|newest| newest.strong_count() == 0) {
            grants.remove(lock_key);
        }
    }
}

/// Returns the grant that a reader of the client can join, if no writer of the client waits.
fn joinable(target: &LockRef) -> Option<Arc<Grant>> {
    let LockRef { engine, keys, row, .. } = target;
    let grant = engine.read_grants.newest(&keys.lock)?;
    let is_allowed =
        engine.wait_queues.exclusive_queue_of(keys, *row).is_none() && engine.check_open().is_ok();
    is_allowed.then_some(grant)
}

/// Joins the readers of this client, if the server granted their hold a short time ago. Returns the hold with its deadline.
pub(crate) fn join(
    target: &LockRef,
    owner: OwnerKey,
    caller: Caller,
    now: Moment,
) -> Option<(PendingHold, Moment)> {
    let grant = joinable(target)?;
    let until = grant.attach_reader(owner, caller, now)?;
    Some((PendingHold::attached(&grant, owner), until))
}

/// Keeps the hold of the readers of this client for those that wait, so that they can join it.
pub(crate) fn keep_for_readers(target: &LockRef, now: Moment) -> Option<Offer> {
    let grant = joinable(target)?;
    grant.offer_to_readers(now).then(|| Offer::new(grant, None))
}
