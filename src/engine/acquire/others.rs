//! Acquiring from other owners of the same client, without a command.

use crate::base::Caller;
use crate::base::clock;
use crate::engine::acquire::attempts::Attempts;
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::sharing::{Offer, join, keep_for_readers};
use crate::engine::handle::Handle;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::waiter::Waiter;

impl<'a> Attempts<'a> {
    /// Takes a hold that another owner of this client offers. False: the hold is lost.
    pub(crate) fn accept(&mut self, offer: Offer) -> bool {
        let owner = self.handle.owner.key;
        let accepted = offer.accept(owner, self.caller, clock::now());
        accepted.map(|given| self.hold_instead(given)).is_some()
    }

    /// Joins other readers of this client before the call begins to acquire, so the call needs no grant of its own.
    /// `None`: there is no hold to join, or the owner of the call still has something on this name that comes first.
    pub(crate) fn joined(handle: &'a Handle, caller: Caller) -> Option<Self> {
        let Handle { lock, owner, .. } = handle;
        let now = clock::now();
        if !owner.is_idle(now) {
            return None;
        }
        let given = join(lock, owner.key, caller, now)?;
        let until = given.until;
        Some(Self::given(handle, caller, PendingHold::given(given), Some(until), now))
    }

    /// Joins other readers of this client. False: there are none to join.
    pub(crate) fn join_readers(&mut self) -> bool {
        if !self.handle.can_share() || self.is_reentry() {
            return false;
        }
        let Handle { lock, owner, .. } = self.handle;
        let joined = join(lock, owner.key, self.caller, clock::now());
        joined.map(|given| self.hold_instead(given)).is_some()
    }

    /// Keeps the hold of the readers of this client, so that the waiting readers can join it.
    pub(crate) fn keep_for_readers(&self) -> Option<Offer> {
        keep_for_readers(&self.handle.lock, clock::now())
    }

    /// Ends earlier holds of this client's owners. The server has granted the call an exclusive hold, so it no longer
    /// has any earlier one: nobody may join an earlier hold, or hand it over.
    ///
    /// `has_followers`: another call began to wait during this call.
    pub(crate) fn end_earlier(&self, waiter: Option<&Waiter<'_, Offer>>, has_followers: bool) {
        let LockRef { engine, protocol, keys, row, .. } = &*self.handle.lock;
        if self.pending.want > 1 || protocol.is_shared() || protocol.has_permits() {
            return;
        }
        if protocol.is_read_write() {
            engine.read_grants.close(&keys.lock, self.at);
        }
        let is_perhaps_gone = match waiter {
            // The waiter tells its queue without a look-up.
            Some(waiter) => waiter.granted_anew(self.at),
            None => {
                if let Some((queue, _)) = engine.wait_queues.exclusive_queue_of(keys, *row) {
                    queue.with(|machine| machine.granted_anew(None, self.at));
                }
                has_followers
            }
        };
        if is_perhaps_gone {
            self.pending.grant.close(self.at);
        }
    }
}
