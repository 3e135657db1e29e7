//! How long the holds of a handle last, as its user set it. No I/O and no clock.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::engine::hold::lease;

/// How long the holds of a handle last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The fixed lease. If there is none, the watchdog renews.
    pub(crate) lease: Option<Duration>,
    /// The longest hold, however the lease is renewed.
    pub(crate) max_hold: Option<Duration>,
    /// The minimum hold time: the lock stays held for so long.
    pub(crate) at_least: Option<Duration>,
}

impl Terms {
    /// Whether the watchdog renews the holds, and ends with their release.
    pub(crate) fn are_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The lease that an attempt asks for.
    pub(crate) fn first_lease(&self, watchdog_lease: Duration) -> Duration {
        let lease = self.lease.unwrap_or(watchdog_lease);
        // If this process dies, the server keeps the lock for the minimum hold time.
        let lease = self.at_least.map_or(lease, |least| least.max(lease));
        self.max_hold.map_or(lease, |most| most.min(lease))
    }

    /// Refuses what cannot be held with this margin, and what contradicts itself.
    pub(crate) fn parse(self, margin: Duration) -> Result<Self> {
        let parse = |argument, time: Option<Duration>| {
            time.map(|time| lease::parse(argument, time, margin)).transpose()
        };
        let parsed = Self {
            lease: parse("lease", self.lease)?,
            max_hold: parse("max_hold", self.max_hold)?,
            at_least: parse("hold_at_least", self.at_least)?,
        };
        let most = [parsed.lease, parsed.max_hold].into_iter().flatten().min();
        match (parsed.at_least, most) {
            (Some(least), Some(most)) if least > most => {
                let [least, most] = [least, most].map(humantime::format_duration);
                let problem = format!("is {least}, but `lease` or `max_hold` ends the hold after {most}");
                Err(Error::InvalidDuration { argument: "hold_at_least", problem })
            }
            _ => Ok(parsed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_lease_covers_the_least_time_and_not_more_than_the_longest_hold() {
        let terms = |lease: Option<u32>, max_hold: Option<u32>, at_least: Option<u32>| {
            let [lease, max_hold, at_least] =
                [lease, max_hold, at_least].map(|time| time.map(|time| time * SECOND));
            Terms { lease, max_hold, at_least }.first_lease(30 * SECOND).as_secs()
        };
        assert_eq!(terms(None, None, None), 30);
        assert_eq!(terms(None, None, Some(5)), 30);
        assert_eq!(terms(None, None, Some(90)), 90);
        assert_eq!(terms(None, Some(100), Some(90)), 90);
        assert_eq!(terms(None, Some(20), Some(10)), 20);
        assert_eq!(terms(Some(60), None, Some(50)), 60);
    }
}
