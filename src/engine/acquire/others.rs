//! Acquiring from other owners of the same client, without a command.

use std::sync::Arc;

use crate::base::clock::{self, Moment};
use crate::engine::acquire::round::{Members, PendingMember};
use crate::engine::grant::join::join;
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::seat::Seat;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::line::Claim;
use crate::engine::wait::waiter::Waiter;

impl Members<'_> {
    /// Takes over a hold that another owner of this client passed on.
    pub(crate) fn take_over(&mut self, seat: Seat) {
        let (until, lock) = (seat.until(), Arc::clone(&self.handle.members[0].lock));
        self.accept(PendingHold::taken_over(lock, seat.take(), self.caller), until);
    }

    /// Joins other readers of this client. False: there are none to join.
    pub(crate) fn join_readers(&mut self) -> bool {
        if !self.handle.can_share() || self.is_reentry() {
            return false;
        }
        let lock = &self.handle.members[0].lock;
        let Some(share) = join(lock, clock::now()) else { return false };
        let until = share.tenure().until;
        self.accept(PendingHold::joined(Arc::clone(lock), share, self.caller), until);
        true
    }

    /// A share of the hold of the readers of this client.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let lock = &self.handle.members[0].lock;
        let share = join(lock, clock::now())?;
        Some(Box::new(PendingHold::joined(Arc::clone(lock), share, self.caller)))
    }

    /// The server granted exclusive holds, so whatever owners of this client believed to hold before is gone: nobody joins it, and it is
    /// not passed on.
    pub(crate) fn end_earlier(&self, waits: Option<&(usize, Waiter<'_>)>) {
        for (index, (pending, member)) in self.pending.iter().zip(&self.handle.members).enumerate() {
            let LockRef { engine, protocol, keys, .. } = &*member.lock;
            if pending.granted_until.is_none() || pending.hold.want > 1 || protocol.is_shared() {
                continue;
            }
            if protocol.is_read_write() {
                engine.shares.close(&keys.lock);
            }
            match waits {
                // It waits in the same queue, which need not be looked up.
                Some((waits_for, waiter)) if *waits_for == index => waiter.granted_anew(self.at),
                _ => {
                    if let Some((line, _)) = engine.wait_queues.line_of(keys) {
                        line.granted_anew(self.at);
                    }
                }
            }
        }
    }

    /// Holds what another owner of this client gave, without a command.
    fn accept(&mut self, hold: PendingHold, until: Moment) {
        let member = &self.handle.members[0];
        let taken = PendingMember { hold, granted_until: Some(until), is_unreplicated: false };
        let before = std::mem::replace(&mut self.pending[0], taken);
        if let Some(grant) = before.hold.give_up() {
            member.owner.add_dropped(grant);
        }
        self.at = clock::now();
    }
}
