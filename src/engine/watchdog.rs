//! The watchdog: one task per client that renews leases at a third of their length.
//!
//! Grants stand in a list by the time at which they are due. On each tick, those due before the next one are renewed
//! in batches; a batch that is not full takes along what is due soon after. The first time is drawn at random, so
//! that locks that were acquired together are not renewed together.
//!
//! A batch is a command of its own. Nothing waits for it, so a slow answer delays no other batch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::grant::Grant;
use super::lease;
use crate::clock::{self, Moment};
use crate::jitter;
use crate::script::Reply;
use crate::store::Fault;
use crate::sync::lock;

/// Grants per renewal command.
const BATCH: usize = 100;

/// Ticks per period.
const TICKS: u32 = 16;

/// A renewal that failed is tried again after this part of a period.
const RETRY: u32 = 16;

#[derive(Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    list: Mutex<List>,
    /// Wakes the task when it rests, and when it shall end.
    stir: Notify,
    lease: Duration,
}

#[derive(Debug, Default)]
struct List {
    due: BTreeMap<Key, Arc<Grant>>,
    /// Told apart by number, as many may be due in the same nanosecond.
    next: u64,
    is_resting: bool,
    is_closed: bool,
}

/// Where a grant stands in the list.
pub(crate) type Key = (Moment, u64);

/// How one grant stands with the watchdog. Kept with the grant's books, and changed with them locked.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    is_wanted: bool,
    is_renewing: bool,
    due: Option<Key>,
}

impl Watch {
    /// It was taken off the list, where it stood under this key. False: it was given up, or put elsewhere since.
    pub(crate) fn begin(&mut self, key: Key) -> bool {
        self.is_renewing = self.due == Some(key);
        if self.is_renewing {
            self.due = None;
        }
        self.is_renewing
    }

    /// The renewal came to an end.
    pub(crate) const fn end(&mut self) {
        self.is_renewing = false;
    }
}

impl Watchdog {
    pub(crate) fn start(lease: Duration) -> Self {
        let shared = Arc::new(Shared { list: Mutex::default(), stir: Notify::new(), lease });
        tokio::spawn(run(Arc::clone(&shared)));
        Self(shared)
    }

    pub(crate) fn watch(&self, watch: &mut Watch, grant: &Arc<Grant>) {
        if watch.is_wanted {
            return;
        }
        watch.is_wanted = true;
        if !watch.is_renewing {
            watch.due = Some(self.insert(clock::now().plus(jitter::within(self.0.period())), grant));
        }
    }

    pub(crate) fn unwatch(&self, watch: &mut Watch) {
        watch.is_wanted = false;
        if let Some(key) = watch.due.take() {
            // Bound, so that what is removed is dropped after the list is unlocked.
            let _removed = lock(&self.0.list).due.remove(&key);
        }
    }

    /// Its renewal came to an end, and the next is due then.
    pub(crate) fn again(&self, watch: &mut Watch, grant: &Arc<Grant>, due: Moment) {
        watch.end();
        if watch.is_wanted {
            watch.due = Some(self.insert(due, grant));
        }
    }

    /// Ends the task. What it renewed runs out.
    pub(crate) fn close(&self) {
        let _dropped = {
            let mut list = lock(&self.0.list);
            list.is_closed = true;
            std::mem::take(&mut list.due)
        };
        self.0.stir.notify_one();
    }

    fn insert(&self, due: Moment, grant: &Arc<Grant>) -> Key {
        let mut list = lock(&self.0.list);
        list.next += 1;
        let key = (due, list.next);
        if !list.is_closed {
            list.due.insert(key, Arc::clone(grant));
        }
        if std::mem::take(&mut list.is_resting) {
            self.0.stir.notify_one();
        }
        key
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn period(&self) -> Duration {
        self.lease / 3
    }

    fn tick(&self) -> Duration {
        self.period() / TICKS
    }

    /// Takes what is to be renewed now off the list.
    fn take_due(&self, now: Moment) -> Vec<(Key, Arc<Grant>)> {
        let mut list = lock(&self.list);
        let before = |list: &List, time: Moment| list.due.range(..(time, 0)).count();
        let due = before(&list, now.plus(self.tick()));
        let soon = before(&list, now.plus(self.tick() * 3));
        let take = due.next_multiple_of(BATCH).min(soon);
        (0..take).filter_map(|_| list.due.pop_first()).collect()
    }

    /// With nothing to renew, rests until somebody watches a grant, or nobody will any more.
    async fn rest_if_idle(&self) {
        let is_resting = {
            let mut list = lock(&self.list);
            list.is_resting = list.due.is_empty() && !list.is_closed;
            list.is_resting
        };
        if is_resting {
            self.stir.notified().await;
        }
    }
}

async fn run(shared: Arc<Shared>) {
    let mut ticks = interval(shared.tick());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewals = FuturesUnordered::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let due = shared.take_due(clock::now());
                for batch in batches(due) {
                    renewals.push(renew(batch, shared.period()));
                }
                if renewals.is_empty() {
                    shared.rest_if_idle().await;
                }
            }
            Some(()) = renewals.next() => {}
            () = shared.stir.notified() => {}
        }
        if lock(&shared.list).is_closed {
            return;
        }
    }
}

/// Grants of one kind of renewal, a command's worth each.
fn batches(due: Vec<(Key, Arc<Grant>)>) -> Vec<Vec<Arc<Grant>>> {
    let now = clock::now();
    let mut batches: Vec<Vec<Arc<Grant>>> = Vec::new();
    for (_, grant) in due.into_iter().filter(|(key, grant)| grant.begin_renewal(*key, now)) {
        let script: *const _ = grant.target.kind.renewal();
        let fits = |batch: &&mut Vec<Arc<Grant>>| {
            batch.len() < BATCH && std::ptr::eq(batch[0].target.kind.renewal(), script)
        };
        match batches.iter_mut().rev().find(fits) {
            Some(batch) => batch.push(grant),
            None => batches.push(vec![grant]),
        }
    }
    batches
}

async fn renew(batch: Vec<Arc<Grant>>, period: Duration) {
    match send(&batch).await {
        Ok((sent, renewed)) => {
            for (grant, renewed) in batch.iter().zip(renewed) {
                if renewed {
                    grant.renewed(sent, sent.plus(period));
                } else if grant.not_there() {
                    tracing::warn!(name = %grant.name(), "a lock was lost: the server does not know the hold any more");
                }
            }
        }
        Err(fault) => {
            tracing::warn!(%fault, locks = batch.len(), "leases were not renewed, trying again");
            for grant in &batch {
                grant.not_renewed(clock::now().plus(jitter::around(period / RETRY)));
            }
        }
    }
}

async fn send(batch: &[Arc<Grant>]) -> Result<(Moment, Vec<bool>), Fault> {
    let target = &batch[0].target;
    let store = &target.engine.store;
    let call = target.kind.renewal().call(
        lease::millis(target.engine.config.watchdog_lease),
        batch.iter().map(|grant| grant.keep_alive()),
    );
    let route = store.route(&target.name).await?;
    let sent = clock::now();
    // One silent connection must not cost the lease: there has to be time for another try.
    let limit = target.engine.config.command_timeout.min(target.engine.config.watchdog_lease / 6);
    match store.run_within(limit, &route, &call).await? {
        Reply::List(replies) if replies.len() == batch.len() => {
            Ok((sent, replies.into_iter().map(|reply| reply == Reply::Int(1)).collect()))
        }
        reply => Err(Fault::unexpected(&reply)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_was_given_up_while_it_was_taken_is_not_begun() {
        let (key, later) = ((clock::now(), 1), (clock::now(), 2));
        let mut watch = Watch { is_wanted: true, due: Some(key), ..Watch::default() };
        assert!(watch.begin(key) && watch.is_renewing);
        watch.end();
        watch.due = None; // given up
        assert!(!watch.begin(key) && !watch.is_renewing);
        watch.due = Some(later); // and watched again
        assert!(!watch.begin(key) && !watch.is_renewing);
        assert_eq!(watch.due, Some(later));
    }
}
