//! What this process wants to hold of a grant.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::base::clock::{self, Moment};
use crate::engine::hold::{EARLY, Hold};
use crate::engine::per_member::PerMember;
use crate::engine::upkeep::scheduler::{Key, Slot};
use crate::engine::grant::share::{Left, Share};
use crate::metrics::{Renewed, Renewing};

/// What this process wants to hold. It changes at once, even in a `drop`.
#[derive(Default)]
pub(crate) struct Desired {
    /// Acquires under way. A release meanwhile must not take away what the server grants to them.
    pub(crate) pending: u32,
    /// The pending holds get nothing: the client was shut down while nobody polled them.
    pub(crate) is_given_up: bool,
    /// The holds of guards, and which of their members this grant is.
    pub(crate) holds: PerMember<(Arc<Hold>, usize)>,
    /// When the leaked holds end.
    leaked: BinaryHeap<Reverse<Moment>>,
    /// Holds that were given back, and which of their members this grant is. The server has not said yet whether it still had them.
    pub(crate) given_back: PerMember<(Arc<Hold>, usize)>,
    /// There was a hold.
    pub(crate) was_held: bool,
    /// When the server granted the lock, also if that was for a former owner.
    pub(crate) held_since: Option<Moment>,
    /// A read hold of this owner uses the id of this grant.
    pub(crate) is_lent: bool,
    pub(crate) passing: Passing,
    /// The hold that is offered to the next owner.
    pub(crate) offered: Option<Arc<Hold>>,
    /// Other readers of this client use the same hold of the server.
    pub(crate) share: Option<Arc<Share>>,
    /// The server was found to have nothing of this grant.
    pub(crate) is_gone: bool,
    /// The server can keep the lock for longer than a hold lasts.
    pub(crate) outlasts: bool,
    /// When the leases are to be renewed.
    pub(crate) renew_at: Option<Moment>,
    /// The renewal under way lengthens leases. Otherwise it only restores leases that another client shortened.
    pub(crate) lengthens: bool,
    pub(crate) renewal: Slot,
    pub(crate) renewing: Renewing,
    /// This grant has a place in the lock's queue.
    pub(crate) has_place: bool,
    pub(crate) heartbeat: Slot,
}

/// Whether the last hold of a grant was passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Passing {
    #[default]
    No,
    /// The next owner does not have it yet.
    Offered,
    /// What the server has is that of the next owner.
    Succeeded,
}

impl Desired {
    /// For a grant that somebody begins to acquire.
    pub(crate) fn pending() -> Self {
        Self { pending: 1, ..Self::default() }
    }

    /// Counts the holds that can be relied on now.
    pub(crate) fn live(&mut self, now: Moment) -> u32 {
        self.forget_leaked(now);
        let live = self.holds.iter().filter(|(hold, member)| hold.relies_on(*member, now)).count();
        u32::try_from(live + self.leaked.len()).unwrap_or(u32::MAX)
    }

    /// Counts what is to be left on the server: the holds that can be relied on, those that are pending, and what belongs to other
    /// owners. Zero for a grant that has yet to leave its share.
    pub(crate) fn keep(&mut self) -> u32 {
        match self.passing {
            // With a share, the server can have more, of another reader that re-entered. For a reader it matters only that there is one.
            Passing::No => self.wanted(),
            Passing::Offered => 1,
            // The next owner can re-enter.
            Passing::Succeeded => u32::MAX,
        }
    }

    /// Leaves the share, if nothing is wanted any more. From then on, what the server has belongs to the other readers, if there are
    /// others.
    pub(crate) fn leave_share(&mut self) {
        if self.share.is_none() || self.keep() > 0 {
            return;
        }
        let left = self.share.take().map_or(Left::Last, |share| share.leave());
        if left != Left::Last {
            self.passing = Passing::Succeeded;
        }
        self.is_gone |= left == Left::Lost;
    }

    /// Counts the holds that can be relied on, and those that are pending.
    fn wanted(&mut self) -> u32 {
        let pending = if self.is_given_up { 0 } else { self.pending };
        // Most grants have no holds by now, and need not read the clock.
        if self.holds.is_empty() && self.leaked.is_empty() {
            pending
        } else {
            self.live(clock::now()) + pending
        }
    }

    /// Whether this hold is all that there is.
    pub(crate) fn has_only(&self, hold: &Arc<Hold>) -> bool {
        matches!(&self.holds[..], [(only, _)] if Arc::ptr_eq(only, hold))
            && self.pending == 0
            && self.leaked.is_empty()
            && self.given_back.is_empty()
            && !self.is_lent
            && !self.is_gone
            && !self.renewal.is_running()
    }

    /// Whether somebody is acquiring.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.pending > 0 && !self.is_given_up
    }

    pub(crate) fn remove(&mut self, hold: &Arc<Hold>) -> Option<(Arc<Hold>, usize)> {
        let index = self.holds.iter().position(|(other, _)| Arc::ptr_eq(other, hold))?;
        Some(self.holds.swap_remove(index))
    }

    /// Leaves a hold to end by itself. Only its end is kept.
    pub(crate) fn leak(&mut self, hold: &Arc<Hold>, now: Moment) {
        if let Some((hold, member)) = self.remove(hold)
            && hold.relies_on(member, now)
        {
            // No later than a guard would report its loss.
            self.leaked.push(Reverse(hold.deadline_of(member).minus(EARLY)));
        }
    }

    /// Returns the next end of a hold that the server can keep for longer.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        let end = |(hold, member): &(Arc<Hold>, usize)| {
            if hold.is_watched() { hold.ends() } else { self.outlasts.then(|| hold.deadline_of(*member)) }
        };
        let leaked = self.leaked.peek().filter(|_| self.outlasts).map(|Reverse(end)| *end);
        self.holds.iter().filter_map(end).chain(leaked).min()
    }

    /// Removes holds that have ended. They need nothing except a release.
    pub(crate) fn forget_ended(&mut self, now: Moment) {
        self.holds.retain(|(hold, member)| hold.relies_on(*member, now));
        self.forget_leaked(now);
    }

    fn forget_leaked(&mut self, now: Moment) {
        while self.leaked.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.leaked.pop();
        }
    }

    /// Counts a renewal that was due at this time.
    pub(crate) fn renewal_begins(&mut self, (due, _): Key) {
        if let Some((hold, _)) = self.holds.first() {
            self.renewing.begins(hold.metrics(), due);
        }
    }

    /// Counts a renewal that found nothing. If the holds were given back meanwhile, the release was faster.
    pub(crate) fn renewal_finds_nothing(&mut self) {
        if !self.holds.is_empty() {
            self.renewing.ends(Renewed::Gone);
        }
    }

    pub(crate) fn lose_all(&mut self) {
        if let Some(share) = &self.share {
            share.lose();
        }
        for (hold, member) in self.holds.drain(..) {
            hold.lose(member);
        }
        self.leaked.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::engine::hold::Term;
    use crate::engine::lock_ref::Subject;
    use crate::engine::grant::seat::Tenure;
    use crate::engine::grant::share::Shares;
    use crate::metrics::Held;
    use crate::protocol::Arg;

    /// A reader that still counts keeps the hold on the server for all. So a question must not count it out.
    #[test]
    fn a_question_leaves_no_share() {
        let (shares, now) = (Arc::<Shares>::default(), clock::now());
        let tenure = Tenure {
            id: Arg::Owner(Uuid::nil(), 1),
            number: 1,
            since: now,
            until: now.plus(Duration::from_secs(30)),
            renew_at: None,
            lease_ms: 30_000,
            switches: 0,
        };
        let first = shares.open(&"a".into(), tenure);
        let second = shares.join("a", Duration::MAX, Duration::ZERO, now, |_| true);
        let mut first = Desired { share: Some(first), ..Desired::default() };
        let mut second = Desired { share: second, ..Desired::default() };
        for _ in 0..2 {
            assert_eq!((first.keep(), second.keep()), (0, 0), "both have to leave");
        }
        first.leave_share();
        assert_eq!((first.keep(), second.keep()), (u32::MAX, 0), "the hold belongs to the second");
        second.leave_share();
        assert_eq!((first.keep(), second.keep()), (u32::MAX, 0), "the second releases it");
    }

    #[test]
    fn only_the_end_of_a_leaked_hold_is_kept() {
        let (mut desired, now) = (Desired::default(), clock::now());
        for number in 1..=100 {
            let end = now.plus(Duration::from_secs(number));
            let hold = Arc::new(Hold::new([end], 1, Term::default(), Subject::default(), Held::default()));
            desired.holds.push((Arc::clone(&hold), 0));
            desired.leak(&hold, now);
            assert_eq!(Arc::strong_count(&hold), 1, "nothing else refers to it");
        }
        assert_eq!(desired.live(now), 100);
        assert_eq!(desired.live(now.plus(Duration::from_secs(40))), 60);
        assert_eq!(desired.leaked.len(), 60, "those that ended are forgotten");
        desired.outlasts = true;
        assert_eq!(desired.next_end(), Some(now.plus(Duration::from_secs(41)).minus(EARLY)));
    }
}
