//! When a command has to stop. No I/O: the clock is an argument.

use std::time::Duration;

use super::clock::Moment;

/// What to do with the command now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Ask it to end.
    Terminate,
    Kill,
}

/// Until when a command may run, and what was done about it.
#[derive(Debug)]
pub(super) struct Stop {
    /// When it has to be killed.
    until: Moment,
    grace: Duration,
    was_asked: bool,
    was_killed: bool,
    /// Nothing makes the time longer any more.
    is_final: bool,
}

impl Stop {
    pub(super) const fn new(until: Moment, grace: Duration) -> Self {
        Self { until, grace, was_asked: false, was_killed: false, is_final: false }
    }

    /// The lock was renewed.
    pub(super) fn renewed(&mut self, until: Moment) {
        if !self.is_final {
            self.until = self.until.max(until);
        }
    }

    /// The lock is gone.
    pub(super) const fn at_once(&mut self, now: Moment) {
        self.until = now;
        self.is_final = true;
    }

    /// Nobody renews the lock any more, or the command's first process has ended: the grace begins now.
    pub(super) fn soon(&mut self, now: Moment) {
        self.until = self.until.min(now.plus(self.grace));
        self.is_final = true;
    }

    /// When the command has to be killed.
    pub(super) const fn until(&self) -> Moment {
        self.until
    }

    /// Whether there is time to start the command.
    pub(super) fn may_run(&self, now: Moment) -> bool {
        !self.is_final && now < self.until.minus(self.grace)
    }

    /// When something is due.
    pub(super) fn next(&self) -> Moment {
        if self.was_asked { self.until } else { self.until.minus(self.grace) }
    }

    /// What is due.
    pub(super) fn step(&mut self, now: Moment) -> Step {
        if now >= self.until && !self.was_killed {
            self.was_killed = true;
            return Step::Kill;
        }
        if now >= self.until.minus(self.grace) && !self.was_asked && !self.was_killed {
            self.was_asked = true;
            // The command has been asked to end, and a renewal cannot take this back. So no renewal moves the end any
            // more.
            self.is_final = true;
            return Step::Terminate;
        }
        Step::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Moment {
        Moment::default().plus(ms * MS)
    }

    #[test]
    fn it_asks_a_grace_before_it_kills() {
        let mut stop = Stop::new(at(100), 20 * MS);
        assert_eq!(stop.step(at(79)), Step::Nothing);
        stop.renewed(at(200));
        assert_eq!(stop.step(at(179)), Step::Nothing);
        assert_eq!(stop.step(at(180)), Step::Terminate);
        assert_eq!(stop.step(at(199)), Step::Nothing);
        assert_eq!(stop.step(at(200)), Step::Kill);
        assert_eq!(stop.step(at(201)), Step::Nothing);
    }

    #[test]
    fn a_loss_kills_at_once_and_a_late_renewal_changes_nothing() {
        let mut stop = Stop::new(at(100), 20 * MS);
        stop.at_once(at(10));
        stop.renewed(at(300));
        assert_eq!(stop.step(at(10)), Step::Kill);
    }

    #[test]
    fn without_renewals_the_grace_begins_and_the_lease_still_counts() {
        let mut stop = Stop::new(at(100), 50 * MS);
        stop.soon(at(10));
        assert_eq!(stop.step(at(10)), Step::Terminate);
        assert_eq!(stop.step(at(60)), Step::Kill);
        let mut stop = Stop::new(at(100), 50 * MS);
        stop.soon(at(70));
        assert_eq!((stop.step(at(70)), stop.step(at(100))), (Step::Terminate, Step::Kill));
    }

    #[test]
    fn nothing_starts_when_it_would_be_asked_to_end_at_once() {
        let mut stop = Stop::new(at(100), 20 * MS);
        assert!(stop.may_run(at(79)) && !stop.may_run(at(80)));
        stop.at_once(at(10));
        assert!(!stop.may_run(at(0)));
    }

    #[test]
    fn a_process_that_was_stopped_kills_first() {
        let mut stop = Stop::new(at(100), 50 * MS);
        assert_eq!(stop.step(at(500)), Step::Kill);
    }
}
