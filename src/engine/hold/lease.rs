//! Leases: until when a hold relies on its lease, and how often a lease is renewed. No I/O and no clock: time is an
//! argument.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::config::LockConfig;

/// The shortest time between the deadline of a hold and the end of its lease. It covers timers that fire late: those of
/// tokio have a resolution of 1 ms, and a busy runtime polls a task some milliseconds late. A pause that is longer than
/// this ends leases of any client, so a longer margin would only make each lease shorter.
const MARGIN: Duration = Duration::from_millis(10);

/// Returns the deadline: until when a hold relies on its lease.
///
/// `sent` is a time before the command for this lease was sent. The server counts the lease from a later time, so it
/// still keeps the lock at this deadline. The margin is a hundredth of the lease, or [`MARGIN`] if that is longer, and
/// at most a quarter of the lease.
pub(crate) fn deadline(sent: Moment, lease: Duration) -> Moment {
    sent.plus(lease).minus(margin(lease))
}

/// How much earlier than its lease a hold ends.
pub(crate) fn margin(lease: Duration) -> Duration {
    MARGIN.max(lease / 100).min(lease / 4)
}

/// How often a client renews what it has on the servers.
#[derive(Clone, Copy)]
pub(crate) struct Periods {
    lease: Duration,
    java_watchdog: Duration,
    fair_allowance: Duration,
}

impl Periods {
    /// How often a task looks at its list in each period.
    const TICKS: u32 = 16;

    pub(crate) fn new(config: &LockConfig) -> Self {
        Self {
            lease: config.watchdog_lease(),
            java_watchdog: config.java_watchdog(),
            fair_allowance: config.fair_allowance(),
        }
    }

    /// Returns how often a lease is renewed. `is_shared`: Java's watchdog can shorten the lease.
    pub(crate) fn renewal(&self, lease: Duration, is_shared: bool) -> Duration {
        let lease = self.known(lease);
        if is_shared { lease.min(self.java_watchdog) / 3 } else { lease / 3 }
    }

    /// Returns the lease that sets the pace. A renewal with the lease zero only restores what another client shortened,
    /// at the pace of the configured lease.
    pub(crate) const fn known(&self, lease: Duration) -> Duration {
        if lease.is_zero() { self.lease } else { lease }
    }

    pub(crate) fn renewal_tick(&self) -> Duration {
        self.renewal(self.lease, true) / Self::TICKS
    }

    /// Returns how often a heartbeat keeps a place in a queue.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.fair_allowance / 3
    }

    pub(crate) fn heartbeat_tick(&self) -> Duration {
        self.heartbeat() / Self::TICKS
    }
}

/// Returns the next time after `time` at which the heartbeats of this lock are due. It comes within a period.
pub(crate) fn due_after(period: Duration, lock: &str, time: Moment) -> Moment {
    let mut hasher = DefaultHasher::new();
    lock.hash(&mut hasher);
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
    let phase = hasher.finish() % period;
    let since = (time.as_nanos() + period - phase) % period;
    time.plus(Duration::from_nanos(period - since))
}

/// What the configuration, the server and the type of a lock say about its leases.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// The lease of the configuration.
    pub(crate) lease: Duration,
    pub(crate) periods: Periods,
    /// Other clients can shorten a lease, as Java's watchdog does to a read-write lock.
    pub(crate) is_shared: bool,
    /// The watchdog also checks holds with a fixed lease: another client can shorten the lease, or a new master can
    /// lack the hold.
    pub(crate) is_checked: bool,
    /// How long after the grant the owners of this client hand a hold over to each other, or join it.
    pub(crate) sharing: Duration,
    /// Draws a time up to this one.
    pub(crate) within: fn(Duration) -> Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_deadline_counts_from_sending_and_keeps_the_larger_margin() {
        assert_eq!(deadline(at(1_000), 500 * MS), at(1_490));
        assert_eq!(deadline(at(1_000), 30_000 * MS), at(30_700));
        assert_eq!(deadline(at(1_000), 20 * MS), at(1_015), "a quarter at most");
        assert_eq!(deadline(at(0), Duration::ZERO), Moment::PAST);
    }

    #[test]
    fn the_places_of_a_lock_are_due_together_and_once_in_each_period() {
        let (period, start) = (Duration::from_secs(2), Moment::from_nanos(1_000_000_000_000));
        for lock in ["a", "b", "c"] {
            let first = due_after(period, lock, start);
            assert_eq!(due_after(period, lock, first), first.plus(period));
            // A heartbeat that was sent early does not move the next one.
            for early in [1, 500, 1_999].map(Duration::from_millis) {
                assert_eq!(due_after(period, lock, first.plus(period).minus(early)), first.plus(period));
            }
        }
    }
}
