//! Holds that the owners of one client give each other without a command.
//!
//! For the server this is one hold all the time, with one owner id. A hold is offered to the waiter in front, or kept
//! for the readers that wait, and meanwhile the offer keeps it on the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::part::OwnerKey;
use super::{Grant, Machine, began};
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::sync::{lock, nothing_is_locked};
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::machine::STALLED;

/// A hold that the next owner can take. Dropping the offer releases the hold, if no owner stands on the grant.
pub(crate) struct Offer(Arc<Grant>);

impl Offer {
    /// Adds an owner to the grant, as the end of an acquire. Returns the grant and its deadline. `None`: the hold is
    /// lost, or the offer has ended.
    pub(crate) fn accept(self, owner: OwnerKey, caller: Caller, now: Moment) -> Option<(Arc<Grant>, Moment)> {
        let (epoch, began) = (self.0.epoch(), began(caller));
        let take =
            |machine: &mut Machine, effects: &mut _| machine.takes_offer(owner, began, epoch, now, effects);
        let until = self.0.event(now, take)?;
        Some((Arc::clone(&self.0), until))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        nothing_is_locked();
        if self.0.ask(|machine| machine.is_offered()) {
            self.0.event(clock::now(), |machine, _| machine.takes_back());
        }
    }
}

impl Grant {
    /// Hands a hold over to the first waiter of this client for the lock. False: the hold has to be released.
    ///
    /// The hold stays on the server all the time, so no other client can enter in between.
    pub(crate) fn hand_over(self: &Arc<Self>, hold: &Arc<Hold>, now: Moment) -> bool {
        let engine = &self.lock.engine;
        let Some((queue, _)) = self.waiters().filter(|_| !hold.is_of_member()) else { return false };
        let (epoch, rules) = (self.epoch(), self.rules());
        let offer = |time, granted_at| {
            let machine = &mut lock(&self.state).machine;
            let is_offered = machine.offers(hold, (time, granted_at), now.plus(STALLED), epoch, now, rules);
            is_offered.then(|| Offer(Arc::clone(self)))
        };
        let is_offered = engine.check_open().is_ok() && queue.offer(engine.config.sharing(), now, offer);
        if is_offered {
            self.look(now);
        }
        is_offered
    }

    /// Lets other readers of this client join the hold that the server granted just now. `linger`: how long the hold
    /// stays for readers that come later.
    pub(crate) fn open_to_readers(self: &Arc<Self>, linger: Option<Duration>, now: Moment) {
        let LockRef { engine, keys, row, .. } = &*self.lock;
        if !lock(&self.state).machine.opens_to_readers(linger, now) {
            return; // the hold was opened or closed before, or its count is uncertain
        }
        if linger.is_some() {
            self.look(now); // the scheduler now knows when to confirm this hold
        }
        engine.read_grants.set(&keys.lock, self, now);
        // First add the grant, then look for a writer or a shutdown. One that came before the grant was added did not
        // find it, and so did not end its lingering.
        let is_wanted = || engine.is_closing() || engine.wait_queues.exclusive_queue_of(keys, *row).is_some();
        if linger.is_some() && is_wanted() {
            self.close_to_readers(now);
        }
    }

    /// Gives back a hold whose grant lingers, and releases nothing. False: nothing was changed, so the hold has to be
    /// released.
    pub(crate) fn leave_to_linger(self: &Arc<Self>, hold: &Arc<Hold>, now: Moment) -> bool {
        if !self.is_shared() || !self.ask(|machine| machine.lingers()) || self.lock.engine.is_closing() {
            return false;
        }
        self.event(now, |machine, _| machine.leaves_to_linger(hold, now))
    }

    /// Lets no more readers join the hold. A lingering hold now ends with the readers that have it.
    pub(crate) fn close_to_readers(self: &Arc<Self>, now: Moment) {
        self.event(now, |machine, _| machine.closes_to_readers());
    }
}

/// The newest read grant of each lock, by the key of the lock. The readers of the client join it.
#[derive(Default)]
pub(crate) struct ReadGrants(Mutex<HashMap<Arc<str>, Weak<Grant>>>);

impl ReadGrants {
    pub(crate) fn set(&self, lock_key: &Arc<str>, grant: &Arc<Grant>, now: Moment) {
        let before = lock(&self.0).insert(Arc::clone(lock_key), Arc::downgrade(grant));
        if let Some(before) = before.and_then(|before| before.upgrade()) {
            // No reader and no writer of this client finds the replaced grant any more, so nobody else would end its
            // lingering.
            if before.ask(|machine| machine.lingers()) {
                before.close_to_readers(now);
            }
        }
    }

    /// Lets no more readers join the newest hold of a lock.
    pub(crate) fn close(&self, lock_key: &str, now: Moment) {
        if let Some(grant) = self.newest(lock_key) {
            grant.close_to_readers(now);
        }
    }

    /// Ends the lingering of the newest hold of a lock, if it lingers.
    pub(crate) fn end_lingering(&self, lock_key: &str, now: Moment) {
        if let Some(grant) = self.newest(lock_key).filter(|grant| grant.ask(|machine| machine.lingers())) {
            grant.close_to_readers(now);
        }
    }

    /// Lets no more readers join a hold of any lock.
    pub(crate) fn close_all(&self, now: Moment) {
        let grants: Vec<_> = lock(&self.0).values().filter_map(Weak::upgrade).collect();
        grants.iter().for_each(|grant| grant.close_to_readers(now));
    }

    /// Ends a lingering hold that no reader has. Returns its grant: the caller attends to it, and releases the hold.
    pub(crate) fn end_idle(&self, lock_key: &str, now: Moment) -> Option<Arc<Grant>> {
        let grant = self.newest(lock_key)?;
        grant.event(now, |machine, _| machine.ends_idle()).then_some(grant)
    }

    fn newest(&self, lock_key: &str) -> Option<Arc<Grant>> {
        // Return the `Arc`: the caller drops it after the map is unlocked, because the drop of a grant locks the map.
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

/// Adds a reader to the readers of this client, if the server granted their hold a short time ago. Returns the grant,
/// with its deadline.
pub(crate) fn join(
    target: &LockRef,
    owner: OwnerKey,
    caller: Caller,
    now: Moment,
) -> Option<(Arc<Grant>, Moment)> {
    let grant = joinable(target)?;
    let (began, epoch, rules) = (began(caller), grant.epoch(), grant.rules());
    let until = grant.event(now, |machine, _| machine.joins(owner, began, epoch, now, rules))?;
    Some((grant, until))
}

/// Keeps the hold of the readers of this client for those that wait, so that they can join it.
pub(crate) fn keep_for_readers(target: &LockRef, now: Moment) -> Option<Offer> {
    let grant = joinable(target)?;
    let (epoch, rules, until) = (grant.epoch(), grant.rules(), now.plus(STALLED));
    let is_kept = grant.event(now, |machine, _| machine.keeps_for_readers(until, epoch, now, rules));
    is_kept.then(|| Offer(grant))
}
