//! The clock. No other file reads one.
//!
//! A lease on the server also ends while this host is suspended, so deadlines must pass meanwhile, too. On Linux
//! [`std::time::Instant`] stops in a suspend; `CLOCK_BOOTTIME` does not. It never jumps, and nobody can set it.

use std::time::Duration;

/// A point of time, comparable within this process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before every moment that [`now`] returns.
    pub(crate) const PAST: Self = Self(0);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }

    pub(crate) fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(time)))
    }

    /// The time from `earlier` to here. Zero if `earlier` is later.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(unix)]
pub(crate) fn now() -> Moment {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic; // on macOS it goes on in a sleep

    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    // Not zero, also at boot: zero stands for "lost".
    Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos).max(1))
}

#[cfg(not(unix))]
pub(crate) fn now() -> Moment {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Moment(nanos(START.elapsed()).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_arithmetic_saturates() {
        let start = now();
        while now() == start {}
        assert!(now() > start && start > Moment::PAST);
        assert_eq!(start.since(now()), Duration::ZERO);
        assert_eq!(start.plus(Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(Moment::from_nanos(5).minus(Duration::from_secs(1)), Moment::PAST);
        assert_eq!(
            Moment::from_nanos(5).plus(Duration::from_nanos(2)).since(Moment::from_nanos(3)).as_nanos(),
            4
        );
    }
}
