//! The outcome of an attempt, and when a waiting writer stops readers. Pure: no I/O and no clock.

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
    pub(crate) is_shown: bool,
    /// The last attempt told the server to stop new readers.
    tells: bool,
}

impl WriterIntent {
    /// `stops_readers`: the lock is one whose waiting writer stops new readers.
    pub(crate) fn new(stops_readers: bool) -> Self {
        Self { stops_readers, ..Self::default() }
    }

    /// Records that an attempt was refused.
    pub(crate) fn refused(&mut self, at: Moment) {
        if self.stops_readers && !self.tells {
            self.since.get_or_insert(at);
        }
    }

    /// When the writer attempts, to tell the server to stop new readers. One millisecond more, because a timer can fire before the clock
    /// says that the time is over.
    pub(crate) fn acts_at(self) -> Option<Moment> {
        self.since.map(|since| since.plus(PATIENCE + Duration::from_millis(1)))
    }

    /// Returns what the next attempt asks the server to do if another owner holds the lock.
    pub(crate) fn if_held(&mut self, now: impl FnOnce() -> Moment) -> IfHeld {
        // Usually `None`, and then the clock is not read.
        self.tells = self.since.is_some_and(|since| now().since(since) >= PATIENCE);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_stops_readers_after_its_patience_and_again_after_a_wake_up() {
        const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
        let mut writer = WriterIntent::new(true);
        assert_eq!((writer.if_held(|| NOW), writer.acts_at()), (IfHeld::Queue, None));
        writer.refused(NOW);
        let later = NOW.plus(PATIENCE);
        assert!(writer.acts_at().is_some_and(|at| at > later));
        assert_eq!(writer.if_held(|| later.minus(Duration::from_nanos(1))), IfHeld::Queue);
        assert!(!writer.is_shown);
        assert_eq!(writer.if_held(|| later), IfHeld::BlockReaders);
        writer.refused(later);
        assert_eq!((writer.is_shown, writer.acts_at()), (true, None));
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
