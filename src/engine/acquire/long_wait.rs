//! Reports calls that have waited for a lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use crate::base::error::LockId;
use crate::engine::grant::{Caller, Grant};
use crate::engine::lock_ref::LockRef;
use crate::engine::query::clients::Clients;
use crate::engine::query::list;
use crate::protocol::{Call, LeaseLeft, Reply};

const UNKNOWN: &str = "unknown";

/// Reports that a call has waited for a lease. Asks who holds the lock, beside the wait.
pub(crate) fn report(waiter: &Grant, caller: Caller) {
    let Some(unreported) = waiter.lock.engine.long_waits.ask() else { return };
    let (lock, place) = (Arc::clone(&waiter.lock), waiter.place());
    let background = &waiter.lock.engine.background;
    let job = async move {
        let limit = lock.engine.config.command_timeout();
        let seen = timeout(limit, holder(&lock)).await.ok().flatten();
        let (holder, held_for) = seen.unwrap_or_else(|| (UNKNOWN.to_owned(), UNKNOWN.to_owned()));
        let place = match place {
            Some(call) => timeout(limit, place_in_queue(&lock, &call)).await.ok().flatten(),
            None => Some("none".to_owned()),
        };
        let place = place.unwrap_or_else(|| UNKNOWN.to_owned());
        let LockId { name, key, server } = lock.id();
        tracing::warn!(
            lock = name, key, server, holder, held_for, place, waits_at = %caller, unreported,
            "a call has waited for a lease, and still waits"
        );
        Ok(())
    };
    background.run(job.boxed());
}

/// Who holds the lock, and for how long. `None`: nobody knows.
async fn holder(lock: &LockRef) -> Option<(String, String)> {
    let listing = list(&lock.engine, &lock.keys.lock).await.ok()?;
    let clients = Clients::ask(&lock.engine, [&listing]).await;
    let alive = || listing.holders.iter().filter(|holding| holding.lease != LeaseLeft::Ended);
    let Some(first) = alive().next() else { return Some(("nobody".to_owned(), "none".to_owned())) };
    let owner = &first.field;
    let holder = match clients.of(owner) {
        Some(Some(identity)) => format!("{identity} ({owner})"),
        Some(None) => format!("not connected ({owner})"),
        None => owner.clone(),
    };
    let others = match alive().count() - 1 {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let seconds = |age: Duration| humantime::format_duration(Duration::from_secs(age.as_secs())).to_string();
    Some((holder + &others, clients.held_for(owner).map_or_else(|| UNKNOWN.to_owned(), seconds)))
}

async fn place_in_queue(lock: &LockRef, call: &Call) -> Option<String> {
    match lock.run(&lock.connection().await.ok()?, call).await {
        Ok(Reply::Int(place)) => Some(place.to_string()),
        _ => None,
    }
}
