//! What the owners of one client give each other without a command.

use std::time::Duration;

use super::lingering::Lingering;
use super::machine::{Epoch, Joining, Machine, Stay};
use super::part::{Began, OwnerKey};
use crate::base::clock::Moment;
use crate::engine::hold::deadline::Deadline;
use crate::engine::hold::effects::Effects;
use crate::engine::hold::lease::Rules;

impl<H: Deadline> Machine<H> {
    /// Offers a hold to the waiter in front until `until`, if the server granted the hold less than `hand_over_time`
    /// ago, and not before `granted_at`. False: the hold has to be released.
    pub(crate) fn offers(
        &mut self,
        hold: &H,
        (hand_over_time, granted_at): (Duration, Moment),
        until: Moment,
        epoch: Epoch,
        now: Moment,
        rules: &Rules,
    ) -> bool {
        let is_fit = self.lease.is_young(hand_over_time, granted_at, now)
            && self.has_only(hold, now)
            && hold.renewed_lease(rules.lease).is_some()
            && hold.ends().is_none()
            // A hold with a longer lease is not handed over: if this process died, other clients would wait for that
            // lease.
            && self.lease.longest <= rules.lease
            && hold.at().since(now) >= rules.lease / 2
            && hold.relies_on(now)
            && self.copies.is_certainly_one()
            && self.epoch == epoch;
        if is_fit {
            self.gives_back(hold, false, now);
            self.stay = Stay::Offered { until };
        }
        is_fit
    }

    /// Whether this hold is the only thing on the grant, and nothing reserves or lends it.
    fn has_only(&self, hold: &H, now: Moment) -> bool {
        let is_only = match &self.parts[..] {
            [part] => part.has_only(hold),
            _ => false,
        };
        is_only
            && !self.stays(now)
            && self.given_back.is_empty()
            && !self.is_reserved
            && !self.is_lent
            && !self.is_gone
            && self.shows_for.is_empty()
    }

    /// Lets an owner take the offered hold, as the end of an acquire. Returns the deadline of the hold. `None`: the
    /// hold is lost, or the offer has ended.
    pub(crate) fn takes_offer(
        &mut self,
        owner: OwnerKey,
        began: Began,
        epoch: Epoch,
        now: Moment,
        effects: &mut Effects<H>,
    ) -> Option<Moment> {
        let Stay::Offered { until } = self.stay else { return None };
        if until <= now || self.is_gone || self.lease.until <= now || self.epoch != epoch {
            return None;
        }
        self.stay = Stay::None;
        self.forgets_given_back(effects);
        self.attaches(owner, began);
        Some(self.lease.until)
    }

    /// Ends an offer that nobody took.
    pub(crate) fn takes_back(&mut self) {
        if let Stay::Offered { .. } | Stay::ForReaders { .. } = self.stay {
            self.stay = Stay::None;
        }
    }

    /// Lets other readers of this client join the hold that the server granted just now. `linger`: how long the hold
    /// stays for readers that come later. False: they cannot join.
    pub(crate) fn opens_to_readers(&mut self, linger: Option<Duration>, now: Moment) -> bool {
        let opens = self.joining == Joining::NotYet && self.copies.is_certainly_one();
        if opens {
            self.joining = Joining::Open;
            if let Some(time) = linger {
                self.begins_to_linger(time, now);
            }
        }
        opens
    }

    /// Lets a reader join the hold, as the end of an acquire. Returns the deadline of the hold. `None`: the reader
    /// cannot join.
    pub(crate) fn joins(
        &mut self,
        owner: OwnerKey,
        began: Began,
        epoch: Epoch,
        now: Moment,
        rules: &Rules,
    ) -> Option<Moment> {
        if !self.takes_readers(epoch, now, rules) {
            return None;
        }
        if let Stay::Lingers(lingering) = &mut self.stay {
            lingering.was_joined = true;
        }
        self.attaches(owner, began);
        Some(self.lease.until)
    }

    /// Keeps the hold for the readers that wait. False: no reader could join.
    pub(crate) fn keeps_for_readers(
        &mut self,
        until: Moment,
        epoch: Epoch,
        now: Moment,
        rules: &Rules,
    ) -> bool {
        let stays_anyway = matches!(self.stay, Stay::Minimum { .. });
        let keeps = !stays_anyway && self.takes_readers(epoch, now, rules);
        if keeps && !self.lingers() {
            self.stay = Stay::ForReaders { until };
        }
        keeps
    }

    /// Whether readers can join: the hold is young or lingers, lasts for half of a lease, and nobody has begun to
    /// release it.
    fn takes_readers(&self, epoch: Epoch, now: Moment, rules: &Rules) -> bool {
        let is_fresh = match self.stay {
            Stay::Lingers(Lingering { until, .. }) => now < until && !self.lease.is_unsure,
            _ => self.lease.is_young(rules.sharing, Moment::PAST, now),
        };
        self.joining == Joining::Open
            && !self.is_gone
            && !self.is_given_up
            && self.is_needed(now)
            && is_fresh
            && self.lease.until.since(now) >= rules.lease / 2
            && self.epoch == epoch
    }

    /// Lends the id of this grant to a read hold of the same owner. False: the owner has no hold here.
    ///
    /// A hold whose id was lent is not handed over, and a hold that is offered does not lend its id.
    pub(crate) fn lends(&mut self, owner: OwnerKey, now: Moment) -> bool {
        let is_live = self.live(owner, now) > 0;
        if is_live {
            self.is_lent = true;
            self.lease.outlasts = true;
        }
        is_live
    }

    /// Reserves the hold for this owner: from here on, no other owner of this client joins the hold or takes it over.
    /// False: the owner does not hold the lock, or not alone.
    pub(crate) fn reserves(&mut self, owner: OwnerKey, now: Moment) -> bool {
        let is_alone = self.live(owner, now) > 0 && self.parts.len() == 1 && !self.is_offered();
        if is_alone {
            self.is_reserved = true;
            self.joining = Joining::Closed;
        }
        is_alone
    }
}
