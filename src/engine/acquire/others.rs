//! Acquiring from other owners of the same client, without a command.

use std::sync::Arc;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::engine::acquire::round::PendingMembers;
use crate::engine::grant::Grant;
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::sharing::{Offer, join, keep_for_readers};
use crate::engine::handle::{Handle, Member};
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::waiter::Waiter;

impl<'a> PendingMembers<'a> {
    /// Takes a hold that another owner of this client offers. False: the hold is lost.
    pub(crate) fn accept(&mut self, offer: Offer) -> bool {
        let owner = self.handle.members[0].owner.key;
        let accepted = offer.accept(owner, self.caller, clock::now());
        accepted.map(|(grant, until)| self.hold_instead(&grant, until)).is_some()
    }

    /// Joins other readers of this client before the call begins to acquire, so the call needs no grant of its own.
    /// `None`: there is no hold to join, or the owner of the call still has something on this name that comes first.
    pub(crate) fn joined(handle: &'a Handle, caller: Caller) -> Option<Self> {
        let Member { lock, owner } = &handle.members[0];
        let now = clock::now();
        if !owner.is_idle(now) {
            return None;
        }
        let (grant, until) = join(lock, owner.key, caller, now)?;
        let pending = PendingHold::attached(&grant, owner.key);
        Some(Self::given(handle, caller, pending, until, now))
    }

    /// Joins other readers of this client. False: there are none to join.
    pub(crate) fn join_readers(&mut self) -> bool {
        if !self.handle.can_share() || self.is_reentry() {
            return false;
        }
        let Member { lock, owner } = &self.handle.members[0];
        let joined = join(lock, owner.key, self.caller, clock::now());
        joined.map(|(grant, until)| self.hold_instead(&grant, until)).is_some()
    }

    /// Keeps the hold of the readers of this client, so that the waiting readers can join it.
    pub(crate) fn keep_for_readers(&self) -> Option<Offer> {
        keep_for_readers(&self.handle.members[0].lock, clock::now())
    }

    /// Ends earlier holds of this client's owners. The server has granted the call an exclusive hold, so it no longer
    /// has any earlier one: nobody may join an earlier hold, or hand it over.
    ///
    /// `has_followers`: another call began to wait during this call.
    pub(crate) fn end_earlier(&self, waits: Option<&(usize, Waiter<'_, Offer>)>, has_followers: bool) {
        for (index, (pending, member)) in self.pending.iter().zip(&self.handle.members).enumerate() {
            let LockRef { engine, protocol, keys, row, .. } = &*member.lock;
            if !self.is_granted(index) || pending.want > 1 || protocol.is_shared() || protocol.has_permits() {
                continue;
            }
            if protocol.is_read_write() {
                engine.read_grants.close(&keys.lock, self.at);
            }
            let is_perhaps_gone = match waits {
                // The call waits in the queue of this member, so `waiter` tells that queue without a look-up.
                Some((waits_for, waiter)) if *waits_for == index => waiter.granted_anew(self.at),
                _ => {
                    if let Some((queue, _)) = engine.wait_queues.exclusive_queue_of(keys, *row) {
                        queue.with(|machine| machine.granted_anew(None, self.at));
                    }
                    has_followers
                }
            };
            if is_perhaps_gone {
                pending.grant.forbids_hand_over();
            }
        }
    }

    /// Replaces what this call attempted by the hold of another owner of this client.
    fn hold_instead(&mut self, grant: &Arc<Grant>, until: Moment) {
        let hold = PendingHold::attached(grant, self.handle.members[0].owner.key);
        self.call.is_given(until);
        let before = std::mem::replace(&mut self.pending[0], hold);
        self.at = clock::now();
        if let Some(grant) = before.give_up() {
            self.handle.members[0].owner.add_dropped(grant, self.at);
        }
    }
}
