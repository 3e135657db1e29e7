//! One hold: how long it may be relied on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::PerMember;
use super::lease::quorum_deadline;
use crate::clock::{self, Moment};

/// How often somebody who waits for a loss looks at the clock: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_secs(1);

/// Timers are a millisecond late. The loss is told before the deadline, not after it.
const EARLY: Duration = Duration::from_millis(2);

const LOST: u64 = 0;

/// What a guard stands for. It has one deadline per member of its lock, and is lost once fewer than a quorum of
/// them lie ahead.
///
/// Lost is final. Whoever finds a deadline passed stores [`LOST`] by compare-and-set, and whoever moves one does so
/// by compare-and-set from a value that had not passed. So the two can not both succeed: what was seen as lost is
/// never seen as held again.
#[derive(Debug)]
pub(crate) struct Hold {
    deadlines: PerMember<AtomicU64>,
    quorum: usize,
    /// The watchdog renews it.
    is_watched: bool,
    /// Its lease is left to end by itself.
    is_leaked: AtomicBool,
    /// It is not kept beyond this moment, whatever is renewed.
    ends: Option<Moment>,
    told: Notify,
}

impl Hold {
    pub(crate) fn new(
        deadlines: impl IntoIterator<Item = Moment>,
        quorum: usize,
        is_watched: bool,
        ends: Option<Moment>,
    ) -> Self {
        let cap = |deadline: Moment| AtomicU64::new(ends.map_or(deadline, |e| e.min(deadline)).as_nanos());
        let deadlines = deadlines.into_iter().map(cap).collect();
        Self { deadlines, quorum, is_watched, is_leaked: AtomicBool::new(false), ends, told: Notify::new() }
    }

    pub(crate) fn members(&self) -> usize {
        self.deadlines.len()
    }

    pub(crate) const fn quorum(&self) -> usize {
        self.quorum
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched && !self.is_leaked()
    }

    pub(crate) fn is_leaked(&self) -> bool {
        self.is_leaked.load(Ordering::Relaxed)
    }

    /// Its lease is left to end by itself.
    pub(crate) fn leak(&self) {
        self.is_leaked.store(true, Ordering::Relaxed);
    }

    /// Whether it was to end by now, whatever was renewed.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }

    /// The moment at which it is to end.
    pub(crate) const fn ends(&self) -> Option<Moment> {
        self.ends
    }

    pub(crate) fn is_lost(&self, now: Moment) -> bool {
        (0..self.deadlines.len()).filter(|&member| self.is_live(member, now)).count() < self.quorum
    }

    /// Until when it may be relied on; [`Moment::PAST`] if it is lost.
    pub(crate) fn deadline(&self) -> Moment {
        let deadlines = self.deadlines.iter().map(|d| Moment::from_nanos(d.load(Ordering::Acquire)));
        quorum_deadline(deadlines, self.quorum)
    }

    /// For how long one member can be relied on.
    pub(crate) fn left(&self, member: usize, now: Moment) -> Duration {
        Moment::from_nanos(self.deadlines[member].load(Ordering::Acquire)).since(now)
    }

    /// Whether one member is held, and for something: with too few of the others, it is not.
    pub(crate) fn relies_on(&self, member: usize, now: Moment) -> bool {
        self.is_live(member, now) && (self.deadlines.len() == 1 || !self.is_lost(now))
    }

    fn is_live(&self, member: usize, now: Moment) -> bool {
        let cell = &self.deadlines[member];
        let mut deadline = cell.load(Ordering::Acquire);
        loop {
            if deadline == LOST {
                return false;
            }
            if now < Moment::from_nanos(deadline) {
                return true;
            }
            match cell.compare_exchange(deadline, LOST, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.told.notify_waiters();
                    return false;
                }
                Err(moved) => deadline = moved,
            }
        }
    }

    /// Moves a deadline forward. False if it was lost before.
    pub(crate) fn advance(&self, member: usize, now: Moment, to: Moment) -> bool {
        let to = self.ends.map_or(to, |ends| ends.min(to));
        let cell = &self.deadlines[member];
        while self.is_live(member, now) {
            let deadline = cell.load(Ordering::Acquire);
            if deadline != LOST
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

    pub(crate) fn lose(&self, member: usize) {
        self.deadlines[member].store(LOST, Ordering::Release);
        self.told.notify_waiters();
    }

    /// Waits until it is lost. Needs a timer, and no I/O.
    pub(crate) async fn lost(&self) {
        loop {
            let mut told = std::pin::pin!(self.told.notified());
            // Enlist first, then look: a loss in between is not missed.
            told.as_mut().enable();
            let soon = clock::now().plus(EARLY);
            if self.is_lost(soon) {
                return;
            }
            let left = self.deadline().since(soon);
            tokio::select! {
                () = told => {}
                () = sleep(left.min(LOOK)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_deadline_moves_forward_only() {
        let hold = Hold::new([at(10)], 1, true, None);
        assert!(hold.advance(0, at(5), at(20)));
        assert_eq!(hold.deadline(), at(20));
        assert!(hold.advance(0, at(5), at(15)));
        assert_eq!(hold.deadline(), at(20));
    }

    #[test]
    fn a_late_renewal_does_not_revive_a_lost_hold() {
        let hold = Hold::new([at(10)], 1, true, None);
        assert!(!hold.is_lost(at(9)));
        assert!(hold.is_lost(at(10)));
        assert!(
            !hold.advance(0, at(9), at(20)),
            "lost by the clock is final, also for who looked at it earlier"
        );
        assert!(hold.is_lost(at(9)));
        assert_eq!(hold.deadline(), Moment::PAST);

        let unseen = Hold::new([at(10)], 1, true, None);
        assert!(!unseen.advance(0, at(10), at(20)), "nobody had noticed yet");
    }

    #[test]
    fn a_hold_ends_when_it_was_to_end() {
        let hold = Hold::new([at(30)], 1, true, Some(at(25)));
        assert_eq!(hold.deadline(), at(25));
        assert!(hold.advance(0, at(5), at(40)));
        assert_eq!(hold.deadline(), at(25));
    }

    #[test]
    fn a_quorum_of_members_keeps_it() {
        let hold = Hold::new([at(10), at(30), Moment::PAST], 2, true, None);
        assert!(!hold.is_lost(at(9)));
        assert!(hold.is_lost(at(10)));
        assert!(!hold.advance(0, at(10), at(30)));
        assert!(hold.is_lost(at(10)), "a member that was lost does not come back");
    }

    #[test]
    fn renewing_and_looking_at_once_never_show_lost_then_held() {
        for _ in 0..200 {
            let hold = Arc::new(Hold::new([at(10)], 1, true, None));
            let renewing = std::thread::spawn({
                let hold = Arc::clone(&hold);
                move || hold.advance(0, at(9), at(20))
            });
            let was_lost = hold.is_lost(at(10));
            let renewed = renewing.join().expect("does not panic");
            assert!(!was_lost || hold.is_lost(at(9)), "revived");
            assert_eq!(renewed, !was_lost, "exactly one of them wins");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_is_told_by_a_reply_too() {
        let hold = Arc::new(Hold::new([clock::now().plus(Duration::from_secs(3_600))], 1, true, None));
        let waiter = tokio::spawn({
            let hold = Arc::clone(&hold);
            async move { hold.lost().await }
        });
        tokio::task::yield_now().await;
        hold.lose(0);
        waiter.await.expect("told");
    }
}
