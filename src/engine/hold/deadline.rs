//! The deadline of a hold on one member, as the machine of a grant needs it.

use std::sync::Arc;
use std::time::Duration;

use super::Hold;
use crate::base::clock::Moment;

/// Until when a hold can be relied on. The guard shares the deadline, and reads it without a mutex. In the explorer, a
/// plain time stands for it.
pub(crate) trait Deadline: Clone {
    fn is_same(&self, other: &Self) -> bool;

    /// Whether the hold can be relied on. False is final.
    fn relies_on(&self, now: Moment) -> bool;

    /// Until when the hold can be relied on, unless its lease is renewed.
    fn at(&self) -> Moment;

    /// How long the server keeps the hold, whether or not the hold is of use.
    fn left(&self, now: Moment) -> Duration;

    /// When the hold ends, even if its lease is renewed.
    fn ends(&self) -> Option<Moment>;

    /// The lease that the watchdog renews for the hold. `usual`: the lease of the configuration. `None`: the hold is
    /// not renewed.
    fn renewed_lease(&self, usual: Duration) -> Option<Duration>;

    /// Moves the deadline forward, if the deadline has not passed.
    fn advance(&mut self, now: Moment, to: Moment);

    /// Records that the server no longer has the hold.
    fn lose(&mut self);

    /// Records that the server no longer had the hold when it was released. Returns whether that is a loss.
    fn was_gone(&mut self) -> bool;
}

/// The hold of a guard, on one of its members.
#[derive(Clone)]
pub(crate) struct HoldOnMember {
    pub(crate) hold: Arc<Hold>,
    pub(crate) member: usize,
}

impl Deadline for HoldOnMember {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.hold, &other.hold)
    }

    fn relies_on(&self, now: Moment) -> bool {
        self.hold.relies_on(self.member, now)
    }

    fn at(&self) -> Moment {
        self.hold.deadline_of(self.member)
    }

    fn left(&self, now: Moment) -> Duration {
        self.hold.left(self.member, now)
    }

    fn ends(&self) -> Option<Moment> {
        self.hold.ends()
    }

    fn renewed_lease(&self, usual: Duration) -> Option<Duration> {
        self.hold.renewed_lease(usual)
    }

    fn advance(&mut self, now: Moment, to: Moment) {
        self.hold.advance(self.member, now, to);
    }

    fn lose(&mut self) {
        self.hold.lose(self.member);
    }

    fn was_gone(&mut self) -> bool {
        self.hold.was_gone(self.member)
    }
}
