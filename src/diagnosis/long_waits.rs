//! What is done for calls that wait for long: after a second, the wait is recorded on the server. After a lease, it is reported, except
//! that of a candidate.
//!
//! A part of the task of the diagnosis looks after all waits of a client, and asks the servers for the reports. A shutdown does not wait for
//! these. The task keeps no grant: a call that ends meanwhile is gone.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::error::LockId;
use crate::base::fault::Fault;
use crate::base::sync::lock;
use crate::base::timer::{Instant, elapsed, sleep, timeout};
use crate::diagnosis::clients::Clients;
use crate::diagnosis::inspect::list_any;
use crate::diagnosis::recent_waits::{HoldersSeen, Wait};
use crate::diagnosis::records::{About, Records};
use crate::diagnosis::why::{Awaited, Chain, HOLDS_NOTHING, LATER, chains_from, confirm};
use crate::engine::{Engine, Grant, SeenWait, SeenWaiter};
use crate::protocol::{Call, LeaseLeft, Reply};
use crate::telemetry::report::Limit;

/// A wait is recorded after this time.
const LONG: Duration = Duration::from_secs(1);

const UNKNOWN: &str = "unknown";

/// The most holders that are kept of one wait.
const NAMED: usize = 8;

/// The calls of a client that wait.
#[derive(Default)]
pub(crate) struct LongWaits {
    list: Mutex<List>,
    /// Something is due earlier than the task knows.
    stir: Notify,
    /// Limits the reports.
    reports: Limit,
    /// When each lock was looked for among the client's own holds, in the last lease.
    looked: Mutex<HashMap<Arc<str>, Instant>>,
}

/// The holds of a client by their locks. They are asked for when they are first wanted, and then once: a client can have very many.
struct OwnHolds<'a> {
    engine: &'a Engine,
    looked: &'a Mutex<HashMap<Arc<str>, Instant>>,
    by_lock: OnceCell<HashMap<Arc<str>, Vec<Arc<Grant>>>>,
}

#[derive(Default)]
struct List {
    /// By the numbers of their grants.
    waits: HashMap<u64, OpenWait>,
    due: BTreeSet<(Instant, u64)>,
    /// When the task looks at the list. `None`: it waits until it is stirred.
    looks_at: Option<Instant>,
}

struct OpenWait {
    wait: Wait,
    /// `None` while the task acts.
    long: Option<LongWait>,
}

/// What is still to be done for a call, if it waits for long.
struct LongWait {
    lock: Lock,
    waiter: Box<dyn SeenWaiter>,
    caller: Caller,
    since: Moment,
    lease: Option<Duration>,
    record_at: Option<Instant>,
    report_at: Option<Instant>,
    is_reported: bool,
    /// Once that was looked for.
    is_deadlock_reported: Option<Arc<AtomicBool>>,
    recorded: Option<RecordedWait>,
    records: Records,
}

/// The lock for which a call waits.
#[derive(Clone)]
struct Lock {
    name: Arc<str>,
    key: Arc<str>,
}

/// The record of a wait. It is removed when this is dropped.
struct RecordedWait {
    records: Records,
    owner: Arc<str>,
}

impl LongWaits {
    pub(crate) fn begin(&self, seen: SeenWait<'_>, records: &Records) {
        let number = seen.number;
        let wait = Wait::since(seen.since, seen.name, seen.caller);
        let long = LongWait::new(seen, records);
        let stirs = {
            let mut list = lock(&self.list);
            let due = long.next();
            list.due.extend(due.map(|at| (at, number)));
            list.waits.insert(number, OpenWait { wait, long: Some(long) });
            let is_news = due.is_some_and(|due| list.looks_at.is_none_or(|at| due < at));
            if is_news {
                list.looks_at = due;
            }
            is_news
        };
        if stirs {
            self.stir.notify_one();
        }
    }

    /// A call waits no more.
    pub(crate) fn end(&self, number: u64) -> Option<Wait> {
        let OpenWait { wait, long } = {
            let mut list = lock(&self.list);
            let ended = list.waits.remove(&number)?;
            if let Some(at) = ended.long.as_ref().and_then(LongWait::next) {
                list.due.remove(&(at, number));
            }
            ended
        };
        drop(long); // dropping a `LongWait` removes its record
        Some(wait)
    }

    /// Looks after the waits of the client with this engine.
    pub(crate) async fn run(self: Arc<Self>, engine: Weak<Engine>) {
        let mut reports = FuturesUnordered::new();
        loop {
            let next = {
                let mut list = lock(&self.list);
                list.looks_at = list.due.first().map(|(at, _)| *at);
                list.looks_at
            };
            tokio::select! {
                biased;
                () = elapsed(next) => {
                    // The client was dropped, so no call waits. This future does nothing more, and ends together with
                    // the task that removes the records.
                    let Some(engine) = engine.upgrade() else { return pending().await };
                    reports.extend(self.act(&engine));
                }
                () = self.stir.notified() => {}
                Some(()) = reports.next() => {}
            }
        }
    }

    /// Does what is due. Returns the reports that are to be made.
    fn act(&self, engine: &Arc<Engine>) -> Vec<BoxFuture<'static, ()>> {
        let (now, mut reports) = (Instant::now(), Vec::new());
        let holds = OwnHolds { engine, looked: &self.looked, by_lock: OnceCell::new() };
        while let Some((number, mut long)) = self.take_due(now) {
            let (report, seen) = long.act(now, engine, &holds, &self.reports);
            reports.extend(report);
            let mut list = lock(&self.list);
            if let Some(open) = list.waits.get_mut(&number) {
                if seen.is_some() {
                    open.wait.holders = seen;
                }
                let next = long.next();
                open.long = Some(long);
                list.due.extend(next.map(|at| (at, number)));
            } else {
                // The call ended while `long` was out of the list, so nobody else drops it. `long` is dropped after the
                // list is unlocked, because its drop removes the record and runs code of other modules.
                drop(list);
                drop(long);
            }
        }
        reports
    }

    fn take_due(&self, now: Instant) -> Option<(u64, LongWait)> {
        let mut list = lock(&self.list);
        let first = *list.due.first().filter(|(at, _)| *at <= now)?;
        list.due.remove(&first);
        let (_, number) = first;
        Some((number, list.waits.get_mut(&number)?.long.take()?))
    }
}

impl LongWait {
    fn new(seen: SeenWait<'_>, records: &Records) -> Self {
        let (now, age) = (Instant::now(), clock::now().since(seen.since));
        // A call that waited with another owner id before can be older than a lease.
        let left = |lease: Duration| if age < lease { lease - age } else { lease };
        Self {
            lock: Lock { name: Arc::clone(seen.name), key: Arc::clone(seen.key) },
            waiter: seen.waiter,
            caller: seen.caller,
            since: seen.since,
            lease: seen.lease,
            record_at: Some(now + LONG.saturating_sub(age)),
            report_at: seen.lease.map(|lease| now + left(lease)),
            is_reported: false,
            is_deadlock_reported: None,
            recorded: None,
            records: records.clone(),
        }
    }

    /// When something is to be done.
    fn next(&self) -> Option<Instant> {
        self.record_at.into_iter().chain(self.report_at).min()
    }

    /// Does what is due. Returns a report that is to be made, and the holders that it finds.
    fn act(
        &mut self,
        now: Instant,
        engine: &Arc<Engine>,
        holds: &OwnHolds<'_>,
        limit: &Limit,
    ) -> (Option<BoxFuture<'static, ()>>, Option<HoldersSeen>) {
        let held = self.waiter.reserve(clock::now());
        if self.record_at.take_if(|at| *at <= now).is_some() {
            self.recorded = self.record(&held);
        }
        let Some(lease) = self.lease.filter(|_| self.report_at.is_some_and(|at| at <= now)) else {
            return (None, None);
        };
        self.report_at = (!held.is_empty()).then(|| now + lease);
        let unreported = if std::mem::replace(&mut self.is_reported, true) {
            None
        } else {
            if holds.is_next(&self.lock, now, lease) {
                self.lock.warn_of_own_hold(holds, self.caller);
            }
            limit.ask()
        };
        if unreported.is_none() && held.is_empty() {
            return (None, None);
        }
        let (engine, lock, place, caller) =
            (Arc::clone(engine), self.lock.clone(), self.waiter.place(), self.caller);
        let seen = unreported.map(|_| HoldersSeen::default());
        let found = seen.clone();
        let is_deadlock_reported = Arc::clone(self.is_deadlock_reported.get_or_insert_default());
        let report = async move {
            if let Some((unreported, seen)) = unreported.zip(found) {
                // The call's own `LongWait` has the other reference, and is dropped when the call ends.
                let waits = || Arc::strong_count(&is_deadlock_reported) > 1;
                report(&engine, &lock, place, caller, unreported, &seen, waits).await;
            }
            if !held.is_empty() && !is_deadlock_reported.load(Ordering::Relaxed) {
                let is_found = report_deadlock(&engine, &lock, &held, caller).await;
                is_deadlock_reported.fetch_or(is_found, Ordering::Relaxed);
            }
        };
        (Some(report.boxed()), seen)
    }

    /// `held`: what the same `Owner` holds.
    fn record(&self, held: &[Arc<str>]) -> Option<RecordedWait> {
        let (owner, caller) = (self.waiter.owner()?, self.caller);
        let held = if held.is_empty() { HOLDS_NOTHING.to_owned() } else { held.join(",") };
        let place = format!("{}:{}", caller.file().replace(' ', "_"), caller.line());
        let what = format!("{held} {place} {}", self.lock.key).into();
        self.records.write(About::Wait, Arc::clone(&owner), self.since, what);
        Some(RecordedWait { records: self.records.clone(), owner })
    }
}

impl Lock {
    fn id(&self, engine: &Engine) -> LockId {
        LockId {
            name: self.name.to_string(),
            key: self.key.to_string(),
            server: engine.store.address(engine.store.route(&self.key)).to_string(),
        }
    }

    /// Warns if another owner of this client holds the lock: perhaps the call waits for a hold of its own task.
    fn warn_of_own_hold(&self, holds: &OwnHolds<'_>, caller: Caller) {
        let Some(holder) = holds.holder(self) else { return };
        let LockId { name, key, server } = self.id(holds.engine);
        tracing::warn!(
            lock = name, key, server, holder, waits_at = %caller,
            "a waiter has waited for longer than a lease for a lock that this client holds: if the holder waits for the \
             waiter, neither continues"
        );
    }
}

impl OwnHolds<'_> {
    /// Whether to look for this lock: once in a lease, however many calls wait for it.
    fn is_next(&self, waited: &Lock, now: Instant, lease: Duration) -> bool {
        let mut looked = lock(self.looked);
        looked.retain(|_, at| now < *at + lease);
        let is_next = !looked.contains_key(&waited.key);
        if is_next {
            looked.insert(Arc::clone(&waited.key), now);
        }
        is_next
    }

    fn holder(&self, lock: &Lock) -> Option<String> {
        let by_lock = self.by_lock.get_or_init(|| {
            let mut by_lock = HashMap::<_, Vec<_>>::new();
            for grant in self.engine.renewals.items() {
                by_lock.entry(Arc::clone(&grant.lock.keys.lock)).or_default().push(grant);
            }
            by_lock
        });
        let now = clock::now();
        by_lock
            .get(&lock.key)?
            .iter()
            .find_map(|grant| Some(format!("{}, acquired at {}", grant.field(), grant.held_at(now)?)))
    }
}

impl Drop for RecordedWait {
    fn drop(&mut self) {
        self.records.remove(About::Wait, take(&mut self.owner));
    }
}

/// Reports who holds the lock, if the call still `waits` then.
async fn report(
    engine: &Engine,
    lock: &Lock,
    place: Option<Call>,
    caller: Caller,
    unreported: u64,
    seen: &HoldersSeen,
    waits: impl Fn() -> bool,
) {
    let limit = engine.config.command_timeout();
    let mut found = timeout(limit, holders(engine, lock)).await.ok().flatten();
    if matches!(&found, Some((names, _)) if names.is_empty()) {
        // This process was perhaps stopped until the holder's lease had ended. Then the call ends soon, too.
        sleep(LATER).await;
        found = timeout(limit, holders(engine, lock)).await.ok().flatten();
    }
    let (holder, held_for) = match &found {
        Some((names, held_for)) => (named(names), held_for.clone()),
        None => (UNKNOWN.to_owned(), UNKNOWN.to_owned()),
    };
    if let Some((mut names, _)) = found {
        names.truncate(NAMED);
        let _ = seen.set(names);
    }
    // Only a fair lock has a queue, so the event has no field `place` for other locks.
    let place = match place {
        Some(call) => {
            let found = timeout(limit, place_in_queue(engine, lock, &call)).await.ok().flatten();
            Some(found.unwrap_or_else(|| UNKNOWN.to_owned()))
        }
        None => None,
    };
    if !waits() {
        return;
    }
    let LockId { name, key, server } = lock.id(engine);
    tracing::warn!(
        lock = name, key, server, holder, held_for, place, waits_at = %caller, unreported,
        "a call has waited for a lease, and still waits"
    );
}

/// Reports a deadlock of which the waiter is a part, if there is one. `held`: what the same `Owner` holds.
async fn report_deadlock(engine: &Engine, lock: &Lock, held: &[Arc<str>], caller: Caller) -> bool {
    let limit = engine.config.command_timeout() * 2 + LATER;
    let Ok(Ok(found)) = timeout(limit, cycle(engine, &lock.key, held)).await else { return false };
    let Some(chain) = found else { return false };
    let LockId { name, key, server } = lock.id(engine);
    tracing::warn!(
        lock = name, key, server, chain, waits_at = %caller,
        "a deadlock: this call waits for an owner that waits for a lock which this one holds"
    );
    true
}

/// The chain from a lock to something that this client holds, as text.
async fn cycle(engine: &Engine, key: &Arc<str>, held: &[Arc<str>]) -> Result<Option<String>, Fault> {
    let own: Vec<String> = held.iter().map(|owner| format!("{}:{owner}", engine.id)).collect();
    let is_own = |chain: &Chain| chain.links.iter().any(|link| own.contains(&link.holding.field));
    let Some(mut chain) = chains_from(engine, key).await?.into_iter().find(is_own) else { return Ok(None) };
    confirm(engine, std::slice::from_mut(&mut chain)).await?;
    if !chain.is_cycle {
        return Ok(None);
    }
    let clients = Clients::ask(engine, [&chain.holders()]).await;
    if chain.has_ended(&clients) {
        return Ok(None);
    }
    let links = chain.links.iter().map(|link| {
        let (lock, owner) = (&link.lock, &link.holding.field);
        match &link.waits_for {
            _ if own.contains(owner) => format!("`{lock}` is held by this client ({owner})"),
            Some(Awaited { lock: next, at, .. }) => {
                let holder = clients.describe(owner);
                format!("`{lock}` is held by {holder}, which waits for `{next}` at {at}")
            }
            None => format!("`{lock}` is held by {}", clients.describe(owner)),
        }
    });
    Ok(Some(links.collect::<Vec<_>>().join("; ")))
}

/// Who holds the lock, and for how long the first of them does. `None`: nobody knows.
async fn holders(engine: &Engine, lock: &Lock) -> Option<(Vec<String>, String)> {
    let listing = list_any(engine, &lock.key).await.ok()?;
    let clients = Clients::ask(engine, [&listing]).await;
    let alive = listing.holders.iter().filter(|holding| holding.lease != LeaseLeft::Ended);
    let fields: Vec<&str> = alive.map(|holding| &*holding.field).collect();
    let Some(first) = fields.first() else { return Some((Vec::new(), "none".to_owned())) };
    let seconds = |age: Duration| humantime::format_duration(Duration::from_secs(age.as_secs())).to_string();
    let held_for = clients.held_for(first).map_or_else(|| UNKNOWN.to_owned(), seconds);
    Some((fields.into_iter().map(|field| clients.describe(field)).collect(), held_for))
}

fn named(holders: &[String]) -> String {
    match holders {
        [] => "nobody".to_owned(),
        [only] => only.clone(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

async fn place_in_queue(engine: &Engine, lock: &Lock, call: &Call) -> Option<String> {
    let connection = engine.store.connection(engine.store.route(&lock.key)).await.ok()?;
    match engine.store.run(&connection, call).await {
        Ok(Reply::Int(place)) => Some(place.to_string()),
        _ => None,
    }
}
