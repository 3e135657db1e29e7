//! What a client does for those who look: it writes its [snapshot](super::snapshot) when holds and waits last for longer than a second,
//! reports a wait that lasts for a lease, except that of a candidate, and looks for deadlocks.
//!
//! A task looks at the lines and the holds of the engine when something is due there, and at most every 200 ms. It asks servers beside that,
//! and a shutdown does not wait for these answers. The task keeps no grant: a call that ends meanwhile is gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch::Receiver;

use crate::base::clock;
use crate::base::error::LockId;
use crate::base::fault::{Fault, FaultKind};
use crate::base::jitter::Backoff;
use crate::base::sync::lock;
use crate::base::timer::{Instant, elapsed, sleep, timeout};
use crate::diagnosis::clients::Clients;
use crate::diagnosis::inspect::list_any;
use crate::diagnosis::snapshot::{self, EXPIRY, Snapshot};
use crate::diagnosis::why::{Chain, LATER, chains_from, confirm};
use crate::engine::{Due, Engine, Grant, LONG, LockRef, Orders, Wait};
use crate::protocol::{Call, LeaseLeft, Reply, client_key};
use crate::store::{Route, Store, identity};
use crate::telemetry::report::Limit;

/// The least time between two looks, and so between two snapshots.
const PAUSE: Duration = Duration::from_millis(200);

/// The most time between two tries to write. A snapshot that outlives a wait shows a chain that is not there.
const PAUSES: Backoff = Backoff::new(PAUSE, Duration::from_secs(3));

/// A deadlock is looked for after a wait has been shown for so long: by then, the snapshots of waits that began together are written.
const CHECK: Duration = Duration::from_millis(300);

const UNKNOWN: &str = "unknown";

/// The most holders that are kept of one wait.
const NAMED: usize = 8;

/// The task of a client.
pub(crate) struct Watch {
    snapshots: Writer,
    /// Limits the reports.
    reports: Limit,
    /// When each lock was looked for among the client's own holds, in the last lease.
    looked: HashMap<Arc<str>, Instant>,
    jobs: FuturesUnordered<Job>,
}

/// What the task waits for. Returns how a snapshot was written, if it was to write one.
type Job = BoxFuture<'static, Option<Result<(), Fault>>>;

/// Writes the snapshots.
struct Writer {
    store: Arc<Store>,
    key: Arc<str>,
    route: Route,
    identity: String,
    /// What the server perhaps has.
    written: Snapshot,
    /// When it has to be written again. `None`: while a command is under way.
    next: Option<Instant>,
    keep: Instant,
    pauses: Backoff,
    /// This user has no right to the key.
    is_refused: bool,
}

impl Watch {
    pub(crate) fn new(engine: &Engine) -> Self {
        let key = client_key(engine.name_prefix(), &engine.id());
        let (now, identity) = (Instant::now(), identity(&engine.config));
        Self {
            snapshots: Writer {
                store: Arc::clone(&engine.store),
                route: engine.store.route(&key),
                key,
                written: Snapshot::new(&identity),
                identity,
                next: Some(now),
                keep: now,
                pauses: PAUSES,
                is_refused: false,
            },
            reports: Limit::default(),
            looked: HashMap::new(),
            jobs: FuturesUnordered::new(),
        }
    }

    /// Ends at the shutdown, or after the client was dropped.
    pub(crate) async fn run(mut self, mut orders: Receiver<Orders>, engine: Weak<Engine>) {
        let (mut looks_at, mut looked_at) = (None, None);
        loop {
            tokio::select! {
                biased;
                () = elapsed(looks_at) => {
                    let Some(engine) = engine.upgrade() else { break };
                    looked_at = Some(Instant::now());
                    self.look(&engine);
                }
                changed = orders.changed() => {
                    if changed.is_err() {
                        break;
                    }
                }
                Some(job) = self.jobs.next() => job.into_iter().for_each(|result| self.snapshots.ended(result)),
            }
            let Orders { looks_at: at, ends } = *orders.borrow_and_update();
            if ends {
                break;
            }
            let earliest = looked_at.map(|at| at + PAUSE);
            looks_at = at.map(|at| earliest.map_or(at, |earliest| at.max(earliest)));
        }
        self.snapshots.remove().await;
    }

    /// Does what is due, and asks for the next look.
    fn look(&mut self, engine: &Arc<Engine>) {
        let Some(list) = &engine.waits else { return };
        list.looks();
        let (now, at, mut waits) = (Instant::now(), clock::now(), engine.lines.calls());
        waits.sort_by_key(|(_, wait)| wait.since);
        // A hold with a fixed lease is mostly in the list of those of which the server tells changes.
        let known = engine.renewals.items().into_iter().chain(engine.tracked.all());
        let holds = known.filter(|grant| grant.held_at(at).is_some()).map(|grant| (grant.number, grant));
        let holds: Vec<_> = holds.collect::<BTreeMap<_, _>>().into_values().collect();
        let lease = engine.config.watchdog_lease();
        let (mut snapshot, mut of_waiters) = (Snapshot::new(&self.snapshots.identity), Vec::new());
        let mut next = Vec::new();
        for (line, wait) in waits {
            let age = at.since(wait.since);
            let shown = now + LONG.saturating_sub(age);
            let mut due = lock(&wait.due).unwrap_or_else(|| due(&wait, shown, (now, age, lease)));
            let is_due = |time: Option<Instant>| time.is_some_and(|time| time <= now);
            let (is_shown, is_reported) = (shown <= now, is_due(due.report));
            let held = if is_shown || is_reported { wait.owner.reserve_all(at) } else { Vec::new() };
            if is_shown {
                wait.is_refused.fetch_or(line.with(|state| state.is_answered()), Ordering::Relaxed);
                snapshot.add_wait(&held, &wait);
            }
            if is_reported {
                due.report = None;
                self.report(&wait, wait.lock.place(&line.channel()), &holds, now);
            }
            if is_due(due.check) {
                due.check = Some(now + age.min(lease).max(LONG));
                if !held.is_empty() {
                    let held = held.iter().map(|grant| grant.field()).collect();
                    let check = check(Arc::clone(&wait.lock), Arc::downgrade(&wait), held);
                    self.jobs.push(check.map(|()| None).boxed());
                }
            }
            *lock(&wait.due) = Some(due);
            next.extend((!is_shown).then_some(shown).into_iter().chain(due.report).chain(due.check));
            of_waiters.extend(held);
        }
        snapshot.add_holds(&of_waiters, &holds, at);
        next.extend(self.snapshots.next(&snapshot, now));
        if let Some(write) = self.snapshots.write(snapshot, now) {
            self.jobs.push(write);
        }
        next.into_iter().min().into_iter().for_each(|at| list.look_at(at));
    }

    /// Reports a wait that has lasted for a lease.
    fn report(&mut self, wait: &Arc<Wait>, place: Option<Call>, holds: &[Arc<Grant>], now: Instant) {
        let (engine, key) = (&wait.lock.engine, &wait.lock.keys.lock);
        self.looked.retain(|_, at| now < *at + engine.config.watchdog_lease());
        // Once in a lease, however many calls wait for the lock.
        if !self.looked.contains_key(key) {
            self.looked.insert(Arc::clone(key), now);
            warn_of_own_hold(wait, holds);
        }
        if let Some(unreported) = self.reports.ask() {
            let report = report(Arc::clone(&wait.lock), Arc::downgrade(wait), place, unreported);
            self.jobs.push(report.map(|()| None).boxed());
        }
    }
}

/// What is to be done for a wait at which nobody has looked before.
fn due(wait: &Wait, shown: Instant, (now, age, lease): (Instant, Duration, Duration)) -> Due {
    // A look that comes late finds a call that is older than a lease.
    let left = if age < lease { lease - age } else { lease };
    let of_call = |at: Instant| (!wait.is_standby).then_some(at);
    Due { report: of_call(now + left), check: of_call(shown + CHECK) }
}

impl Writer {
    /// When a look has to follow: holds end without a word, and the server forgets a snapshot that is not written again.
    fn next(&self, snapshot: &Snapshot, now: Instant) -> Option<Instant> {
        let is_needed = !self.is_refused && (!snapshot.is_empty() || *snapshot != self.written);
        is_needed.then(|| {
            if *snapshot == self.written { now + LONG } else { self.next.unwrap_or(now).max(now + PAUSE) }
        })
    }

    /// The command that writes what has changed, or what the server forgets otherwise.
    fn write(&mut self, snapshot: Snapshot, now: Instant) -> Option<Job> {
        let is_kept = snapshot == self.written && (snapshot.is_empty() || now < self.keep);
        if self.is_refused || is_kept || self.next.is_none_or(|at| at > now) {
            return None;
        }
        let (store, route, call) = (Arc::clone(&self.store), self.route, snapshot.write(&self.key));
        (self.written, self.next, self.keep) = (snapshot, None, now + EXPIRY / 3);
        let write = async move {
            let run = async { store.run(&store.connection(route).await?, &call).await };
            Some(run.await.map(drop))
        };
        Some(write.boxed())
    }

    /// Records how the command ended.
    fn ended(&mut self, result: Result<(), Fault>) {
        let pause = match result {
            Ok(()) => {
                self.pauses = PAUSES;
                PAUSE
            }
            Err(fault) => {
                if fault.kind == FaultKind::Permission {
                    tracing::info!(
                        %fault, key = &*self.key, server = &*self.store.address(self.route),
                        "the server refuses a record of this client: others cannot see since when it holds locks, or for which it \
                         waits"
                    );
                    self.is_refused = true;
                }
                // Perhaps the server has it all the same.
                self.written.more = usize::MAX;
                self.pauses.pause()
            }
        };
        self.next = Some(Instant::now() + pause);
    }

    /// Removes the snapshot. Tries a second time: a connection that broke is noticed by the first.
    async fn remove(&mut self) {
        if self.is_refused || (self.written == Snapshot::new(&self.identity) && self.next.is_some()) {
            return;
        }
        let call = Snapshot::default().write(&self.key);
        let run = async || self.store.run(&self.store.connection(self.route).await?, &call).await;
        if run().await.is_err_and(|fault: Fault| fault.is_transient()) {
            let _ = run().await;
        }
    }
}

/// Warns if another owner of this client holds the lock: perhaps the call waits for a hold of its own task.
fn warn_of_own_hold(wait: &Wait, holds: &[Arc<Grant>]) {
    let now = clock::now();
    let of_lock = holds.iter().filter(|grant| grant.lock.keys.lock == wait.lock.keys.lock);
    let own = of_lock.filter_map(|grant| Some((grant, grant.held_at(now)?))).next();
    let Some((grant, (at, _))) = own else { return };
    let LockId { name, key, server } = wait.lock.id();
    let holder = format!("{}, acquired at {at}", grant.field());
    tracing::warn!(
        lock = name, key, server, holder, waits_at = %wait.caller,
        "a waiter has waited for longer than a lease for a lock that this client holds: if the holder waits for the \
         waiter, neither continues"
    );
}

/// Looks for a deadlock of which the waiter is a part. `held`: what the same `Owner` holds.
async fn check(of: Arc<LockRef>, waiting: Weak<Wait>, held: Vec<String>) {
    let (engine, key) = (&of.engine, &of.keys.lock);
    let limit = engine.config.command_timeout() * 2 + LATER;
    let found = timeout(limit, cycle(engine, key, &held)).await;
    let (Ok(Ok(Some(chain))), Some(wait)) = (found, waiting.upgrade()) else { return };
    // It is looked for until it is found.
    if lock(&wait.due).as_mut().and_then(|due| due.check.take()).is_some() {
        let LockId { name, key, server } = wait.lock.id();
        tracing::warn!(
            lock = name, key, server, chain, waits_at = %wait.caller,
            "a deadlock: this call waits for an owner that waits for a lock which this one holds"
        );
    }
}

/// Reports who holds the lock, if the call is still `waiting` then. `place` asks for its place in the queue.
async fn report(of: Arc<LockRef>, waiting: Weak<Wait>, place: Option<Call>, unreported: u64) {
    let (engine, key) = (&of.engine, &of.keys.lock);
    let limit = engine.config.command_timeout();
    let mut found = timeout(limit, holders(engine, key)).await.ok().flatten();
    if matches!(&found, Some((names, _)) if names.is_empty()) {
        // This process was perhaps stopped until the holder's lease had ended. Then the call ends soon, too.
        sleep(LATER).await;
        found = timeout(limit, holders(engine, key)).await.ok().flatten();
    }
    let mut seen = (UNKNOWN.to_owned(), UNKNOWN.to_owned());
    if let Some((mut names, held_for)) = found {
        seen = (named(&names), held_for);
        names.truncate(NAMED);
        if let Some(wait) = waiting.upgrade() {
            let _ = wait.holders_seen.set(names);
        }
    }
    // Only a fair lock has a queue, so the event has no field `place` for other locks.
    let place = match place {
        Some(call) => {
            let found = timeout(limit, place_in_queue(&of, &call)).await.ok().flatten();
            Some(found.unwrap_or_else(|| UNKNOWN.to_owned()))
        }
        None => None,
    };
    let (Some(wait), (holder, held_for)) = (waiting.upgrade(), seen) else { return };
    let LockId { name, key, server } = wait.lock.id();
    tracing::warn!(
        lock = name, key, server, holder, held_for, place, waits_at = %wait.caller, unreported,
        "a call has waited for a lease, and still waits"
    );
}

/// The chain from a lock to something that this client holds, as text.
async fn cycle(engine: &Engine, key: &Arc<str>, own: &[String]) -> Result<Option<String>, Fault> {
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
            Some(snapshot::Wait { lock: next, at, .. }) => {
                let holder = clients.describe(owner);
                format!("`{lock}` is held by {holder}, which waits for `{next}` at {at}")
            }
            None => format!("`{lock}` is held by {}", clients.describe(owner)),
        }
    });
    Ok(Some(links.collect::<Vec<_>>().join("; ")))
}

/// Who holds the lock, and for how long the first of them does. `None`: nobody knows.
async fn holders(engine: &Engine, key: &Arc<str>) -> Option<(Vec<String>, String)> {
    let listing = list_any(engine, key).await.ok()?;
    let clients = Clients::ask(engine, [&listing]).await;
    let alive = listing.holders.iter().filter(|holding| holding.lease != LeaseLeft::Ended);
    let fields: Vec<&str> = alive.map(|holding| &*holding.field).collect();
    let Some(first) = fields.first() else { return Some((Vec::new(), "none".to_owned())) };
    let seconds = |age: Duration| humantime::format_duration(Duration::from_secs(age.as_secs())).to_string();
    let held_for = clients.hold(first).map_or_else(|| UNKNOWN.to_owned(), |hold| seconds(hold.age()));
    Some((fields.into_iter().map(|field| clients.describe(field)).collect(), held_for))
}

fn named(holders: &[String]) -> String {
    match holders {
        [] => "nobody".to_owned(),
        [only] => only.clone(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

async fn place_in_queue(lock: &LockRef, call: &Call) -> Option<String> {
    match lock.run(&lock.connection().await.ok()?, call).await {
        Ok(Reply::Int(place)) => Some(place.to_string()),
        _ => None,
    }
}
