//! Heartbeats: they keep the places of waiters in the queue of a fair lock.
//!
//! One command keeps a hundred places of one lock, so the places of one lock are due together, at a time that follows from the
//! lock's key. The locks are spread over the period. The reply says whose turn it is.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::base::config::LockConfig;
use crate::base::fault::Fault;
use crate::base::jitter;
use crate::engine::grant::Grant;
use crate::engine::upkeep::scheduler::{Duty, Key};
use crate::protocol::{PlaceReply, parse_heartbeat};
use crate::store::Store;
use crate::telemetry::report::Limit;

/// Ticks for each period.
const TICKS: u32 = 16;

/// After a transient fault, a heartbeat is retried after the period divided by this.
const RETRY: u32 = 4;

/// The duty of sending heartbeats.
pub(crate) struct Heartbeat {
    store: Arc<Store>,
    period: Duration,
    limit: Duration,
    failures: Limit,
}

impl Heartbeat {
    pub(crate) fn new(store: Arc<Store>, config: &LockConfig) -> Self {
        let allowance = config.fair_allowance();
        Self { store, period: allowance / 3, limit: allowance / 6, failures: Limit::default() }
    }

    /// Returns the next time at which the places of this lock are due. It comes within a period.
    pub(crate) fn due_after(&self, lock: &str, time: Moment) -> Moment {
        due_after(self.period, lock, time)
    }

    async fn beat(&self, places: &[Arc<Grant>]) -> Result<(Moment, Vec<PlaceReply>), Fault> {
        let waiters: Vec<String> = places.iter().map(|place| place.waiter()).collect();
        let call = places[0].heartbeat(waiters.join(" "));
        let connection = self.store.connection(places[0].lock.route).await?;
        let sent = clock::now();
        let reply = self.store.run_at_most(self.limit, &connection, &call).await?;
        Ok((sent, parse_heartbeat(&reply, places.len())?))
    }
}

fn due_after(period: Duration, lock: &str, time: Moment) -> Moment {
    let mut hasher = DefaultHasher::new();
    lock.hash(&mut hasher);
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
    let phase = hasher.finish() % period;
    let since = (time.as_nanos() + period - phase) % period;
    time.plus(Duration::from_nanos(period - since))
}

impl Duty for Heartbeat {
    type Item = Grant;
    type Group = Arc<str>;

    fn tick(&self) -> Duration {
        self.period / TICKS
    }

    fn ahead(&self) -> Duration {
        Duration::ZERO // the places of one lock are due together
    }

    fn begin(&self, place: &Arc<Grant>, key: Key) -> Option<Arc<str>> {
        place.begin_heartbeat(key, self.period).then(|| Arc::clone(&place.lock.keys.lock))
    }

    async fn run(&self, lock: Arc<str>, places: Vec<Arc<Grant>>) {
        match self.beat(&places).await {
            Ok((sent, replies)) => {
                for (place, reply) in places.into_iter().zip(replies) {
                    let next = match reply {
                        PlaceReply::KeptBehindTheDead => sent,
                        // It was sent up to a tick before it was due.
                        _ => self.due_after(&lock, sent.plus(self.tick())),
                    };
                    place.heard_of(next, matches!(reply, PlaceReply::Gone | PlaceReply::YourTurn));
                }
            }
            Err(fault) => {
                if let Some(unreported) = self.failures.ask() {
                    tracing::warn!(
                        %fault, key = &*lock, server = &*self.store.address(places[0].lock.route), waiters = places.len(), unreported,
                        "heartbeats of waiters for a fair lock failed, trying again"
                    );
                }
                // A heartbeat that is refused is not sent more often than one that succeeds.
                let pause = if fault.is_transient() { self.period / RETRY } else { self.period };
                for place in places {
                    place.heard_of(clock::now().plus(jitter::around(pause)), false);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_lock_are_due_together_and_once_in_each_period() {
        let (period, start) = (Duration::from_secs(2), Moment::from_nanos(1_000_000_000_000));
        for lock in ["a", "b", "c"] {
            let first = due_after(period, lock, start);
            assert_eq!(due_after(period, lock, first), first.plus(period));
            // A place that was kept early is due at the same time.
            for early in [1, 500, 1_999].map(Duration::from_millis) {
                assert_eq!(due_after(period, lock, first.plus(period).minus(early)), first.plus(period));
            }
        }
    }
}
