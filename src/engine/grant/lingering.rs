//! A read hold that stays on the server for the readers of this client that come later.
//!
//! From its grant on, the hold *lingers*: readers join it, also after the last one has left. When its time is over, the
//! client asks the server once, with a *confirmation*, whether the hold is still there and whether somebody waits. If
//! nobody joined since the last answer, it asks nothing, and the hold ends with the readers that are inside. So nothing
//! polls under one long reader, and a lock that is read once costs what it costs without the option.

use std::time::Duration;

use super::machine::{Epoch, Joining, Machine, Stay};
use crate::base::clock::Moment;
use crate::engine::hold::deadline::Deadline;
use crate::engine::hold::effects::Effects;
use crate::engine::hold::lease::Rules;

/// A waiter that the server does not know of waits about this long: the first confirmation after this time makes the
/// lock free for a moment.
const GAP: Duration = Duration::from_secs(1);

/// A hold that lingers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lingering {
    /// How long after the grant, or after a confirmation, the next confirmation is due.
    time: Duration,
    /// When the hold began to linger.
    began: Moment,
    /// Until when readers can join. This is a quarter of `time` after the confirmation is due, so that readers need not
    /// wait for its answer.
    pub(super) until: Moment,
    /// A reader joined since the last confirmation was sent.
    pub(super) was_joined: bool,
}

impl Lingering {
    fn new(time: Duration, now: Moment) -> Self {
        Self { time, began: now, until: now.plus(time * 5 / 4), was_joined: false }
    }

    #[cfg(test)]
    pub(super) fn each_time(&mut self, change: &mut dyn FnMut(&mut Moment)) {
        change(&mut self.until);
        change(&mut self.began);
    }
}

/// What a confirmation asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Confirmation {
    pub(crate) linger: Duration,
    /// The lock becomes free for a moment, whatever the server sees.
    pub(crate) makes_gap: bool,
    /// The epoch in which the confirmation is sent.
    epoch: Epoch,
}

impl<H: Deadline> Machine<H> {
    /// Lets the hold linger that the server granted just now.
    pub(super) fn begins_to_linger(&mut self, time: Duration, now: Moment) {
        if self.stay == Stay::None {
            self.stay = Stay::Lingers(Lingering::new(time, now));
        }
    }

    /// Lets no more readers join the hold. A lingering hold now ends with the readers that have it.
    pub(crate) fn closes_to_readers(&mut self) {
        self.joining = Joining::Closed;
        if self.lingers() {
            self.stay = Stay::None;
        }
    }

    /// Ends a lingering hold if no reader has it. True: from here on, the caller attends to the grant, and releases the
    /// hold.
    pub(crate) fn ends_idle(&mut self) -> bool {
        let is_idle = self.lingers() && self.parts.is_empty();
        if is_idle {
            self.closes_to_readers();
            self.attended();
        }
        is_idle
    }

    pub(crate) const fn lingers(&self) -> bool {
        matches!(self.stay, Stay::Lingers(_))
    }

    /// Removes a hold that was given back, if the grant lingers, so that the server keeps the hold for later readers.
    /// Otherwise changes nothing.
    pub(crate) fn leaves_to_linger(&mut self, hold: &H, now: Moment) -> bool {
        let is_kept = self.lingers() && self.stays(now) && self.copies.may_exist() && !self.was_lost();
        if is_kept {
            self.gives_back(hold, false, now);
        }
        is_kept
    }

    /// Returns when the next confirmation of the lingering hold is due.
    pub(super) fn confirms_at(&self) -> Option<Moment> {
        match self.stay {
            Stay::Lingers(Lingering { until, time, .. }) => Some(until.minus(time / 4)),
            _ => None,
        }
    }

    /// Begins a confirmation that is due. `None`: the lingering ends instead.
    pub(crate) fn begins_confirmation(
        &mut self,
        epoch: Epoch,
        is_closing: bool,
        now: Moment,
    ) -> Option<Confirmation> {
        let Stay::Lingers(lingering) = &mut self.stay else { return None };
        let is_over = now >= lingering.until || self.joining != Joining::Open || is_closing;
        if is_over || !lingering.was_joined || self.epoch != epoch {
            self.closes_to_readers();
            return None;
        }
        lingering.was_joined = false;
        let makes_gap = now.since(lingering.began) >= GAP;
        Some(Confirmation { linger: lingering.time, makes_gap, epoch })
    }

    /// Records that the confirmation sent at `sent` found the hold. `is_wanted`: somebody perhaps waits.
    pub(crate) fn confirmed(
        &mut self,
        Confirmation { epoch, .. }: Confirmation,
        sent: Moment,
        is_wanted: bool,
        (now_in, now): (Epoch, Moment),
        rules: &Rules,
    ) {
        self.keeps_lease(rules.lease, sent, now);
        let next = sent.plus(rules.periods.renewal(rules.lease, rules.is_shared));
        self.lease.renew_at = self.lease.renew_at.map(|at| at.max(next));
        let Stay::Lingers(lingering) = &mut self.stay else { return };
        lingering.until = sent.plus(lingering.time * 5 / 4);
        if is_wanted || epoch != now_in || now >= lingering.until {
            self.closes_to_readers();
        }
    }

    /// Records that the confirmation found no hold.
    pub(crate) fn confirmed_nothing(&mut self, effects: &mut Effects<H>) {
        self.found_nothing(effects);
        self.closes_to_readers();
    }
}
