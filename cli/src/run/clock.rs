//! A clock that all processes of a host share, and that goes on while the host is suspended.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds since the host started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Moment(u64);

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

impl Moment {
    /// If the clock cannot be read, everything is over: that stops the command.
    pub(super) fn now() -> Self {
        let time = clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from);
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(super) fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long it is until then.
    pub(super) fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }
}
