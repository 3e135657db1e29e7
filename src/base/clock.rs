//! The clock by which leases and deadlines are measured. No other file reads it; time limits of calls use tokio's clock.
//!
//! A lease on the server also ends while this host is suspended, so deadlines must pass during a suspend, too. On Linux
//! [`std::time::Instant`] stops in a suspend. `CLOCK_BOOTTIME` does not stop and never jumps, and nobody can set it.

use std::time::Duration;

/// A point of time, comparable within this process only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// The time, never zero.
pub(crate) fn now() -> Moment {
    #[cfg(feature = "unstable-simulation")]
    if let Some(now) = process_clock::now() {
        return now;
    }
    #[cfg(feature = "paused-clock")]
    if let Some(now) = virtual_time::now() {
        return now;
    }
    real_now()
}

#[cfg(feature = "unstable-simulation")]
pub(crate) use process_clock::ProcessClock;
#[cfg(feature = "paused-clock")]
pub(crate) use virtual_time::follow_tokio;

/// Whether code of this thread runs in a simulated process, or follows a clock that tests can pause.
pub(crate) fn is_simulated() -> bool {
    #[cfg(feature = "unstable-simulation")]
    if process_clock::now().is_some() {
        return true;
    }
    #[cfg(feature = "paused-clock")]
    if virtual_time::follows() {
        return true;
    }
    false
}

/// Whether the time of this thread is that of tokio's paused clock.
#[cfg(all(test, feature = "paused-clock"))]
pub(crate) fn is_virtual() -> bool {
    virtual_time::now().is_some()
}

#[cfg(unix)]
fn real_now() -> Moment {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic; // on macOS it also counts while the machine sleeps

    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    // `Moment(0)` stands for "lost", so a clock that reads zero at boot counts as 1 ns.
    Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos).max(1))
}

#[cfg(not(unix))]
fn real_now() -> Moment {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Moment(nanos(START.elapsed()).max(1))
}

/// A clock that follows tokio's, if a test pauses it.
#[cfg(feature = "paused-clock")]
mod virtual_time {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use tokio::runtime::{Handle, RuntimeFlavor};
    use tokio::time::Instant;

    use super::{Moment, real_now};

    thread_local! {
        /// Whether this thread's time is tokio's.
        static FOLLOWS: Cell<bool> = const { Cell::new(false) };
    }

    /// One point of time, by both clocks.
    static ANCHOR: LazyLock<(std::time::Instant, Moment)> =
        LazyLock::new(|| (std::time::Instant::now(), real_now()));

    /// Lets this thread follow tokio's clock, if its runtime is one whose clock can be paused.
    pub(crate) fn follow_tokio() {
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        if flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::CurrentThread) {
            FOLLOWS.set(true);
        }
    }

    pub(super) fn follows() -> bool {
        FOLLOWS.get()
    }

    /// Returns the time of tokio's paused clock. `None`: this thread uses the real clock. It also does so while nobody
    /// has paused tokio's clock: a program that does not pause it has the same clock as without this feature.
    pub(super) fn now() -> Option<Moment> {
        if !FOLLOWS.get() {
            return None;
        }
        let before = std::time::Instant::now();
        let now = Instant::now().into_std();
        if (before..=std::time::Instant::now()).contains(&now) {
            return None;
        }
        let (anchor, moment) = *ANCHOR;
        let now =
            moment.plus(now.saturating_duration_since(anchor)).minus(anchor.saturating_duration_since(now));
        Some(Moment(now.as_nanos().max(1)))
    }
}

/// The clocks of simulated processes, which drift.
#[cfg(feature = "unstable-simulation")]
mod process_clock {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Moment;

    thread_local! {
        /// The clock of the simulated process that runs.
        static OF_PROCESS: Cell<Option<ProcessClock>> = const { Cell::new(None) };
    }

    pub(super) fn now() -> Option<Moment> {
        OF_PROCESS.get().map(ProcessClock::now)
    }

    /// The clock of a simulated process.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct ProcessClock {
        start: Instant,
        at_start: Moment,
        /// By how much this clock is faster than tokio's, in parts of a million.
        drift: i32,
    }

    impl ProcessClock {
        pub(crate) fn start(uptime: Duration, drift: i32) -> Self {
            Self { start: Instant::now(), at_start: Moment::PAST.plus(uptime), drift }
        }

        /// Makes this clock that of the thread. Returns the clock before, to which [`leave`](Self::leave) returns.
        pub(crate) fn enter(self) -> Option<Self> {
            OF_PROCESS.replace(Some(self))
        }

        pub(crate) fn leave(before: Option<Self>) {
            OF_PROCESS.set(before);
        }

        fn now(self) -> Moment {
            let elapsed = self.start.elapsed();
            let drift = elapsed / 1_000_000 * self.drift.unsigned_abs();
            let now = self.at_start.plus(elapsed);
            let now = if self.drift < 0 { now.minus(drift) } else { now.plus(drift) };
            Moment(now.as_nanos().max(1))
        }
    }
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

    /// The feature `paused-clock` changes nothing for a program that does not pause tokio's clock.
    #[cfg(feature = "paused-clock")]
    #[tokio::test]
    async fn only_a_paused_clock_is_followed() {
        follow_tokio();
        for _ in 0..1_000 {
            assert!(!is_virtual());
        }
        let before = now();
        tokio::time::pause();
        std::thread::sleep(Duration::from_millis(2));
        assert!(is_virtual());
        tokio::time::advance(Duration::from_secs(3_600)).await;
        let passed = now().since(before);
        assert!(passed >= Duration::from_secs(3_600) && passed < Duration::from_secs(3_601), "{passed:?}");
    }
}
