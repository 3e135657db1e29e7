//! Holds that the owners of one client give each other without a command.
//!
//! For the server this is one hold all the time, with one owner id. A hold is offered to the waiter in front, or kept for the readers that
//! wait, and meanwhile the offer keeps it on the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::Grant;
use super::desired::{Desired, Joining, OwnerKey};
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::sync::{lock, nothing_is_locked};
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

    /// Adds an owner to the grant, as one that acquires. Returns the grant, with its deadline. `None`: the hold is lost.
    pub(crate) fn accept(
        mut self,
        owner: OwnerKey,
        caller: Caller,
        now: Moment,
    ) -> Option<(Arc<Grant>, Moment)> {
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
        Some((Arc::clone(&self.grant), until))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.is_accepted {
            nothing_is_locked();
            let mut desired = self.grant.desired();
            desired.offers -= 1;
            desired.given_back.extend(self.former.take().map(|hold| (hold, 0)));
            drop(desired);
            self.grant.reconcile_later(clock::now());
        }
    }
}

impl Grant {
    /// Hands a hold over to the first waiter of this client for the lock. False: the hold has to be released.
    ///
    /// The hold stays on the server all the time, so no other client can enter in between.
    pub(crate) fn hand_over(self: &Arc<Self>, hold: &Arc<Hold>, now: Moment) -> bool {
        let engine = &self.lock.engine;
        let Some((queue, _)) = self.waiters().filter(|_| hold.has_one_member()) else { return false };
        let time = engine.config.sharing();
        engine.check_open().is_ok()
            && queue.offer(time, now, &engine.background, |time, granted_at| {
                self.offer(hold, time, granted_at, now)
            })
    }

    /// Offers a hold, if the server granted it less than `hand_over_time` ago, and not before `granted_at`.
    fn offer(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        hand_over_time: Duration,
        granted_at: Moment,
        now: Moment,
    ) -> Option<Offer> {
        let mut desired = self.desired();
        desired.lease.since.filter(|since| now.since(*since) < hand_over_time && *since >= granted_at)?;
        let lease = self.lock.engine.config.watchdog_lease();
        let is_fit = desired.has_only(hold)
            && hold.is_watched()
            && hold.ends().is_none()
            // If an owner asked for a longer lease and this process dies, other clients wait for that long. So that lease ends here.
            && self.longest_lease() <= lease
            && hold.left(0, now) >= lease / 2
            && hold.relies_on(0, now);
        if !is_fit || !self.is_certainly_held_once() || self.is_perhaps_gone() {
            return None;
        }
        desired.offers += 1;
        desired.remove(hold);
        self.schedule_renewal(&mut desired, now);
        drop(desired);
        Some(Offer::new(Arc::clone(self), Some(Arc::clone(hold))))
    }

    /// Lets other readers of this client join the hold that the server granted just now.
    pub(crate) fn open_to_readers(self: &Arc<Self>) {
        let LockRef { engine, keys, .. } = &*self.lock;
        let mut desired = self.desired();
        if desired.joining == Joining::NotYet && self.is_certainly_held_once() {
            desired.joining = Joining::Open;
            engine.read_grants.set(&keys.lock, self);
        }
    }

    pub(super) fn close_to_readers(&self) {
        self.desired().joining = Joining::Closed;
    }

    /// Adds a reader of this client. Returns the deadline of its hold.
    fn attach_reader(&self, owner: OwnerKey, caller: Caller, now: Moment) -> Option<Moment> {
        let mut desired = self.desired();
        if !self.takes_readers(&desired, now) {
            return None;
        }
        desired.attach(owner, caller);
        Some(desired.lease.until)
    }

    /// Keeps the hold on the server until the offer is dropped. False: no reader could join.
    fn offer_to_readers(&self, now: Moment) -> bool {
        let mut desired = self.desired();
        let is_offered = self.takes_readers(&desired, now);
        desired.offers += u32::from(is_offered);
        is_offered
    }

    /// Whether readers can join: the hold is young, lasts for half of a lease, and nobody has begun to release it.
    fn takes_readers(&self, desired: &Desired, now: Moment) -> bool {
        let config = &self.lock.engine.config;
        desired.joining == Joining::Open
            && !desired.is_gone
            && !desired.is_given_up
            && (desired.offers > 0 || !desired.owners.is_empty())
            && desired.lease.since.is_some_and(|since| now.since(since) < config.sharing())
            && desired.lease.until.since(now) >= config.watchdog_lease() / 2
            && !self.is_perhaps_gone()
    }
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

/// Adds a reader to the readers of this client, if the server granted their hold a short time ago. Returns the grant, with its deadline.
pub(crate) fn join(
    target: &LockRef,
    owner: OwnerKey,
    caller: Caller,
    now: Moment,
) -> Option<(Arc<Grant>, Moment)> {
    let grant = joinable(target)?;
    let until = grant.attach_reader(owner, caller, now)?;
    Some((grant, until))
}

/// Keeps the hold of the readers of this client for those that wait, so that they can join it.
pub(crate) fn keep_for_readers(target: &LockRef, now: Moment) -> Option<Offer> {
    let grant = joinable(target)?;
    grant.offer_to_readers(now).then(|| Offer::new(grant, None))
}
