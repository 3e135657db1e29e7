//! What this process wants to hold of a grant.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tokio::task;

use crate::base::Caller;
use crate::base::clock::Moment;
use crate::base::sync::{MutexGuard, lock};
use crate::engine::hold::effects::Effects;
use crate::engine::hold::{EARLY, Hold};
use crate::engine::members::PerMember;
use crate::engine::observer::Lasting;
use crate::engine::scheduler::Slot;
use crate::telemetry::{Renewed, Renewing};

/// What this process wants to hold. It changes at once, even in a `drop`.
#[derive(Default)]
pub(crate) struct Desired {
    /// The owners that stand on this grant: one, or the readers of this client that share a hold of the server.
    pub(crate) owners: SmallVec<[OwnerPart; 1]>,
    /// Offers to the waiters of this client. While there is one, the hold stays on the server.
    pub(crate) offers: u32,
    /// Holds that were given back, and which of their members this grant is. The server has not said yet whether it still had them.
    pub(crate) given_back: PerMember<(Arc<Hold>, usize)>,
    /// A read hold of this owner uses the id of this grant.
    pub(crate) is_lent: bool,
    /// Others rely on it that this owner holds the lock: no other owner of this client gets the hold.
    pub(crate) is_reserved: bool,
    /// Whether other readers of this client can join.
    pub(crate) joining: Joining,
    /// The client was shut down while nobody polled the acquires under way: they get nothing.
    pub(crate) is_given_up: bool,
    /// The server was found to have nothing of this grant.
    pub(crate) is_gone: bool,
    /// The lease that the server counts, and its renewal.
    pub(crate) lease: Lease,
    /// The place in the lock's queue.
    pub(crate) place: Place,
}

/// What one owner has of a grant.
pub(crate) struct OwnerPart {
    owner: OwnerKey,
    /// The task that began. Another task that re-enters shares a handle that it should not share.
    task: Option<task::Id>,
    /// Where in the program it began.
    caller: Caller,
    /// Acquires under way. A release meanwhile must not take away what the server grants to them.
    pub(crate) pending: u32,
    /// The holds of guards, and which of their members this grant is.
    pub(crate) holds: PerMember<(Arc<Hold>, usize)>,
    /// When the leaked holds end.
    leaked: BinaryHeap<Reverse<Moment>>,
}

/// The lease that the server counts, and its renewal.
#[derive(Default)]
pub(crate) struct Lease {
    /// When the server granted the lock; long ago if the hold is too old to be handed over.
    pub(crate) since: Option<Moment>,
    /// When the server granted the lock.
    pub(crate) granted_at: Moment,
    /// Once an observer was told that the hold lasts.
    pub(crate) lasting: Option<Box<Lasting>>,
    /// The deadline of what the server granted or renewed last.
    pub(crate) until: Moment,
    /// Nobody releases the last hold before that, although it perhaps ended for this process.
    pub(crate) stays_until: Moment,
    /// The server can keep the lock for longer than a hold lasts.
    pub(crate) outlasts: bool,
    /// When it is to be renewed.
    pub(crate) renew_at: Option<Moment>,
    /// The lease that the renewal under way asks for. `None`: it only restores a lease that another client shortened.
    pub(crate) asked: Option<Duration>,
    pub(crate) slot: Slot,
    pub(crate) renewing: Renewing,
}

/// The place of a grant in the queue of a fair lock.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) is_kept: bool,
    pub(crate) heartbeat: Slot,
}

/// Whether other readers of the client can join a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Joining {
    #[default]
    NotYet,
    Open,
    Closed,
}

/// Distinguishes the owners of this process that stand on one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerKey(u64);

impl Default for OwnerKey {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl OwnerPart {
    /// Counts the holds that can be relied on now, and that the owner has.
    fn live(&self, now: Moment) -> u32 {
        self.count(now, |hold| !hold.is_given_back())
    }

    /// The same, with those that are kept for a minimum hold time.
    pub(crate) fn with_kept(&self, now: Moment) -> u32 {
        self.count(now, |_| true)
    }

    fn count(&self, now: Moment, counts: impl Fn(&Hold) -> bool) -> u32 {
        let is_live = |(hold, member): &&(Arc<Hold>, usize)| counts(hold) && hold.relies_on(*member, now);
        let leaked = self.leaked.iter().filter(|Reverse(end)| *end > now).count();
        u32::try_from(self.holds.iter().filter(is_live).count() + leaked).unwrap_or(u32::MAX)
    }

    fn has_holds(&self) -> bool {
        !self.holds.is_empty() || !self.leaked.is_empty()
    }
}

impl Desired {
    /// For a grant that an owner begins to acquire.
    pub(crate) fn pending(owner: OwnerKey, caller: Caller) -> Self {
        let mut desired = Self::default();
        desired.attach(owner, caller);
        desired
    }

    /// Adds an owner that is about to get a hold.
    pub(crate) fn attach(&mut self, owner: OwnerKey, caller: Caller) {
        if let Some(part) = self.part(owner) {
            part.pending += 1;
            return;
        }
        let (holds, leaked) = (smallvec![], BinaryHeap::new());
        self.owners.push(OwnerPart { owner, task: task::try_id(), caller, pending: 1, holds, leaked });
    }

    pub(crate) fn part(&mut self, owner: OwnerKey) -> Option<&mut OwnerPart> {
        self.owners.iter_mut().find(|part| part.owner == owner)
    }

    /// An acquire of an owner has ended.
    pub(crate) fn ends_pending(&mut self, owner: OwnerKey) {
        if let Some(part) = self.part(owner) {
            part.pending -= 1;
            self.tidy();
        }
    }

    /// Forgets owners that have nothing here.
    fn tidy(&mut self) {
        self.owners.retain(|part| part.pending > 0 || part.has_holds());
    }

    pub(crate) fn holds(&self) -> impl Iterator<Item = &(Arc<Hold>, usize)> {
        self.owners.iter().flat_map(|part| &part.holds)
    }

    /// Counts the holds that an owner has, and that can be relied on now.
    pub(crate) fn live(&self, owner: OwnerKey, now: Moment) -> u32 {
        self.owners.iter().find(|part| part.owner == owner).map_or(0, |part| part.live(now))
    }

    /// Counts what is to be left on the server: the holds and the acquires under way of the owner that has most of them. It is at least one
    /// during an offer or a minimum hold time.
    pub(crate) fn target_count(&self, now: Moment) -> u32 {
        let pending = |part: &OwnerPart| if self.is_given_up { 0 } else { part.pending };
        let wanted = |part| OwnerPart::with_kept(part, now) + pending(part);
        let stays = self.offers > 0 || now < self.lease.stays_until;
        self.owners.iter().map(wanted).fold(u32::from(stays), u32::max)
    }

    /// Whether that count depends on the time.
    pub(crate) fn depends_on_time(&self) -> bool {
        self.lease.stays_until != Moment::PAST || self.owners.iter().any(OwnerPart::has_holds)
    }

    /// Whether somebody here still holds the lock, or is to be handed it. Nobody has a leaked hold.
    pub(crate) fn is_in_use(&self, now: Moment) -> bool {
        let has_some = |part: &OwnerPart| !part.holds.is_empty() || part.pending > 0;
        (self.offers > 0 || self.owners.iter().any(has_some)) && self.target_count(now) > 0
    }

    /// Whether this hold is all that there is.
    pub(crate) fn has_only(&self, hold: &Arc<Hold>) -> bool {
        let is_only = match &self.owners[..] {
            [part] if !self.is_reserved => {
                part.pending == 0
                    && part.leaked.is_empty()
                    && matches!(&part.holds[..], [(only, _)] if Arc::ptr_eq(only, hold))
            }
            _ => false,
        };
        is_only && self.given_back.is_empty() && self.offers == 0 && !self.is_lent && !self.is_gone
    }

    /// Whether the server granted the lock at some time.
    pub(crate) const fn was_held(&self) -> bool {
        self.lease.since.is_some()
    }

    /// Whether somebody is acquiring.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_given_up && self.owners.iter().any(|part| part.pending > 0)
    }

    /// Removes a hold. Returns whose it was, and which of its members this grant is.
    pub(crate) fn remove(&mut self, hold: &Arc<Hold>) -> Option<(OwnerKey, usize)> {
        let (member, part) = self.take(hold)?;
        let owner = part.owner;
        self.tidy();
        Some((owner, member))
    }

    /// Whether no other owner stands on the grant, or is offered its hold.
    pub(crate) fn is_only_of(&self, owner: OwnerKey) -> bool {
        self.offers == 0 && self.owners.iter().all(|part| part.owner == owner)
    }

    /// Leaves a hold to end by itself. Only its end is kept. False: it has ended.
    pub(crate) fn leak(&mut self, hold: &Arc<Hold>, now: Moment) -> bool {
        let left = self.take(hold).filter(|(member, _)| hold.relies_on(*member, now));
        let is_left = left.is_some();
        if let Some((member, part)) = left {
            // No later than a guard would report its loss.
            part.leaked.push(Reverse(hold.deadline_of(member).minus(EARLY)));
        }
        self.tidy();
        is_left
    }

    fn take(&mut self, hold: &Arc<Hold>) -> Option<(usize, &mut OwnerPart)> {
        self.owners.iter_mut().find_map(|part| {
            let index = part.holds.iter().position(|(other, _)| Arc::ptr_eq(other, hold))?;
            Some((part.holds.swap_remove(index).1, part))
        })
    }

    /// Returns the next end of a hold that the server can keep for longer.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        let outlasts = self.lease.outlasts;
        let end = |(hold, member): &(Arc<Hold>, usize)| {
            if hold.is_watched() { hold.ends() } else { outlasts.then(|| hold.deadline_of(*member)) }
        };
        let leaked = self.owners.iter().filter_map(|part| part.leaked.peek()).filter(|_| outlasts);
        let stays_until = Some(self.lease.stays_until).filter(|until| *until != Moment::PAST);
        // If the last hold ended before, nobody else releases it then. A leaked one is left to the server.
        let stays_until = stays_until.filter(|_| !self.owners.iter().any(OwnerPart::has_holds));
        self.holds().filter_map(end).chain(leaked.map(|Reverse(end)| *end)).chain(stays_until).min()
    }

    /// Removes holds that have ended. They need nothing except a release.
    pub(crate) fn forget_ended(&mut self, now: Moment, effects: &mut Effects) {
        self.forget_stay(now);
        for part in &mut self.owners {
            let mut index = 0;
            while let Some((hold, member)) = part.holds.get(index) {
                if hold.relies_on(*member, now) {
                    index += 1;
                } else {
                    effects.left(part.holds.swap_remove(index).0);
                }
            }
            while part.leaked.peek().is_some_and(|Reverse(end)| *end <= now) {
                part.leaked.pop();
            }
        }
        self.tidy();
    }

    /// Leaves the last hold on the server until then.
    pub(crate) fn stays_until(&mut self, until: Moment) {
        self.lease.stays_until = until.max(self.lease.stays_until);
    }

    /// Forgets a minimum hold time that is over.
    pub(crate) fn forget_stay(&mut self, now: Moment) {
        if self.lease.stays_until <= now {
            self.lease.stays_until = Moment::PAST;
        }
    }

    /// Whether another task than this one began what an owner has.
    pub(crate) fn is_foreign(&self, owner: OwnerKey) -> bool {
        let began = self.owners.iter().find(|part| part.owner == owner).and_then(|part| part.task);
        matches!((began, task::try_id()), (Some(began), Some(this)) if began != this)
    }

    /// Where in the program the first of the holds was acquired that can be relied on.
    pub(crate) fn held_at(&self, now: Moment) -> Option<Caller> {
        self.owners.iter().find(|part| part.live(now) > 0).map(|part| part.caller)
    }

    pub(crate) fn lose_all(&mut self, effects: &mut Effects) {
        for part in &mut self.owners {
            part.holds.drain(..).for_each(|(hold, member)| effects.loses(hold, member));
            part.leaked.clear();
        }
        self.lease.stays_until = Moment::PAST;
        self.tidy();
    }
}

/// The desired state, locked. Dropping it unlocks, and then tells what happened.
pub(crate) struct Locked<'a> {
    /// `None` while it is dropped.
    desired: Option<MutexGuard<'a, Desired>>,
    effects: Effects,
}

impl<'a> Locked<'a> {
    pub(crate) fn new(desired: &'a Mutex<Desired>) -> Self {
        Self { desired: Some(lock(desired)), effects: Effects::default() }
    }

    /// The state, and what is told after it is unlocked.
    pub(crate) fn with_effects(&mut self) -> (&mut Desired, &mut Effects) {
        (self.desired.as_mut().expect("BUG: used after the drop"), &mut self.effects)
    }

    /// The hold has ended, or nobody knows it any more.
    pub(crate) fn no_longer_lasts(&mut self) {
        let (desired, effects) = self.with_effects();
        effects.ended(desired.lease.lasting.take());
    }

    /// The renewal under way ended.
    pub(crate) fn renewal_ends(&mut self, outcome: Renewed) {
        let (desired, effects) = self.with_effects();
        effects.renewed(desired.lease.renewing.ends(outcome), outcome);
    }

    /// Forgets the first of the holds that were given back: the server was asked about them.
    pub(crate) fn forget_given_back(&mut self, count: usize) {
        let (desired, effects) = self.with_effects();
        let count = count.min(desired.given_back.len());
        desired.given_back.drain(..count).for_each(|(hold, _)| effects.left(hold));
    }
}

impl Deref for Locked<'_> {
    type Target = Desired;

    fn deref(&self) -> &Desired {
        self.desired.as_ref().expect("BUG: used after the drop")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Desired {
        self.with_effects().0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        drop(self.desired.take());
        std::mem::take(&mut self.effects).perform();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::time::Duration;

    use super::*;
    use crate::engine::hold::{Subject, Term};
    use crate::telemetry::Held;

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);

    fn hold(desired: &mut Desired, owner: OwnerKey, end: Moment) -> Arc<Hold> {
        let hold = Arc::new(Hold::new([end], 1, Term::default(), Subject::default(), Held::default()));
        if desired.part(owner).is_none() {
            desired.attach(owner, Location::caller());
            desired.part(owner).expect("attached").pending = 0;
        }
        desired.part(owner).expect("attached").holds.push((Arc::clone(&hold), 0));
        hold
    }

    #[test]
    fn the_target_is_what_the_owner_with_most_holds_wants() {
        let (mut desired, end) = (Desired::default(), NOW.plus(Duration::from_secs(30)));
        let [one, two] = [OwnerKey::default(), OwnerKey::default()];
        assert_eq!(desired.target_count(NOW), 0);
        desired.attach(one, Location::caller());
        assert_eq!(desired.target_count(NOW), 1, "an acquire under way");
        let first = hold(&mut desired, one, end);
        let readers = [hold(&mut desired, two, end), hold(&mut desired, two, end)];
        assert_eq!(desired.target_count(NOW), 2, "one and an acquire, beside two");
        desired.ends_pending(one);
        desired.leak(&readers[0], NOW);
        assert_eq!((desired.target_count(NOW), desired.live(two, NOW)), (2, 2), "one of the two is leaked");
        desired.remove(&readers[1]);
        assert_eq!(desired.target_count(NOW), 1);
        desired.offers = 1;
        desired.remove(&first);
        desired.lose_all(&mut Effects::default());
        assert_eq!((desired.target_count(NOW), desired.owners.len()), (1, 0), "the offer");
    }

    #[test]
    fn the_last_hold_stays_for_the_longest_minimum_hold_time_and_is_released_then() {
        let (mut desired, owner) = (Desired::default(), OwnerKey::default());
        let [soon, later] = [20, 60].map(|seconds| NOW.plus(Duration::from_secs(seconds)));
        let lost = hold(&mut desired, owner, NOW.plus(Duration::from_secs(10)));
        desired.stays_until(later);
        desired.stays_until(soon);
        assert_eq!((desired.target_count(NOW), desired.next_end()), (1, None), "its hold is renewed");
        desired.forget_ended(soon, &mut Effects::default());
        assert_eq!((desired.live(owner, soon), desired.target_count(soon)), (0, 1), "the hold has ended");
        assert_eq!(desired.next_end(), Some(later), "nobody else releases it");
        desired.forget_ended(later, &mut Effects::default());
        assert_eq!((desired.target_count(later), desired.next_end()), (0, None));
        drop(lost);
    }

    #[test]
    fn only_the_end_of_a_leaked_hold_is_kept() {
        let (mut desired, owner) = (Desired::default(), OwnerKey::default());
        for number in 1..=100 {
            let hold = hold(&mut desired, owner, NOW.plus(Duration::from_secs(number)));
            desired.leak(&hold, NOW);
            assert_eq!(Arc::strong_count(&hold), 1, "nothing else refers to it");
        }
        assert_eq!(desired.live(owner, NOW), 100);
        let later = NOW.plus(Duration::from_secs(40));
        desired.forget_ended(later, &mut Effects::default());
        assert_eq!(desired.live(owner, later), 60);
        assert_eq!(desired.owners[0].leaked.len(), 60, "those that ended are forgotten");
        desired.lease.outlasts = true;
        assert_eq!(desired.next_end(), Some(NOW.plus(Duration::from_secs(41)).minus(EARLY)));
    }
}
