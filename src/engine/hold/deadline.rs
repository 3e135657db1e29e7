//! The deadline of a hold, as the machine of a grant needs it.

use std::sync::Arc;
use std::time::Duration;

use super::{Hold, Renews};
use crate::base::clock::Moment;

/// Until when a hold can be relied on. The guard shares the deadline, and reads it without a mutex. In the explorer, a
/// plain time stands for it.
pub(crate) trait Deadline: Clone {
    fn is_same(&self, other: &Self) -> bool;

    /// Whether the hold can be relied on. False is final.
    fn relies_on(&self, now: Moment) -> bool;

    /// Until when the hold can be relied on, unless its lease is renewed.
    fn at(&self) -> Moment;

    /// When the hold ends, even if its lease is renewed.
    fn ends(&self) -> Option<Moment>;

    /// The lease that the watchdog renews for the hold. `usual`: the lease of the configuration. `None`: the hold is
    /// not renewed.
    fn renewed_lease(&self, usual: Duration) -> Option<Duration>;

    /// Moves the deadline forward, if the deadline has not passed.
    fn advance(&mut self, now: Moment, to: Moment);

    /// Records that the server no longer has the hold.
    fn lose(&mut self);
}

impl Deadline for Arc<Hold> {
    fn is_same(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }

    fn relies_on(&self, now: Moment) -> bool {
        !self.is_lost(now)
    }

    fn at(&self) -> Moment {
        self.deadline()
    }

    fn ends(&self) -> Option<Moment> {
        Hold::ends(self)
    }

    fn renewed_lease(&self, usual: Duration) -> Option<Duration> {
        match self.term.renews {
            Renews::Nothing => None,
            Renews::Usual => Some(usual),
            Renews::Lease(lease) => Some(lease),
        }
    }

    fn advance(&mut self, now: Moment, to: Moment) {
        Hold::advance(self, now, to);
    }

    fn lose(&mut self) {
        Hold::lose(self);
    }
}
