//! The watchdog, which renews leases, and ends holds whose time is up.
//!
//! A hold that the watchdog renews is due after each third of its lease. The first time is drawn at random, so that
//! locks that were acquired together are not renewed together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::pulse::Pulse;
use crate::base::clock::{self, Moment};
use crate::base::config::LockConfig;
use crate::base::fault::{Fault, FaultKind};
use crate::base::jitter;
use crate::base::timer::Instant;
use crate::engine::grant::Grant;
use crate::engine::hold::lease::Periods;
use crate::engine::scheduler::{Duty, Key};
use crate::engine::waits::Waits;
use crate::protocol::{RenewalReply, millis, parse_renewal, slot};
use crate::store::{self, Route, Store};
use crate::telemetry::report::Limit;

/// After a transient fault, a renewal is retried after the period divided by this.
const RETRY: u32 = 16;

/// The holds that one command renews.
type Items = Vec<Arc<Grant>>;

/// When some batches were sent, and the result of each.
type Renewed = (Moment, Vec<Result<Vec<RenewalReply>, Fault>>);

/// The duty of renewing leases.
pub(crate) struct Renewal {
    store: Arc<Store>,
    periods: Periods,
    failures: Limit,
    /// `None`: the runtime of the program renews, so it answers to itself.
    pulse: Option<Pulse>,
    /// The diagnosis looks at what is held.
    waits: Option<Arc<Waits>>,
}

impl Renewal {
    pub(crate) fn new(store: Arc<Store>, config: &LockConfig, waits: Option<Arc<Waits>>) -> Self {
        let pulse = store.thread().is_own().then(|| Pulse::start(config.watchdog_lease()));
        Self { store, periods: Periods::new(config), failures: Limit::default(), pulse, waits }
    }

    /// Renews. If another server became the master meanwhile, renews once more, because only the answer of the new
    /// master counts.
    async fn renew_on_master(&self, batches: &[Items], lease: Duration) -> Renewed {
        let switches = self.store.switch_count();
        let result = self.renew(batches, lease).await;
        if switches == self.store.switch_count() { result } else { self.renew(batches, lease).await }
    }

    /// Sends a command for each batch.
    async fn renew(&self, batches: &[Items], lease: Duration) -> Renewed {
        let now = clock::now();
        let call = |items: &Items| {
            items[0].lock.protocol.renewal().call(millis(lease), items.iter().map(|item| item.row(now)))
        };
        let calls: Vec<_> = batches.iter().map(call).collect();
        let connection = self.store.connection_of_upkeep(batches[0][0].lock.route).await;
        let sent = clock::now();
        let replies = match connection {
            // Limit each try to a sixth of the lease: after a silent connection, there must be time for another try
            // before the lease ends. A renewal that is due waits for the end of a look.
            Ok(connection) => {
                let leases =
                    batches.iter().flatten().map(|item| item.paced_by(now)).filter(|_| lease.is_zero());
                let limit = leases.min().unwrap_or(lease) / 6;
                join_all(calls.iter().map(|call| self.store.run_at_most(limit, &connection, call))).await
            }
            Err(fault) => calls.iter().map(|_| Err(fault.clone())).collect(),
        };
        let renewed = batches.iter().zip(replies).map(|(items, reply)| parse_renewal(&reply?, items.len()));
        (sent, renewed.collect())
    }

    /// Renews all these holds of one server.
    async fn renew_all(&self, lease: Duration, items: Items) {
        let is_divided = self.store.separates_slots(items[0].lock.route);
        let rest = self.serve(lease, if is_divided { by_slot(items) } else { vec![items] }).await;
        // What is left is renewed one hold at a time: such a command can follow a redirection to the server that has
        // its key.
        join_all(rest.into_iter().map(|item| self.serve(lease, vec![vec![item]]))).await;
    }

    /// Renews these batches of one server. Returns the holds that are to be renewed one at a time.
    async fn serve(&self, lease: Duration, batches: Vec<Items>) -> Items {
        let (sent, results) = self.renew_on_master(&batches, lease).await;
        let (mut divided, now) = (Vec::new(), clock::now());
        for (items, result) in batches.into_iter().zip(results) {
            let (is_divisible, route) = (items.len() > 1, items[0].lock.route);
            let wants_less = |fault: &Fault| is_divisible && self.wants_less(fault, route);
            match result {
                Ok(replies) => {
                    for (item, reply) in items.into_iter().zip(replies) {
                        match reply {
                            RenewalReply::Renewed => item.renewed(sent, lease, now),
                            RenewalReply::Lost => item.renewal_found_nothing(now),
                            RenewalReply::Refused(error) => match store::fault_in_script(&error) {
                                fault if wants_less(&fault) => divided.push(item),
                                fault => self.failed(vec![item], lease, &fault),
                            },
                        }
                    }
                }
                Err(fault) if wants_less(&fault) => divided.extend(items),
                Err(fault) => self.failed(items, lease, &fault),
            }
        }
        divided
    }

    /// Whether single holds can be renewed where a batch failed with this fault.
    fn wants_less(&self, fault: &Fault, route: Route) -> bool {
        let is_for_ever = fault.kind == FaultKind::SeveralSlots;
        if is_for_ever {
            self.store.separate_slots(route);
        }
        is_for_ever || fault.kind == FaultKind::Split
    }

    fn failed(&self, items: Items, lease: Duration, fault: &Fault) {
        if let Some(unreported) = self.failures.ask() {
            tracing::warn!(
                %fault, server = &*self.store.address(items[0].lock.route), locks = items.len(), unreported,
                "leases were not renewed, trying again"
            );
        }
        let now = clock::now();
        for item in items {
            // After a transient fault, the renewal is repeated soon. A renewal that the server refuses is sent no more
            // often than one that succeeds.
            let period = self.periods.renewal(lease, item.is_shared());
            let pause = if fault.is_transient() { period / RETRY } else { period };
            item.renewal_failed(now.plus(jitter::around(pause)), now);
        }
    }
}

impl Duty for Renewal {
    type Item = Grant;
    type Group = (Arc<str>, &'static str, Duration);

    fn ahead(&self) -> Duration {
        self.periods.renewal_tick() * 2
    }

    fn begin(&self, item: &Arc<Grant>, key: Key) -> Option<Self::Group> {
        let lease = item.begin_renewal(key, clock::now())?;
        Some((self.store.address(item.lock.route), item.lock.protocol.renewal().file, lease))
    }

    async fn run(&self, (.., lease): Self::Group, items: Vec<Arc<Grant>>) {
        self.renew_all(lease, items).await;
    }

    fn panicked(&self, item: &Arc<Grant>) {
        let now = clock::now();
        item.renewal_failed(now.plus(self.periods.renewal(Duration::ZERO, item.is_shared()) / RETRY), now);
    }

    fn looks(&self, now: Moment) {
        if let Some(pulse) = &self.pulse {
            pulse.ask(now);
        }
        if let Some(waits) = &self.waits {
            waits.look_at(Instant::now());
        }
    }
}

/// The holds of each slot.
fn by_slot(items: Items) -> Vec<Items> {
    let mut batches = BTreeMap::<u16, Items>::new();
    for item in items {
        batches.entry(slot(&item.lock.keys.lock)).or_default().push(item);
    }
    batches.into_values().collect()
}
