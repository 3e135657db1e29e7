//! All locks of the servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::lock_ref::check_name;
use super::query::{list, run_at};
use super::shared::Engine;
use crate::error::Result;
use crate::fault::Fault;
use crate::protocol::{Arg, Found, Listing, find};
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
    let masters = engine.store.routes_to_all().into_iter().map(|route| find_all(engine, route, pattern));
    let found = try_join_all(masters).await?.into_iter().flatten();
    // A scan can find a key twice.
    let found: BTreeMap<Arc<str>, Found> = found.map(|found| (Arc::clone(&found.key), found)).collect();
    let listings = stream::iter(found.into_values()).map(|found| async {
        let listing = list(engine, &found.key).await?;
        Ok::<_, Fault>((found, listing))
    });
    let all: Vec<(Found, Listing)> = listings.buffered(TOGETHER).try_collect().await?;
    let is_lock = |listing: &Listing| !listing.has_other_data && listing.lease().is_some();
    Ok(all.into_iter().filter(|(_, listing)| is_lock(listing)).collect())
}

/// What each master tells of itself: its address, and the text of `INFO`. Tries once.
pub(crate) async fn info(engine: &Engine) -> Result<Vec<(Arc<str>, String)>> {
    engine.check_runtime()?;
    Ok(engine.store.info().await?)
}

/// Finds the locks of one master.
async fn find_all(engine: &Engine, route: Route, pattern: &Arc<str>) -> Result<Vec<Found>, Fault> {
    let (mut found, mut cursor) = (Vec::new(), Some(Arg::Text("0".into())));
    while let Some(at) = cursor {
        cursor = Found::add(&mut found, &run_at(engine, || route, &find(at, pattern)).await?)?;
    }
    Ok(found)
}
