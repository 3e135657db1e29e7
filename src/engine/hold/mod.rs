//! One hold, and until when it can be relied on.
//!
//! [`lease`] says how long a hold lasts, in pure functions. [`deadline`] is what the machine of a grant sees of a hold.
//! [`effects`] collects what is reported after a mutex was unlocked.

pub(crate) mod deadline;
pub(crate) mod effects;
pub(crate) mod lease;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use super::members::PerMember;
use crate::base::clock::{self, Moment};
use crate::base::error::{LockId, LossCause, Lost};
use crate::base::sync::nothing_is_locked;
use crate::base::timer::sleep;
use crate::engine::hold::lease::quorum_deadline;
use crate::telemetry;

/// How often a waiter for the loss of a fixed lease reads the clock: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_secs(1);

/// Timers can fire a millisecond late. So a loss is reported this much earlier: before the deadline, not after it.
pub(crate) const EARLY: Duration = Duration::from_millis(2);

/// A deadline that has passed.
const LOST: u64 = 0;
/// The server no longer has the member. Stored with the loss, so whoever notices the loss first knows its cause.
const REMOVED: u64 = 1;

/// The hold of a guard. It has one deadline for each member of its lock. The hold is lost when fewer deadlines than the
/// quorum are still in the future.
///
/// Lost is final. Code that finds that a deadline has passed stores [`LOST`] by compare-and-set. A renewal moves a
/// deadline by compare-and-set from a value that had not passed. These two cannot both succeed: a hold that was seen as
/// lost is never seen as held again.
///
/// Looking at a hold and changing it tells nobody, because the caller often has a mutex locked, and a `tracing` layer,
/// a metrics recorder or a waker can run any code. [`tell_loss`](Self::tell_loss) tells, with nothing locked.
pub(crate) struct Hold {
    deadlines: PerMember<AtomicU64>,
    quorum: usize,
    term: Term,
    end_notify: Notify,
    subject: Subject,
    /// [`HELD`], [`GIVEN_BACK`], or [`REPORTED`] and the number of the cause.
    report: AtomicU8,
    metrics: telemetry::Held,
    /// The span of the hold, if a subscriber wants it. Boxed, because a process can have many holds.
    span: OnceLock<Box<Span>>,
}

/// A lock on one server, as errors and events name it.
pub(crate) trait Named: Send + Sync {
    fn lock_id(&self) -> LockId;
}

/// A lock of one or several members, as errors and events name it.
#[derive(Clone, Default)]
pub(crate) struct Subject {
    /// The name, as the user gave it. For several members, all their names.
    pub(crate) name: Arc<str>,
    pub(crate) members: PerMember<Arc<dyn Named>>,
}

impl Subject {
    pub(crate) fn id(&self) -> LockId {
        let ids: PerMember<LockId> = self.members.iter().map(|member| member.lock_id()).collect();
        let all = |of: fn(&LockId) -> &str| ids.iter().map(of).collect::<Vec<_>>().join(", ");
        LockId { name: self.name.to_string(), key: all(|id| &id.key), server: all(|id| &id.server) }
    }
}

/// What the watchdog renews for a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Renews {
    #[default]
    Nothing,
    /// The lease of the configuration.
    Usual,
    Lease(Duration),
}

/// How long a hold is to last.
#[derive(Clone, Copy, Default)]
pub(crate) struct Term {
    pub(crate) renews: Renews,
    /// The hold ends at this moment, even if its lease is renewed.
    pub(crate) ends: Option<Moment>,
    /// `max_hold` is no longer than the first lease.
    pub(crate) is_bounded: bool,
    /// The planned end of the hold is that of a leader's term, and no loss.
    pub(crate) is_of_leader: bool,
}

/// The hold was neither released nor reported as lost.
const HELD: u8 = 0;
/// The hold was released. This is no loss, unless the server says that the hold had ended before.
const GIVEN_BACK: u8 = 1;
/// The loss was reported. This value and those after it are the causes, in the order of their numbers.
const REPORTED: u8 = 2;

const fn reported(cause: LossCause) -> u8 {
    REPORTED + cause as u8
}

impl Hold {
    pub(crate) fn new(
        deadlines: impl IntoIterator<Item = Moment>,
        quorum: usize,
        term: Term,
        subject: Subject,
        metrics: telemetry::Held,
    ) -> Self {
        let cap = |deadline: Moment| term.ends.map_or(deadline, |ends| ends.min(deadline));
        let deadlines = deadlines.into_iter().map(|deadline| AtomicU64::new(cap(deadline).as_nanos()));
        let report = AtomicU8::new(HELD);
        let (end_notify, span) = (Notify::new(), OnceLock::new());
        Self { deadlines: deadlines.collect(), quorum, term, end_notify, subject, report, metrics, span }
    }

    pub(crate) fn lock(&self) -> LockId {
        self.subject.id()
    }

    /// Returns the error of a lost hold. If no loss was reported, a server said that it no longer has the hold.
    pub(crate) fn loss(&self) -> Lost {
        let reported = self.report.load(Ordering::Acquire).checked_sub(REPORTED);
        let cause = reported.and_then(|cause| LossCause::ALL.get(usize::from(cause)));
        Lost { lock: self.lock(), cause: cause.copied().unwrap_or(LossCause::Removed) }
    }

    pub(crate) const fn quorum(&self) -> usize {
        self.quorum
    }

    pub(crate) fn has_one_member(&self) -> bool {
        self.deadlines.len() == 1
    }

    pub(crate) const fn is_watched(&self) -> bool {
        !matches!(self.term.renews, Renews::Nothing)
    }

    /// The lease that the watchdog renews for the hold. `usual`: the lease of the configuration.
    pub(crate) const fn renewed_lease(&self, usual: Duration) -> Option<Duration> {
        match self.term.renews {
            Renews::Nothing => None,
            Renews::Usual => Some(usual),
            Renews::Lease(lease) => Some(lease),
        }
    }

    /// The moment at which the hold ends, even if its lease is renewed.
    pub(crate) const fn ends(&self) -> Option<Moment> {
        self.term.ends
    }

    pub(crate) fn is_lost(&self, now: Moment) -> bool {
        (0..self.deadlines.len()).filter(|&member| self.is_live(member, now)).count() < self.quorum
    }

    pub(crate) const fn metrics(&self) -> &telemetry::Held {
        &self.metrics
    }

    /// Puts later events about the hold into this span. The span ends with the last reference to this hold.
    pub(crate) fn begins(&self, span: Span) {
        if !span.is_disabled() {
            let _ = self.span.set(Box::new(span));
        }
    }

    pub(crate) fn span(&self) -> Span {
        self.span.get().map_or_else(Span::none, |span| Span::clone(span))
    }

    /// Until when the hold can be relied on; [`Moment::PAST`] if the hold is lost.
    pub(crate) fn deadline(&self) -> Moment {
        let deadlines = self.deadlines.iter().map(|cell| Moment::from_nanos(cell.load(Ordering::Acquire)));
        quorum_deadline(deadlines, self.quorum)
    }

    /// Until when one member is held and is of use. Without enough other members, a member is of no use.
    pub(crate) fn deadline_of(&self, member: usize) -> Moment {
        let deadline = Moment::from_nanos(self.deadlines[member].load(Ordering::Acquire));
        if self.deadlines.len() == 1 { deadline } else { deadline.min(self.deadline()) }
    }

    /// How long one member can be relied on.
    pub(crate) fn left(&self, member: usize, now: Moment) -> Duration {
        Moment::from_nanos(self.deadlines[member].load(Ordering::Acquire)).since(now)
    }

    /// Whether one member is held and is of use.
    pub(crate) fn relies_on(&self, member: usize, now: Moment) -> bool {
        self.is_live(member, now) && (self.deadlines.len() == 1 || !self.is_lost(now))
    }

    fn is_live(&self, member: usize, now: Moment) -> bool {
        let cell = &self.deadlines[member];
        let mut deadline = cell.load(Ordering::Acquire);
        loop {
            if deadline <= REMOVED {
                return false;
            }
            if now < Moment::from_nanos(deadline) {
                return true;
            }
            match cell.compare_exchange(deadline, LOST, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return false,
                Err(moved) => deadline = moved,
            }
        }
    }

    /// Moves a deadline forward. False: this member is lost already.
    pub(crate) fn advance(&self, member: usize, now: Moment, to: Moment) -> bool {
        let to = self.term.ends.map_or(to, |ends| ends.min(to));
        let cell = &self.deadlines[member];
        while self.is_live(member, now) {
            let deadline = cell.load(Ordering::Acquire);
            if deadline > REMOVED
                && (to.as_nanos() <= deadline
                    || cell
                        .compare_exchange(deadline, to.as_nanos(), Ordering::AcqRel, Ordering::Acquire)
                        .is_ok())
            {
                return true;
            }
        }
        false
    }

    /// Records that the server no longer has this member.
    pub(crate) fn lose(&self, member: usize) {
        self.deadlines[member].store(REMOVED, Ordering::Release);
    }

    /// Waits until the hold is released or lost. Returns whether it was released. Needs a timer, and no I/O.
    ///
    /// A hold that the watchdog renews costs a timer or two for each lease: after a suspend of the host, the watchdog
    /// finds by the clock which holds have ended. Nobody else looks at a fixed lease, so here the clock is read each
    /// second.
    pub(crate) async fn ended(&self) -> bool {
        loop {
            let mut end_notify = std::pin::pin!(self.end_notify.notified());
            // Enlist first, then look: an end in between is not missed.
            end_notify.as_mut().enable();
            if self.is_given_back() {
                return true;
            }
            let soon = clock::now().plus(EARLY);
            if self.is_found_lost(soon) {
                // Perhaps another thread gave the hold back between the two checks. Then its end is no loss.
                return self.is_given_back();
            }
            let left = self.deadline().since(soon);
            // For a renewed hold, sleep 7/8 of the time that is left: usually a renewal has moved the deadline by then.
            // If not, the last sleep is short, so the timer is exact although its clock and that of the deadline differ
            // a little.
            let most = if self.is_watched() { left - left / 8 } else { LOOK };
            tokio::select! {
                biased;
                () = end_notify => {}
                () = sleep(if left < LOOK { left } else { most }) => {}
            }
        }
    }

    /// Whether the hold is lost. If so, reports the loss: call this with nothing locked.
    pub(crate) fn is_found_lost(&self, now: Moment) -> bool {
        let is_lost = self.is_lost(now);
        if is_lost {
            self.tell_loss(now);
        }
        is_lost
    }

    /// Records that the guard was released, unless the hold is already lost. From now on, the end of the hold is no
    /// loss, and nobody relies on it. Call this with nothing locked.
    pub(crate) fn give_back(&self, now: Moment) {
        if !self.is_found_lost(now) {
            let _ = self.report.compare_exchange(HELD, GIVEN_BACK, Ordering::AcqRel, Ordering::Acquire);
            self.end_notify.notify_waiters();
            self.metrics.ends(now);
        }
    }

    /// Whether no guard has the hold any more. The server perhaps keeps it for a minimum hold time.
    pub(crate) fn is_given_back(&self) -> bool {
        self.report.load(Ordering::Acquire) == GIVEN_BACK
    }

    /// Records that the server no longer had this member when it was released. Returns whether that is a loss: it is
    /// none if enough other members were held until then.
    pub(crate) fn was_gone(&self, member: usize) -> bool {
        self.lose(member);
        // Count the members that were not lost, and do not ask the clock: while the release is under way, the lease of
        // a released member can end, and that is no loss.
        let was_held = |cell: &&AtomicU64| cell.load(Ordering::Acquire) > REMOVED;
        self.deadlines.iter().filter(was_held).count() < self.quorum
    }

    /// Wakes the futures that wait for the loss. If the hold is lost and was not released, also reports the loss, once.
    /// Runs code of the user, so call this with nothing locked.
    fn tell_loss(&self, now: Moment) {
        nothing_is_locked();
        self.end_notify.notify_waiters();
        let live = |cell: &&AtomicU64| cell.load(Ordering::Acquire) > now.as_nanos();
        let cause = self.cause(now);
        if self.deadlines.iter().filter(live).count() < self.quorum
            && self
                .report
                .compare_exchange(HELD, reported(cause), Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        {
            self.report_lost(cause, now);
        }
    }

    /// Reports that the hold was gone when it was released, if its loss was not reported before. Call this with nothing
    /// locked.
    fn tell_gone(&self, now: Moment) {
        let unless_reported = |was| (was < REPORTED).then_some(reported(LossCause::Removed));
        if self.report.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_reported).is_ok() {
            self.report_lost(LossCause::Removed, now);
        }
    }

    /// Emits the one event of a lost hold.
    fn report_lost(&self, cause: LossCause, now: Moment) {
        nothing_is_locked();
        if self.term.is_of_leader && matches!(cause, LossCause::LeaseEnded | LossCause::MaxHold) {
            self.metrics.ends(now);
            return;
        }
        self.metrics.is_lost(cause, now);
        let LockId { name, key, server, .. } = self.subject.id();
        let _inside = self.span().entered();
        tracing::warn!(lock = name, key, server, %cause, "a lock was lost");
    }

    /// Returns why the hold was lost: somebody removed it if it would be held with the members that were removed.
    fn cause(&self, now: Moment) -> LossCause {
        let deadlines = self.deadlines.iter().map(|cell| cell.load(Ordering::Acquire));
        if deadlines.filter(|&deadline| deadline == REMOVED || deadline > now.as_nanos()).count()
            >= self.quorum
        {
            LossCause::Removed
        } else if self.term.is_bounded || self.term.ends.is_some_and(|ends| ends <= now) {
            LossCause::MaxHold
        } else if self.is_watched() {
            LossCause::NotRenewed
        } else {
            LossCause::LeaseEnded
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn held(deadlines: impl IntoIterator<Item = Moment>, quorum: usize, ends: Option<Moment>) -> Hold {
        let term = Term { renews: Renews::Usual, ends, is_bounded: false, is_of_leader: false };
        Hold::new(deadlines, quorum, term, Subject::default(), telemetry::Held::default())
    }

    #[test]
    fn a_deadline_moves_only_forward() {
        let hold = held([at(10)], 1, None);
        assert!(hold.advance(0, at(5), at(20)));
        assert_eq!(hold.deadline(), at(20));
        assert!(hold.advance(0, at(5), at(15)));
        assert_eq!(hold.deadline(), at(20));
    }

    #[test]
    fn a_late_renewal_does_not_revive_a_lost_hold() {
        let hold = held([at(10)], 1, None);
        assert!(!hold.is_lost(at(9)));
        assert!(hold.is_lost(at(10)));
        assert!(!hold.advance(0, at(9), at(20)), "lost is final, also for a reader with an earlier time");
        assert!(hold.is_lost(at(9)));
        assert_eq!(hold.deadline(), Moment::PAST);

        let unseen = held([at(10)], 1, None);
        assert!(!unseen.advance(0, at(10), at(20)), "nobody had noticed yet");
    }

    #[test]
    fn a_hold_ends_at_its_longest_hold() {
        let hold = held([at(30)], 1, Some(at(25)));
        assert_eq!(hold.deadline(), at(25));
        assert!(hold.advance(0, at(5), at(40)));
        assert_eq!(hold.deadline(), at(25));
    }

    #[test]
    fn a_hold_lasts_as_long_as_a_quorum_of_its_members() {
        let hold = held([at(10), at(30), Moment::PAST], 2, None);
        assert!(!hold.is_lost(at(9)));
        assert!(hold.is_lost(at(10)));
        assert!(!hold.advance(0, at(10), at(30)));
        assert!(hold.is_lost(at(10)), "a lost member does not come back");
    }

    #[test]
    fn a_loss_has_its_cause_whoever_notices_it_first() {
        let removed = held([at(10)], 1, None);
        removed.lose(0);
        assert!(removed.is_found_lost(at(5)), "noticed before the answer of the server is reported");
        removed.tell_loss(at(5));
        assert_eq!(removed.loss().cause, LossCause::Removed);

        let majority = held([at(10), at(30), at(30)], 2, None);
        majority.lose(0);
        assert!(!majority.is_found_lost(at(5)));
        assert!(majority.is_found_lost(at(30)));
        assert_eq!(majority.loss().cause, LossCause::NotRenewed);

        let least = held([Moment::PAST, at(30), at(30)], 2, None); // the first member was never granted
        least.lose(1);
        assert!(least.is_found_lost(at(5)));
        assert_eq!(least.loss().cause, LossCause::Removed);
    }

    #[test]
    fn a_renewal_beside_a_reader_never_shows_lost_and_then_held() {
        for _ in 0..200 {
            let hold = Arc::new(held([at(10)], 1, None));
            let renewing = std::thread::spawn({
                let hold = Arc::clone(&hold);
                move || hold.advance(0, at(9), at(20))
            });
            let was_lost = hold.is_lost(at(10));
            let renewed = renewing.join().expect("does not panic");
            assert!(!was_lost || hold.is_lost(at(9)), "revived");
            assert_eq!(renewed, !was_lost, "exactly one of the two wins");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_the_server_ends_it() {
        let hold = Arc::new(held([clock::now().plus(Duration::from_secs(3_600))], 1, None));
        let waiter = tokio::spawn({
            let hold = Arc::clone(&hold);
            async move { hold.ended().await }
        });
        tokio::task::yield_now().await;
        hold.lose(0);
        hold.tell_loss(clock::now());
        assert!(!waiter.await.expect("told"), "it was lost");
    }
}
