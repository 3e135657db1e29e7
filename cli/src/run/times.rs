//! How long before the end of its lease a command is stopped.

use std::time::Duration;

use lockkeeper::LockGuard;

use super::clock::Moment;
use crate::args::Run;
use crate::exit::Failure;

/// How long before the deadline of the lock the command is killed, at most. The deadline is before the end of the lease.
const EARLY: Duration = Duration::from_millis(250);
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// How long before the end of the lease what happens.
pub(super) struct Times {
    /// The time for which each renewal holds the lock, at most.
    pub(super) lease: Duration,
    pub(super) grace: Duration,
    early: Duration,
}

impl Times {
    pub(super) fn of(run: &Run, watchdog_lease: Duration) -> Result<Self, Failure> {
        if let (Some(lease), Some(most)) = (run.lease, run.max_hold)
            && lease > most
        {
            let [lease, most] = [lease, most].map(humantime::format_duration);
            return Err(Failure::usage(format!(
                "`--lease` is {lease}, but `--max-hold` ends the hold after {most}"
            )));
        }
        let renewed = run.lease.unwrap_or(watchdog_lease);
        let lease = run.max_hold.map_or(renewed, |most| most.min(renewed));
        let grace = run.grace.unwrap_or_else(|| LONGEST_GRACE.min(lease / 4));
        // A renewal comes when two thirds of the lease are left. A grace of nearly this length would begin before the
        // renewal.
        if grace > lease / 2 {
            let [grace, lease] = [grace, lease].map(humantime::format_duration);
            return Err(Failure::usage(format!(
                "the grace of {grace} is longer than half of the lease, which is {lease}"
            )));
        }
        Ok(Self { lease, grace, early: EARLY.min(lease / 10) })
    }

    /// When the command has to be killed, if the lease is not renewed.
    pub(super) fn until(&self, guard: &LockGuard) -> Moment {
        // The clock is read first: that errs towards the past.
        let now = Moment::now();
        now.plus(guard.remaining()).minus(self.early)
    }
}
