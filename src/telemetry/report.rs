//! A limit for events that would repeat during an outage.

use std::sync::Mutex;
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::base::sync::lock;

/// The pause between two reports of one kind.
const PAUSE: Duration = Duration::from_secs(10);

/// Lets the first report pass, and then one in ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Limit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    reported_at: Option<Moment>,
    unreported: u64,
}

impl Limit {
    /// Returns how many reports were dropped since the last one. `None`: drop this one, too.
    pub(crate) fn ask(&self) -> Option<u64> {
        self.ask_at(clock::now())
    }

    fn ask_at(&self, now: Moment) -> Option<u64> {
        let mut state = lock(&self.0);
        if state.reported_at.is_some_and(|at| now.since(at) < PAUSE) {
            state.unreported += 1;
            return None;
        }
        state.reported_at = Some(now);
        Some(std::mem::take(&mut state.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_passes_and_then_one_in_ten_seconds_that_counts_the_dropped_ones() {
        let (limit, start) = (Limit::default(), clock::now());
        let after = |seconds| start.plus(Duration::from_secs(seconds));
        let passed = [0, 1, 9, 10, 11, 100].map(|seconds| limit.ask_at(after(seconds)));
        assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
