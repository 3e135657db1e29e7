//! All locks of the servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::base::error::Result;
use crate::base::fault::{Fault, FaultKind};
use crate::engine::lock_ref::check_name;
use crate::engine::query::{in_parts, list, permits};
use crate::engine::shared::Engine;
use crate::protocol::{Found, FoundKind, Listing, TYPES, find};
use crate::store::Route;

/// How many locks are looked at together.
const TOGETHER: usize = 64;

/// Lists the locks that somebody holds, sorted by their keys. `pattern`: which names.
///
/// Locks come and go meanwhile. Also returns the keys of those that no server could be asked about, because their slots move.
pub(crate) async fn list_all(
    engine: &Engine,
    pattern: &str,
) -> Result<(Vec<(Found, Listing)>, Vec<Arc<str>>)> {
    check_name(pattern)?;
    engine.check_runtime()?;
    let pattern = &engine.key_pattern(pattern);
    let found = find_on_all(engine, pattern).await?;
    let listings = stream::iter(found.into_values()).map(|found| look_at(engine, found));
    let all: Vec<Looked> = listings.buffered(TOGETHER).try_collect().await?;
    let (mut listed, mut skipped) = (Vec::new(), Vec::new());
    for looked in all {
        match looked {
            Looked::Held(found, listing) => listed.push((found, listing)),
            Looked::NoLock => {}
            Looked::Moves(key) => skipped.push(key),
        }
    }
    Ok((listed, skipped))
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
        let scans =
            routes.iter().flat_map(|route| TYPES.map(|of_type| find_all(engine, *route, pattern, of_type)));
        let found = try_join_all(scans).await?;
        // The cursor of one server means nothing to another: after a switch, the scan has missed locks.
        if masters() == before {
            let found = found.into_iter().flatten();
            return Ok(found.map(|found| (Arc::clone(&found.key), found)).collect());
        }
    }
}

/// What a look at a key told.
enum Looked {
    Held(Found, Listing),
    /// It is no lock that somebody holds, or one that this user may not look at.
    NoLock,
    /// Its slot moves, and no server has all keys of the lock.
    Moves(Arc<str>),
}

/// Looks at what a scan found.
async fn look_at(engine: &Engine, found: Found) -> Result<Looked, Fault> {
    let is_lock = |listing: &Listing| !listing.has_other_data && listing.lease().is_some();
    let listing = match found.kind {
        FoundKind::Semaphore => permits::list(engine, &found.key).await,
        FoundKind::Exclusive | FoundKind::ReadWrite => list(engine, &found.key).await.map(Some),
    };
    match listing {
        Ok(Some(listing)) if is_lock(&listing) => Ok(Looked::Held(found, listing)),
        Ok(_) => Ok(Looked::NoLock),
        // The user has a right to the key, or the scan had not found it. These have more keys.
        Err(fault) if fault.kind == FaultKind::Permission && found.kind != FoundKind::Exclusive => {
            Ok(Looked::NoLock)
        }
        // It is other data by now.
        Err(fault) if fault.kind == FaultKind::WrongType => Ok(Looked::NoLock),
        Err(fault) if fault.kind == FaultKind::Split => Ok(Looked::Moves(found.key)),
        Err(fault) => Err(fault),
    }
}

/// Finds the locks of one master among its keys of this type.
async fn find_all(
    engine: &Engine,
    route: Route,
    pattern: &Arc<str>,
    of_type: &'static str,
) -> Result<Vec<Found>, Fault> {
    in_parts(engine, || route, |at| find(at, pattern, of_type), Found::add).await
}
