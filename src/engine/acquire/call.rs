//! What a call decides: what the outcome of an attempt means, and when a waiting writer stops readers. Pure: no I/O and
//! no clock.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::fault::Fault;
use crate::protocol::IfHeld;

/// How long a waiting writer lets new readers in. Readers with short sections leave within a few milliseconds, and then
/// the writer need not stop anybody. If the sections are long, the writer waits for them in any case, and this time
/// does not matter.
const PATIENCE: Duration = Duration::from_millis(20);

/// How far a writer is from stopping new readers.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriterIntent {
    /// The lock is one whose waiting writer stops readers.
    stops_readers: bool,
    /// When the writer's `PATIENCE` began: with the first refusal, and after an attempt that told the server, with the
    /// refusal that follows the next wake-up. So readers that a release wakes can acquire together, although writers
    /// still wait. `None`: the writer was not refused, never stops readers, or has told the server and was not woken
    /// since.
    since: Option<Moment>,
    /// An attempt of this call perhaps told the server to stop new readers.
    is_shown: bool,
    /// The last attempt told the server to stop new readers.
    tells: bool,
}

impl WriterIntent {
    /// `stops_readers`: the lock is one whose waiting writer stops new readers.
    pub(crate) fn new(stops_readers: bool) -> Self {
        Self { stops_readers, ..Self::default() }
    }

    /// Whether an attempt of this call perhaps told the server to stop new readers.
    pub(crate) const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Records that an attempt was refused.
    pub(crate) fn refused(&mut self, at: Moment) {
        if self.stops_readers && !self.tells {
            self.since.get_or_insert(at);
        }
    }

    /// Returns how long the writer still lets new readers in. `None`: the call need not attempt at the end of this
    /// time.
    pub(crate) fn left(self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        let since = self.since?; // usually `None`, and then the clock is not read
        Some(PATIENCE.saturating_sub(now().since(since)))
    }

    /// Returns what the next attempt asks the server to do if another owner holds the lock.
    pub(crate) fn if_held(&mut self, now: impl FnOnce() -> Moment) -> IfHeld {
        self.tells = self.left(now).is_some_and(|left| left.is_zero());
        if self.tells {
            self.since = None;
            self.is_shown = true;
        }
        match *self {
            Self { tells: true, .. } => IfHeld::BlockReaders,
            Self { is_shown: true, .. } => IfHeld::KeepBlocking,
            _ => IfHeld::Queue,
        }
    }
}

/// The outcome of an attempt.
#[derive(Debug)]
pub(crate) enum Outcome {
    Granted,
    /// Another owner holds the lock. Its lease lasts at most for this time, if the time is known.
    Refused(Option<Duration>),
    Failed(Fault),
}

/// What a call does if another owner holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// The call does not wait.
    Try,
    /// The owner already holds the lock, so the call waits in no queue.
    ReEntry,
    Wait,
}

#[derive(Debug)]
pub(crate) enum Next {
    /// The call has the lock.
    Done,
    /// Another owner holds the lock, and the call does not wait.
    Busy,
    Fail(Fault),
    /// The call pauses, and attempts again.
    Retry(Fault),
    /// The call waits on in its queue.
    Stay(Reason),
    /// The call leaves its queue, if it stands in one, and joins the queue whose messages wake it.
    Join(Reason),
}

/// Why a call waits.
#[derive(Debug)]
pub(crate) enum Reason {
    /// Another owner holds the lock. Its lease lasts at most for this time, if the time is known.
    Held(Option<Duration>),
    Fault(Fault),
}

/// Decides what a call does after an attempt. `is_woken`: whether a release wakes the call in its queue, which is false
/// if the call's place in a server queue has moved to another channel. `None`: the call stands in no queue.
pub(crate) fn next(outcome: Outcome, is_woken: Option<bool>, kind: CallKind) -> Next {
    match (outcome, is_woken) {
        (Outcome::Granted, _) => Next::Done,
        (Outcome::Refused(_), _) if kind == CallKind::Try => Next::Busy,
        (Outcome::Refused(left), Some(true)) => Next::Stay(Reason::Held(left)),
        (Outcome::Refused(left), _) => Next::Join(Reason::Held(left)),
        (Outcome::Failed(fault), None) if kind != CallKind::Wait => Next::Retry(fault),
        (Outcome::Failed(fault), _) if !fault.is_transient() => Next::Fail(fault),
        (Outcome::Failed(fault), Some(_)) => Next::Stay(Reason::Fault(fault)),
        (Outcome::Failed(fault), None) => Next::Join(Reason::Fault(fault)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fault::{FaultKind, Sent};

    fn describe(next: Next) -> String {
        let why = |reason| match reason {
            Reason::Held(_) => "held",
            Reason::Fault(_) => "a fault",
        };
        match next {
            Next::Done => "done".to_owned(),
            Next::Busy => "busy".to_owned(),
            Next::Fail(_) => "fail".to_owned(),
            Next::Retry(_) => "retry".to_owned(),
            Next::Stay(reason) => format!("stay: {}", why(reason)),
            Next::Join(reason) => format!("join: {}", why(reason)),
        }
    }

    #[test]
    fn each_outcome_has_one_next_step() {
        use CallKind::{ReEntry, Try, Wait};
        use FaultKind::{Broken, Permission};
        let refused = || Outcome::Refused(None);
        let failed = |kind| Outcome::Failed(Fault::new(kind, Sent::Refused, "a fault"));
        let (woken, deaf) = (Some(true), Some(false));
        for (outcome, is_woken, kind, step) in [
            (Outcome::Granted, None, ReEntry, "done"),
            (Outcome::Granted, None, Wait, "done"),
            (Outcome::Granted, woken, Wait, "done"),
            (Outcome::Granted, None, Try, "done"),
            (refused(), None, Try, "busy"),
            (refused(), None, ReEntry, "join: held"), // the hold to re-enter is gone
            (refused(), None, Wait, "join: held"),
            (refused(), woken, Wait, "stay: held"),
            (refused(), deaf, Wait, "join: held"),
            (failed(Broken), None, Try, "retry"),
            (failed(Broken), None, ReEntry, "retry"),
            (failed(Broken), None, Wait, "join: a fault"),
            (failed(Permission), None, Try, "retry"), // `Tries::again` ends the call at once
            (failed(Permission), None, Wait, "fail"),
            (failed(Broken), woken, Wait, "stay: a fault"),
            (failed(Permission), woken, Wait, "fail"),
        ] {
            let case = format!("{outcome:?}, {is_woken:?}, {kind:?}");
            assert_eq!(describe(next(outcome, is_woken, kind)), step, "{case}");
        }
    }

    #[test]
    fn a_writer_stops_readers_after_its_patience_and_again_after_a_wake_up() {
        const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
        let mut writer = WriterIntent::new(true);
        assert_eq!((writer.if_held(|| NOW), writer.left(|| NOW)), (IfHeld::Queue, None));
        writer.refused(NOW);
        let later = NOW.plus(PATIENCE);
        assert_eq!(writer.left(|| NOW), Some(PATIENCE));
        assert_eq!(writer.if_held(|| later.minus(Duration::from_nanos(1))), IfHeld::Queue);
        assert!(!writer.is_shown());
        assert_eq!(writer.if_held(|| later), IfHeld::BlockReaders);
        writer.refused(later);
        assert_eq!((writer.is_shown(), writer.left(|| later)), (true, None));
        // A release woke the writer. For another `PATIENCE`, it does not block readers anew, so the readers that the
        // same release woke can acquire.
        assert_eq!(writer.if_held(|| later), IfHeld::KeepBlocking);
        writer.refused(later);
        assert_eq!(writer.if_held(|| later.plus(PATIENCE)), IfHeld::BlockReaders);
        let mut reader = WriterIntent::new(false);
        reader.refused(NOW);
        assert_eq!(reader.if_held(|| later), IfHeld::Queue);
    }
}
