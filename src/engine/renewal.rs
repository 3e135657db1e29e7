//! The watchdog, which renews leases, and ends holds whose time is up.
//!
//! A hold that the watchdog renews is due after each third of its lease. The first time is drawn at random, so that locks that
//! were acquired together are not renewed together.

use std::sync::Arc;
use std::time::Duration;

use super::scheduler::{Duty, Key};
use crate::clock::{self, Moment};
use crate::config::LockConfig;
use crate::fault::Fault;
use crate::jitter;
use crate::protocol::{Batch, Row, millis, parse_renewal};
use crate::report::Limit;
use crate::store::{ConnectionIndex, Store};

/// Ticks for each period.
const TICKS: u32 = 16;

/// After a transient fault, a renewal is retried after the period divided by this.
const RETRY: u32 = 16;

/// Something that the watchdog serves: the holds of one owner on one lock of one server.
pub(super) trait Renewable: Send + Sync {
    /// Begins what is due. Returns the lease to ask for; zero changes the lease only if somebody shortened it. `None`: there is
    /// nothing to renew.
    fn begin(self: Arc<Self>, key: Key, now: Moment) -> Option<Duration>;

    fn connection_index(&self) -> ConnectionIndex;

    /// The script that renews it.
    fn script(&self) -> &'static Batch;

    /// Its row in a batch.
    fn row(&self) -> Row;

    /// Whether other clients can shorten its lease, as Java's watchdog does to a read-write lock.
    fn is_shared(&self) -> bool;

    /// The renewal that was sent at `sent` has succeeded. The next one is due at `next`.
    fn renewed(self: Arc<Self>, sent: Moment, next: Moment);

    /// The server does not have it any more.
    fn gone(self: Arc<Self>);

    /// The renewal failed. It is due again at `next`.
    fn failed(self: Arc<Self>, next: Moment);

    /// Describes who holds this lock. `None`: nobody, or it is another lock.
    fn holder_of(&self, lock: &str) -> Option<String>;
}

/// The duty of renewing leases.
pub(super) struct Renewal {
    store: Arc<Store>,
    lease: Duration,
    period: Duration,
    shared_period: Duration,
    failures: Limit,
}

impl Renewal {
    pub(super) fn new(store: Arc<Store>, config: &LockConfig) -> Self {
        let lease = config.watchdog_lease();
        let shared_period = lease.min(config.java_watchdog()) / 3;
        Self { store, lease, period: lease / 3, shared_period, failures: Limit::default() }
    }

    /// How often this is renewed.
    pub(super) fn period(&self, is_shared: bool) -> Duration {
        if is_shared { self.shared_period } else { self.period }
    }

    async fn renew(
        &self,
        items: &[Arc<dyn Renewable>],
        lease: Duration,
    ) -> Result<(Moment, Vec<bool>), Fault> {
        let call = items[0].script().call(millis(lease), items.iter().map(|item| item.row()));
        let connection = self.store.connection(items[0].connection_index()).await?;
        let sent = clock::now();
        // A silent connection must not cost a lease: there has to be time for another try.
        let reply = self.store.run_at_most(self.lease / 6, &connection, &call).await?;
        Ok((sent, parse_renewal(&reply, items.len())?))
    }
}

impl Duty for Renewal {
    type Item = dyn Renewable;
    type Group = (&'static str, Duration);

    fn tick(&self) -> Duration {
        self.shared_period / TICKS
    }

    fn ahead(&self) -> Duration {
        self.tick() * 2
    }

    fn begin(&self, item: &Arc<dyn Renewable>, key: Key) -> Option<Self::Group> {
        let lease = Arc::clone(item).begin(key, clock::now())?;
        Some((item.script().file(), lease))
    }

    async fn run(&self, (_, lease): Self::Group, items: Vec<Arc<dyn Renewable>>) {
        match self.renew(&items, lease).await {
            Ok((sent, renewed)) => {
                for (item, renewed) in items.into_iter().zip(renewed) {
                    if renewed {
                        let next = sent.plus(self.period(item.is_shared()));
                        item.renewed(sent, next);
                    } else {
                        item.gone();
                    }
                }
            }
            Err(fault) => {
                if let Some(unreported) = self.failures.ask() {
                    tracing::warn!(
                        %fault, server = self.store.address(), locks = items.len(), unreported,
                        "leases were not renewed, trying again"
                    );
                }
                for item in items {
                    // A renewal that is refused is not sent more often than one that succeeds.
                    let period = self.period(item.is_shared());
                    let pause = if fault.is_transient() { period / RETRY } else { period };
                    item.failed(clock::now().plus(jitter::around(pause)));
                }
            }
        }
    }
}
