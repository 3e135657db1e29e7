//! What is done for a call that waits for long: after a second, the wait is recorded on the server. After a lease, it is reported, except
//! that of a candidate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;

use crate::base::Caller;
use crate::base::clock;
use crate::base::error::LockId;
use crate::base::fault::Fault;
use crate::base::timer::{Instant, timeout};
use crate::diagnosis::clients::Clients;
use crate::diagnosis::inspect::list_any;
use crate::diagnosis::recent_waits::HoldersSeen;
use crate::diagnosis::records::About;
use crate::diagnosis::why::{Awaited, Chain, HOLDS_NOTHING, LATER, chains_from, confirm};
use crate::engine::{Engine, Grant, Handle, LockRef};
use crate::protocol::{Call, LeaseLeft, Reply};

/// A wait is recorded after this time.
const LONG: Duration = Duration::from_secs(1);

const UNKNOWN: &str = "unknown";

/// The most holders that are kept of one wait.
const NAMED: usize = 8;

/// What is still to be done for a call, if it waits for long.
pub(crate) struct LongWait {
    record_at: Option<Instant>,
    report_at: Option<Instant>,
    is_reported: bool,
    /// Once that was looked for.
    is_deadlock_reported: Option<Arc<AtomicBool>>,
    recorded: Option<RecordedWait>,
}

/// The record of a wait. It is removed when this is dropped.
struct RecordedWait {
    engine: Arc<Engine>,
    owner: Arc<str>,
}

impl LongWait {
    /// `report_after`: when the wait is reported. `None`: never.
    pub(crate) fn new(report_after: Option<Duration>) -> Self {
        let now = Instant::now();
        Self {
            record_at: Some(now + LONG),
            report_at: report_after.map(|time| now + time),
            is_reported: false,
            is_deadlock_reported: None,
            recorded: None,
        }
    }

    /// When something is to be done.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.record_at.into_iter().chain(self.report_at).min()
    }

    /// Does what is due. The call waits for this member, as `waiter`.
    pub(crate) fn act(
        &mut self,
        handle: &Handle,
        member: usize,
        waiter: &Grant,
        caller: Caller,
        seen: Option<HoldersSeen>,
    ) {
        let now = Instant::now();
        // Of several members, nobody knows whether the call needs this one.
        let owner = (handle.members.len() == 1).then(|| &handle.members[member].owner);
        let held = owner.and_then(|owner| owner.held_by_owner(clock::now())).unwrap_or_default();
        if self.record_at.take_if(|at| *at <= now).is_some() {
            self.recorded = RecordedWait::begin(waiter, &held, caller);
        }
        if self.report_at.is_none_or(|at| at > now) {
            return;
        }
        let lease = handle.config().watchdog_lease();
        self.report_at = (!held.is_empty()).then(|| now + lease);
        let is_reported = std::mem::replace(&mut self.is_reported, true);
        let unreported = if is_reported { None } else { waiter.lock.engine.long_waits.ask() };
        if unreported.is_none() && held.is_empty() {
            return;
        }
        let (lock, place) = (Arc::clone(&waiter.lock), waiter.place());
        let is_deadlock_reported = Arc::clone(self.is_deadlock_reported.get_or_insert_default());
        let background = &waiter.lock.engine.background;
        let job = async move {
            if let Some(unreported) = unreported {
                report(&lock, place, caller, unreported, seen).await;
            }
            if !held.is_empty() && !is_deadlock_reported.load(Ordering::Relaxed) {
                let is_found = report_deadlock(&lock, &held, caller).await;
                is_deadlock_reported.fetch_or(is_found, Ordering::Relaxed);
            }
            Ok(())
        };
        background.run(job.boxed());
    }
}

impl RecordedWait {
    fn begin(waiter: &Grant, held: &[Arc<str>], caller: Caller) -> Option<Self> {
        let (lock, owner) = (&waiter.lock, waiter.short_owner()?);
        let engine = Arc::clone(&lock.engine);
        let held = if held.is_empty() { HOLDS_NOTHING.to_owned() } else { held.join(",") };
        let place = format!("{}:{}", caller.file().replace(' ', "_"), caller.line());
        let what = format!("{held} {place} {}", lock.keys.lock).into();
        engine.records.write(About::Wait, Arc::clone(&owner), clock::now().minus(LONG), what);
        Some(Self { engine, owner })
    }
}

impl Drop for RecordedWait {
    fn drop(&mut self) {
        self.engine.records.remove(About::Wait, Arc::clone(&self.owner));
    }
}

/// Reports who holds the lock.
async fn report(
    lock: &LockRef,
    place: Option<Call>,
    caller: Caller,
    unreported: u64,
    seen: Option<HoldersSeen>,
) {
    let limit = lock.engine.config.command_timeout();
    let found = timeout(limit, holders(lock)).await.ok().flatten();
    let (holder, held_for) = match &found {
        Some((names, held_for)) => (named(names), held_for.clone()),
        None => (UNKNOWN.to_owned(), UNKNOWN.to_owned()),
    };
    if let Some((seen, (mut names, _))) = seen.zip(found) {
        names.truncate(NAMED);
        let _ = seen.set(names);
    }
    // Only a fair lock has a queue. Other locks have no such field.
    let place = match place {
        Some(call) => {
            let found = timeout(limit, place_in_queue(lock, &call)).await.ok().flatten();
            Some(found.unwrap_or_else(|| UNKNOWN.to_owned()))
        }
        None => None,
    };
    let LockId { name, key, server } = lock.id();
    tracing::warn!(
        lock = name, key, server, holder, held_for, place, waits_at = %caller, unreported,
        "a call has waited for a lease, and still waits"
    );
}

/// Reports a deadlock of which the waiter is a part, if there is one. `held`: what the same `Owner` holds.
async fn report_deadlock(lock: &LockRef, held: &[Arc<str>], caller: Caller) -> bool {
    let engine = &lock.engine;
    let limit = engine.config.command_timeout() * 2 + LATER;
    let Ok(Ok(found)) = timeout(limit, cycle(engine, &lock.keys.lock, held)).await else { return false };
    let Some(chain) = found else { return false };
    let LockId { name, key, server } = lock.id();
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
async fn holders(lock: &LockRef) -> Option<(Vec<String>, String)> {
    let listing = list_any(&lock.engine, &lock.keys.lock).await.ok()?;
    let clients = Clients::ask(&lock.engine, [&listing]).await;
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

async fn place_in_queue(lock: &LockRef, call: &Call) -> Option<String> {
    match lock.run(&lock.connection().await.ok()?, call).await {
        Ok(Reply::Int(place)) => Some(place.to_string()),
        _ => None,
    }
}
