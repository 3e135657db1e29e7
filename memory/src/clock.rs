//! The server's clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The time since 1970, which passes as tokio's clock does. A test can pause and advance that.
pub(crate) struct WallClock {
    at_start: Duration,
    start: Instant,
}

impl WallClock {
    pub(crate) fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self::start_at(since_1970.unwrap_or_default())
    }

    /// Starts at a time since 1970.
    pub(crate) fn start_at(at_start: Duration) -> Self {
        Self { at_start, start: Instant::now() }
    }

    /// Sets the clock forward by these seconds, or back.
    pub(crate) fn step(&mut self, seconds: i64) {
        let by = Duration::from_secs(seconds.unsigned_abs());
        self.at_start = if seconds < 0 { self.at_start - by } else { self.at_start + by };
    }

    pub(crate) fn now(&self) -> Duration {
        self.at_start + self.start.elapsed()
    }
}
