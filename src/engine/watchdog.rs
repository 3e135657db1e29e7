//! The watchdog: one task per client that renews leases at a third of their length. A second one, the *heart*, does
//! the same for the places of those who wait in a queue on the server.
//!
//! Grants stand in a list by the time at which they are due. On each tick, those due before the next one are renewed
//! in batches; a batch that is not full takes along what is due soon after. The first time is drawn at random, so
//! that locks that were acquired together are not renewed together. The places of one lock are kept with one command,
//! so these are due together, at a time that follows from the lock's name.
//!
//! A batch is a command of its own. Nothing waits for it, so a slow answer delays no other batch.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::grant::{Grant, Target};
use super::lease;
use crate::clock::{self, Moment};
use crate::jitter;
use crate::script::{Call, Reply};
use crate::store::Fault;
use crate::sync::lock;

/// Grants per renewal command.
const BATCH: usize = 100;

/// Ticks per period.
const TICKS: u32 = 16;

/// A renewal that failed by a fault that may pass is tried again after this part of a period.
const RETRY: u32 = 16;

#[derive(Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

/// What it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Holds,
    /// In the queues of fair locks.
    Places,
}

#[derive(Debug)]
struct Shared {
    duty: Duty,
    list: Mutex<List>,
    /// Wakes the task when it rests, and when it shall end.
    stir: Notify,
    period: Duration,
    /// For locks that are shared, no longer than this.
    shared_period: Duration,
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

    pub(crate) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// The renewal came to an end.
    pub(crate) const fn end(&mut self) {
        self.is_renewing = false;
    }
}

impl Watchdog {
    /// It keeps what lasts for `lease`; where others may make that shorter, as if it lasted no longer than `shared`.
    pub(crate) fn start(duty: Duty, lease: Duration, shared: Duration) -> Self {
        let (list, stir) = (Mutex::default(), Notify::new());
        let (period, shared_period) = (lease / 3, lease.min(shared) / 3);
        let shared = Arc::new(Shared { duty, list, stir, period, shared_period });
        tokio::spawn(run(Arc::clone(&shared)));
        Self(shared)
    }

    pub(crate) fn watch(&self, watch: &mut Watch, grant: &Arc<Grant>, now: Moment) {
        if watch.is_wanted {
            return;
        }
        watch.is_wanted = true;
        if !watch.is_renewing {
            watch.due = Some(self.insert(self.0.first_due(grant, now), grant));
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
    /// A command's worth each.
    fn batches(&self, due: Vec<(Key, Arc<Grant>)>) -> Vec<Vec<Arc<Grant>>> {
        let mut batches: Vec<Vec<Arc<Grant>>> = Vec::new();
        for (_, grant) in due.into_iter().filter(|(key, grant)| self.duty.begin(grant, *key, self.period)) {
            let fits =
                |batch: &&mut Vec<Arc<Grant>>| batch.len() < BATCH && self.duty.is_alike(&batch[0], &grant);
            match batches.iter_mut().rev().find(fits) {
                Some(batch) => batch.push(grant),
                None => batches.push(vec![grant]),
            }
        }
        batches
    }

    fn period_of(&self, grant: &Grant) -> Duration {
        if grant.target.kind.is_shared() { self.shared_period } else { self.period }
    }

    /// Holds are spread by chance. The places of one lock are kept together, and the locks are spread by their names.
    fn first_due(&self, grant: &Grant, now: Moment) -> Moment {
        match self.duty {
            Duty::Holds => now.plus(jitter::within(self.period_of(grant))),
            Duty::Places => self.beat_from(grant, now),
        }
    }

    fn next_due(&self, grant: &Grant, sent: Moment) -> Moment {
        match self.duty {
            Duty::Holds => sent.plus(self.period_of(grant)),
            Duty::Places => self.beat_from(grant, sent.plus(self.period / 2)),
        }
    }

    /// The first time, from this one on, at which the places of the grant's lock are to be kept.
    fn beat_from(&self, grant: &Grant, earliest: Moment) -> Moment {
        let mut hasher = DefaultHasher::new();
        grant.name().hash(&mut hasher);
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let phase = hasher.finish() % period;
        let since = (earliest.as_nanos() + period - phase) % period;
        earliest.plus(Duration::from_nanos((period - since) % period))
    }

    fn tick(&self) -> Duration {
        self.shared_period / TICKS
    }

    /// Takes what is to be renewed now off the list.
    fn take_due(&self, now: Moment) -> Vec<(Key, Arc<Grant>)> {
        let mut list = lock(&self.list);
        let before = |list: &List, time: Moment| list.due.range(..(time, 0)).count();
        let due = before(&list, now.plus(self.tick()));
        let take = match self.duty {
            Duty::Holds => due.next_multiple_of(BATCH).min(before(&list, now.plus(self.tick() * 3))),
            Duty::Places => due, // those of one lock are due together
        };
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
                for batch in shared.batches(due) {
                    renewals.push(renew(Arc::clone(&shared), batch));
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

async fn renew(shared: Arc<Shared>, batch: Vec<Arc<Grant>>) {
    let duty = shared.duty;
    let result = match duty {
        Duty::Holds => send(&batch).await,
        Duty::Places => beat(&batch).await,
    };
    match result {
        Ok((sent, kept)) => {
            for (grant, kept) in batch.iter().zip(kept) {
                duty.done(grant, kept, sent, shared.next_due(grant, sent));
            }
        }
        Err(fault) => {
            tracing::warn!(%fault, locks = batch.len(), "{} were not renewed, trying again", duty.what());
            // What is refused is not asked for more often than what is granted.
            for grant in &batch {
                let period = shared.period_of(grant);
                let pause = if fault.is_transient() { period / RETRY } else { period };
                duty.failed(grant, clock::now().plus(jitter::around(pause)));
            }
        }
    }
}

impl Duty {
    fn begin(self, grant: &Arc<Grant>, key: Key, period: Duration) -> bool {
        match self {
            Self::Holds => grant.begin_renewal(key, clock::now()),
            Self::Places => grant.begin_beat(key, period),
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Holds => "leases",
            Self::Places => "places in a queue",
        }
    }

    /// Whether one command can serve both.
    fn is_alike(self, one: &Grant, other: &Grant) -> bool {
        match self {
            Self::Holds => {
                std::ptr::eq(one.target.kind.renewal(), other.target.kind.renewal())
                    && one.renewed_lease() == other.renewed_lease()
            }
            Self::Places => one.name() == other.name(),
        }
    }

    fn done(self, grant: &Arc<Grant>, kept: i64, sent: Moment, next: Moment) {
        match (self, kept) {
            (Self::Holds, 1) => grant.renewed(sent, next),
            (Self::Holds, _) => {
                if grant.not_there() {
                    tracing::warn!(name = %grant.name(), "a lock was lost: the server does not know the hold any more");
                }
            }
            (Self::Places, kept) => grant.beaten(next, kept != 1),
        }
    }

    fn failed(self, grant: &Arc<Grant>, next: Moment) {
        match self {
            Self::Holds => grant.not_renewed(next),
            Self::Places => grant.beaten(next, false),
        }
    }
}

/// Keeps the places of waiters of one lock.
async fn beat(batch: &[Arc<Grant>]) -> Result<(Moment, Vec<i64>), Fault> {
    let target = &batch[0].target;
    let ids: Vec<String> = batch.iter().map(|grant| grant.id().to_string()).collect();
    let queue = target.kind.queue().expect("BUG: who has a place has it in a queue");
    let call = queue.beat(target, ids.join(" "));
    run_batch(target, &call, batch.len(), target.engine.config.fair_allowance / 6).await
}

async fn send(batch: &[Arc<Grant>]) -> Result<(Moment, Vec<i64>), Fault> {
    let target = &batch[0].target;
    let call = target
        .kind
        .renewal()
        .call(lease::millis(batch[0].renewed_lease()), batch.iter().map(|grant| grant.keep_alive()));
    run_batch(target, &call, batch.len(), target.engine.config.watchdog_lease / 6).await
}

/// One silent connection must not cost the lease: within `limit` there has to be time for another try.
async fn run_batch(
    target: &Target,
    call: &Call,
    len: usize,
    limit: Duration,
) -> Result<(Moment, Vec<i64>), Fault> {
    let store = &target.engine.store;
    let route = target.route().await?;
    let sent = clock::now();
    let limit = target.engine.config.command_timeout.min(limit);
    let number = |reply: &Reply| match reply {
        Reply::Int(number) => *number,
        _ => 0,
    };
    match store.run_within(limit, &route, call).await? {
        Reply::List(replies) if replies.len() == len => Ok((sent, replies.iter().map(number).collect())),
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
