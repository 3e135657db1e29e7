//! One hold, and until when it can be relied on.
//!
//! [`lease`] says how long a hold lasts, in pure functions.

pub(crate) mod lease;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use crate::base::clock::{self, Moment};
use crate::base::error::{LockId, LossCause, Lost};
use crate::base::options::Lease;
use crate::base::sync::nothing_is_locked;
use crate::base::timer::sleep;
use crate::telemetry;

/// How often a waiter for the loss of a fixed lease reads the clock: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_secs(1);

/// Timers can fire a millisecond late. So a loss is reported this much earlier: before the deadline, not after it.
pub(crate) const EARLY: Duration = Duration::from_millis(2);

/// A deadline that has passed.
const LOST: u64 = 0;
/// The server no longer has the hold. Stored with the loss, so whoever notices the loss first knows its cause.
const REMOVED: u64 = 1;

/// The hold of a guard on one lock. It is lost when its deadline has passed.
///
/// Lost is final. Code that finds that the deadline has passed stores [`LOST`] by compare-and-set. A renewal moves the
/// deadline by compare-and-set from a value that had not passed. These two cannot both succeed: a hold that was seen as
/// lost is never seen as held again.
///
/// Looking at a hold and changing it tells nobody, because the caller often has a mutex locked, and a `tracing` layer,
/// a metrics recorder or a waker can run any code. [`tell_loss`](Self::tell_loss) tells, with nothing locked.
pub(crate) struct Hold {
    deadline: AtomicU64,
    pub(crate) term: Term,
    end_notify: Notify,
    lock: Arc<dyn Named>,
    /// [`HELD`], [`GIVEN_BACK`], or [`REPORTED`] and the number of the cause.
    report: AtomicU8,
    pub(crate) metrics: telemetry::Held,
    /// The span of the hold, if a subscriber wants it. Boxed, because a process can have many holds.
    span: OnceLock<Box<Span>>,
}

/// A lock on one server, as errors and events name it.
pub(crate) trait Named: Send + Sync {
    fn lock_id(&self) -> LockId;
}

/// How long a hold is to last.
#[derive(Clone, Copy, Default)]
pub(crate) struct Term {
    pub(crate) lease: Lease,
    /// The hold ends at this moment, even if its lease is renewed.
    pub(crate) ends: Option<Moment>,
    /// `max_hold` is no longer than the first lease.
    pub(crate) is_bounded: bool,
    /// The planned end of the hold is that of a leader's term, and no loss.
    pub(crate) is_of_leader: bool,
    /// The hold belongs to a lock of several, so no other owner takes it over.
    pub(crate) is_member: bool,
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
    pub(crate) fn new(deadline: Moment, term: Term, lock: Arc<dyn Named>, metrics: telemetry::Held) -> Self {
        let deadline = term.ends.map_or(deadline, |ends| ends.min(deadline));
        Self {
            deadline: AtomicU64::new(deadline.as_nanos()),
            term,
            end_notify: Notify::new(),
            lock,
            report: AtomicU8::new(HELD),
            metrics,
            span: OnceLock::new(),
        }
    }

    pub(crate) fn lock(&self) -> LockId {
        self.lock.lock_id()
    }

    /// Returns the error of a lost hold. If no loss was reported, a server said that it no longer has the hold.
    pub(crate) fn loss(&self) -> Lost {
        let reported = self.report.load(Ordering::Acquire).checked_sub(REPORTED);
        let cause = reported.and_then(|cause| LossCause::ALL.get(usize::from(cause)));
        Lost { lock: self.lock(), cause: cause.copied().unwrap_or(LossCause::Removed) }
    }

    pub(crate) const fn is_watched(&self) -> bool {
        !matches!(self.term.lease, Lease::Fixed(_))
    }

    /// The lease that the watchdog renews for the hold. `usual`: the lease of the configuration. `None`: the hold is not
    /// renewed.
    pub(crate) const fn renewed_lease(&self, usual: Duration) -> Option<Duration> {
        match self.term.lease {
            Lease::Usual => Some(usual),
            Lease::Renewed(lease) => Some(lease),
            Lease::Fixed(_) => None,
        }
    }

    /// Whether the watchdog renews the hold with the lease of the configuration, as long as somebody has it.
    pub(crate) const fn is_usual(&self) -> bool {
        matches!(self.term.lease, Lease::Usual) && self.term.ends.is_none()
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
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn is_lost(&self, now: Moment) -> bool {
        let mut deadline = self.deadline.load(Ordering::Acquire);
        loop {
            if deadline <= REMOVED {
                return true;
            }
            if now < Moment::from_nanos(deadline) {
                return false;
            }
            match self.deadline.compare_exchange(deadline, LOST, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(moved) => deadline = moved,
            }
        }
    }

    /// Moves the deadline forward. False: the hold is lost already.
    pub(crate) fn advance(&self, now: Moment, to: Moment) -> bool {
        let to = self.term.ends.map_or(to, |ends| ends.min(to)).as_nanos();
        while !self.is_lost(now) {
            let deadline = self.deadline.load(Ordering::Acquire);
            if deadline > REMOVED
                && (to <= deadline
                    || self
                        .deadline
                        .compare_exchange(deadline, to, Ordering::AcqRel, Ordering::Acquire)
                        .is_ok())
            {
                return true;
            }
        }
        false
    }

    /// Records that the server no longer has the hold.
    pub(crate) fn lose(&self) {
        self.deadline.store(REMOVED, Ordering::Release);
    }

    /// Whether the server said that it no longer has the hold.
    pub(crate) fn is_removed(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == REMOVED
    }

    /// Waits until the hold is released or lost. Returns whether it was released. Needs a timer, and no I/O.
    ///
    /// A hold that the watchdog renews costs a timer or two for each lease: after a suspend of the host, the watchdog
    /// finds by the clock which holds have ended. Nobody else looks at a fixed lease, so here the clock is read each
    /// second.
    pub(crate) async fn ended(&self) -> bool {
        loop {
            // Before the look, so an end in between is not missed.
            let end_notify = self.end_notify.notified();
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
    /// loss, and nobody relies on it. Returns whether it is lost. [`tell_end`](Self::tell_end) follows.
    pub(crate) fn give_back(&self, now: Moment) -> bool {
        let is_lost = self.is_lost(now);
        if !is_lost {
            let _ = self.report.compare_exchange(HELD, GIVEN_BACK, Ordering::AcqRel, Ordering::Acquire);
        }
        is_lost
    }

    /// Tells that the hold was given back or is lost, when its guard has done the rest: a panic of the user's code must not keep the lock.
    /// Call this with nothing locked.
    pub(crate) fn tell_end(&self, now: Moment) {
        if self.is_given_back() {
            nothing_is_locked();
            self.end_notify.notify_waiters();
            self.metrics.ends(now);
        } else {
            self.tell_loss(now);
        }
    }

    /// Whether no guard has the hold any more. The server perhaps keeps it for a minimum hold time.
    pub(crate) fn is_given_back(&self) -> bool {
        self.report.load(Ordering::Acquire) == GIVEN_BACK
    }

    /// Wakes the futures that wait for the loss. If the hold is lost and was not released, also reports the loss, once.
    /// Runs code of the user, so call this with nothing locked.
    pub(crate) fn tell_loss(&self, now: Moment) {
        nothing_is_locked();
        self.end_notify.notify_waiters();
        let cause = self.cause(now);
        if self.deadline() <= now
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
    pub(crate) fn tell_gone(&self, now: Moment) {
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
        let LockId { name, key, server, .. } = self.lock();
        let _inside = self.span().entered();
        tracing::warn!(lock = name, key, server, %cause, "a lock was lost");
    }

    /// Returns why the hold was lost.
    fn cause(&self, now: Moment) -> LossCause {
        if self.is_removed() {
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
pub(crate) mod tests {
    use super::*;

    /// Stands for the lock of a hold in tests.
    pub(crate) struct Nobody;

    impl Nobody {
        pub(crate) fn lock() -> Arc<dyn Named> {
            Arc::new(Self)
        }
    }

    impl Named for Nobody {
        fn lock_id(&self) -> LockId {
            LockId { name: String::new(), key: String::new(), server: String::new() }
        }
    }

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn held(deadline: Moment, ends: Option<Moment>) -> Hold {
        let term = Term { ends, ..Term::default() };
        Hold::new(deadline, term, Nobody::lock(), telemetry::Held::default())
    }

    #[test]
    fn a_deadline_moves_only_forward() {
        let hold = held(at(10), None);
        assert!(hold.advance(at(5), at(20)));
        assert_eq!(hold.deadline(), at(20));
        assert!(hold.advance(at(5), at(15)));
        assert_eq!(hold.deadline(), at(20));
    }

    #[test]
    fn a_late_renewal_does_not_revive_a_lost_hold() {
        let hold = held(at(10), None);
        assert!(!hold.is_lost(at(9)));
        assert!(hold.is_lost(at(10)));
        assert!(!hold.advance(at(9), at(20)), "lost is final, also for a reader with an earlier time");
        assert!(hold.is_lost(at(9)));
        assert_eq!(hold.deadline(), Moment::PAST);

        let unseen = held(at(10), None);
        assert!(!unseen.advance(at(10), at(20)), "nobody had noticed yet");
    }

    #[test]
    fn a_hold_ends_at_its_longest_hold() {
        let hold = held(at(30), Some(at(25)));
        assert_eq!(hold.deadline(), at(25));
        assert!(hold.advance(at(5), at(40)));
        assert_eq!(hold.deadline(), at(25));
    }

    #[test]
    fn a_loss_has_its_cause_whoever_notices_it_first() {
        let removed = held(at(10), None);
        removed.lose();
        assert!(removed.is_found_lost(at(5)), "noticed before the answer of the server is reported");
        removed.tell_loss(at(5));
        assert_eq!(removed.loss().cause, LossCause::Removed);
    }

    #[test]
    fn a_renewal_beside_a_reader_never_shows_lost_and_then_held() {
        for _ in 0..200 {
            let hold = Arc::new(held(at(10), None));
            let renewing = std::thread::spawn({
                let hold = Arc::clone(&hold);
                move || hold.advance(at(9), at(20))
            });
            let was_lost = hold.is_lost(at(10));
            let renewed = renewing.join().expect("does not panic");
            assert!(!was_lost || hold.is_lost(at(9)), "revived");
            assert_eq!(renewed, !was_lost, "exactly one of the two wins");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_the_server_ends_it() {
        let hold = Arc::new(held(clock::now().plus(Duration::from_secs(3_600)), None));
        let waiter = tokio::spawn({
            let hold = Arc::clone(&hold);
            async move { hold.ended().await }
        });
        tokio::task::yield_now().await;
        hold.lose();
        hold.tell_loss(clock::now());
        assert!(!waiter.await.expect("told"), "it was lost");
    }
}
