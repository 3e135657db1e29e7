//! Heartbeats: they keep the places of waiters in the queue of a fair lock.
//!
//! One command keeps a hundred places of one lock, so the places of one lock are due together, at a time that follows
//! from the lock's key. The locks are spread over the period. The reply says whose turn it is.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::base::config::LockConfig;
use crate::base::fault::Fault;
use crate::base::jitter;
use crate::engine::grant::Grant;
use crate::engine::hold::lease::{Periods, due_after};
use crate::engine::scheduler::{Duty, Key};
use crate::protocol::{PlaceReply, parse_heartbeat};
use crate::store::Store;
use crate::telemetry::report::Limit;

/// After a transient fault, a heartbeat is retried after the period divided by this.
const RETRY: u32 = 4;

/// The duty of sending heartbeats.
pub(crate) struct Heartbeat {
    store: Arc<Store>,
    periods: Periods,
    failures: Limit,
}

impl Heartbeat {
    pub(crate) fn new(store: Arc<Store>, config: &LockConfig) -> Self {
        Self { store, periods: Periods::new(config), failures: Limit::default() }
    }

    async fn beat(&self, places: &[Arc<Grant>]) -> Result<(Moment, Vec<PlaceReply>), Fault> {
        let waiters: Vec<String> = places.iter().map(|place| place.waiter()).collect();
        let call = places[0].heartbeat(waiters.join(" "));
        let connection = self.store.connection(places[0].lock.route).await?;
        connection.know_time().await?;
        let sent = clock::now();
        let reply = self.store.run_at_most(self.periods.heartbeat() / 2, &connection, &call).await?;
        Ok((sent, parse_heartbeat(&reply, places.len())?))
    }
}

impl Duty for Heartbeat {
    fn panicked(&self, place: &Arc<Grant>) {
        let now = clock::now();
        place.heard_of(now.plus(self.periods.heartbeat() / RETRY), false, now);
    }

    type Item = Grant;
    type Group = Arc<str>;

    fn ahead(&self) -> Duration {
        Duration::ZERO // the places of one lock are due together
    }

    fn begin(&self, place: &Arc<Grant>, key: Key) -> Option<Arc<str>> {
        place.begin_heartbeat(key, clock::now()).then(|| Arc::clone(&place.lock.keys.lock))
    }

    async fn run(&self, lock: Arc<str>, places: Vec<Arc<Grant>>) {
        let period = self.periods.heartbeat();
        match self.beat(&places).await {
            Ok((sent, replies)) => {
                let now = clock::now();
                for (place, reply) in places.into_iter().zip(replies) {
                    let next = match reply {
                        PlaceReply::KeptBehindTheDead => sent,
                        // The scheduler sends a heartbeat up to a tick before it is due. Counted from `sent` alone, the
                        // next one would be due at the time that this one served.
                        _ => due_after(period, &lock, sent.plus(self.periods.heartbeat_tick())),
                    };
                    let wakes = matches!(reply, PlaceReply::Gone | PlaceReply::YourTurn);
                    place.heard_of(next, wakes, now);
                }
            }
            Err(fault) => {
                if let Some(unreported) = self.failures.ask() {
                    tracing::warn!(
                        %fault, key = &*lock, server = &*self.store.address(places[0].lock.route), waiters = places.len(), unreported,
                        "heartbeats of waiters for a fair lock failed, trying again"
                    );
                }
                // After a transient fault, the heartbeat is repeated soon. A heartbeat that the server refuses is sent
                // no more often than one that succeeds.
                let pause = if fault.is_transient() { period / RETRY } else { period };
                let now = clock::now();
                for place in places {
                    place.heard_of(now.plus(jitter::around(pause)), false, now);
                }
            }
        }
    }
}
