//! All locks of the servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::base::error::Result;
use crate::base::fault::{Fault, FaultKind};
use crate::engine::lock_ref::check_name;
use crate::engine::query::{in_parts, list};
use crate::engine::shared::Engine;
use crate::protocol::{Found, Listing, find};
use crate::store::Route;

/// How many locks are looked at together.
const TOGETHER: usize = 64;

/// Lists the locks that somebody holds, sorted by their keys. `pattern`: which names.
///
/// Locks come and go meanwhile. While a slot of a cluster moves, a lock of it can be missed.
pub(crate) async fn list_all(engine: &Engine, pattern: &str) -> Result<Vec<(Found, Listing)>> {
    check_name(pattern)?;
    engine.check_runtime()?;
    let pattern = &engine.key_pattern(pattern);
    let found = find_on_all(engine, pattern).await?;
    let listings = stream::iter(found.into_values()).map(|found| look_at(engine, found));
    let all: Vec<Option<(Found, Listing)>> = listings.buffered(TOGETHER).try_collect().await?;
    Ok(all.into_iter().flatten().collect())
}

/// What each master tells of itself: its address, and the text of `INFO`. Tries once.
pub(crate) async fn info(engine: &Engine) -> Result<Vec<(Arc<str>, String)>> {
    engine.check_runtime()?;
    Ok(engine.store.info().await?)
}

/// Finds the locks of all masters, by their keys: a scan can find a key twice.
async fn find_on_all(engine: &Engine, pattern: &Arc<str>) -> Result<BTreeMap<Arc<str>, Found>, Fault> {
    loop {
        let routes = engine.store.routes_to_all();
        let masters =
            || -> Vec<Arc<str>> { routes.iter().map(|route| engine.store.address(*route)).collect() };
        let before = masters();
        let found = try_join_all(routes.iter().map(|route| find_all(engine, *route, pattern))).await?;
        // The cursor of one server means nothing to another: after a switch, the scan has missed locks.
        if masters() == before {
            let found = found.into_iter().flatten();
            return Ok(found.map(|found| (Arc::clone(&found.key), found)).collect());
        }
    }
}

/// Looks at what a scan found. `None`: it is no lock that somebody holds, or this lock alone cannot be looked at.
async fn look_at(engine: &Engine, found: Found) -> Result<Option<(Found, Listing)>, Fault> {
    let is_lock = |listing: &Listing| !listing.has_other_data && listing.lease().is_some();
    match list(engine, &found.key).await {
        Ok(listing) => Ok(is_lock(&listing).then_some((found, listing))),
        // The user has a right to the key, or the scan had not found it. A read-write lock has more keys.
        Err(fault) if fault.kind == FaultKind::Permission && found.is_read_write => Ok(None),
        // It is other data by now, or the slot of its keys moves.
        Err(fault) if matches!(fault.kind, FaultKind::WrongType | FaultKind::Split) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Finds the locks of one master.
async fn find_all(engine: &Engine, route: Route, pattern: &Arc<str>) -> Result<Vec<Found>, Fault> {
    in_parts(engine, || route, |at| find(at, pattern), Found::add).await
}
