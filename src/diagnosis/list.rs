//! All locks of the servers.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::base::error::{Error, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::diagnosis::info::HoldInfo;
use crate::diagnosis::snapshot::{Snapshot, of_all_clients};
use crate::engine::{Engine, check_name, list, permits, run_at};
use crate::protocol::{Arg, Found, FoundKind, Listing, TYPES, find};
use crate::store::Route;

/// How many locks are looked at together.
const TOGETHER: usize = 64;

/// A list of the locks that somebody holds, of which one part after the other is asked for.
///
/// Locks come and go meanwhile.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Which names.
    pattern: String,
    /// The masters when it began. `None`: it has not.
    masters: Option<Vec<Arc<str>>>,
    /// What is left to ask.
    under_way: Vec<MasterScan>,
    /// What was found: a scan can find a key twice.
    seen: HashSet<Arc<str>>,
}

/// Locks, and the keys of those that were skipped.
pub(crate) type Part = (Vec<(Found, Listing)>, Vec<Arc<str>>);

/// The next part of the keys of one type at one master.
#[derive(Clone, Debug)]
struct MasterScan {
    route: Route,
    of_type: &'static str,
    cursor: Arg,
    /// The number of the connection that told the cursor, which means nothing to another server.
    connection: Option<u64>,
}

impl Scan {
    pub(crate) fn new(pattern: &str) -> Self {
        Self { pattern: pattern.to_owned(), masters: None, under_way: Vec::new(), seen: HashSet::new() }
    }

    /// Returns the next locks, and the keys of those that cannot be listed: no server could be asked, because their slots move, or there is
    /// other data among the permits. `None`: there are no more. A future that is dropped loses none.
    pub(crate) async fn next(&mut self, engine: &Engine) -> Result<Option<Part>> {
        check_name(&self.pattern)?;
        engine.check_runtime()?;
        if let Some(refusal) = engine.store.refuses_undeclared() {
            return Err(refused(engine, refusal));
        }
        let pattern = &engine.key_pattern(&self.pattern);
        if self.under_way.is_empty() && !self.begin(engine) {
            return Ok(None);
        }
        let parts = self.under_way.iter().map(|scan| scan.next(engine, pattern));
        let (mut found, mut under_way) = (BTreeMap::new(), Vec::new());
        for (part, next) in try_join_all(parts).await.map_err(|fault| unlisted(engine, fault))? {
            let new = part.into_iter().filter(|found| !self.seen.contains(&found.key));
            found.extend(new.map(|found| (Arc::clone(&found.key), found)));
            under_way.extend(next);
        }
        let keys: Vec<_> = found.keys().map(Arc::clone).collect();
        let listings = stream::iter(found.into_values()).map(|found| look_at(engine, found));
        let all: Vec<_> = listings.buffered(TOGETHER).try_collect().await?;
        self.under_way = under_way;
        self.seen.extend(keys);
        let (mut listed, mut skipped) = (Vec::new(), Vec::new());
        for (found, listing) in all.into_iter().flatten() {
            match listing {
                Some(listing) => listed.push((found, listing)),
                None => skipped.push(found.key),
            }
        }
        Ok(Some((listed, skipped)))
    }

    /// Begins, or begins again if there are other masters than before: then locks were missed. False: they are the same.
    fn begin(&mut self, engine: &Engine) -> bool {
        let routes = engine.store.routes_to_all();
        let masters = routes.iter().map(|route| engine.store.address(*route)).collect();
        if self.masters.as_ref() == Some(&masters) {
            return false;
        }
        let scans = routes.into_iter().flat_map(|route| TYPES.map(|of_type| MasterScan::new(route, of_type)));
        self.under_way = scans.collect();
        self.masters = Some(masters);
        true
    }
}

impl MasterScan {
    fn new(route: Route, of_type: &'static str) -> Self {
        Self { route, of_type, cursor: Arg::Text("0".into()), connection: None }
    }

    /// Returns a part, and what is left then.
    async fn next(&self, engine: &Engine, pattern: &Arc<str>) -> Result<(Vec<Found>, Option<Self>), Fault> {
        let call = find(self.cursor.clone(), pattern, self.of_type);
        let (reply, connection) = run_at(engine, || self.route, &call).await?;
        if self.connection.is_some_and(|before| before != connection) {
            return Ok((Vec::new(), Some(Self::new(self.route, self.of_type))));
        }
        let mut found = Vec::new();
        let cursor = Found::add(&mut found, &reply)?;
        Ok((found, cursor.map(|cursor| Self { cursor, connection: Some(connection), ..self.clone() })))
    }
}

/// The error for a part that a server did not list.
fn unlisted(engine: &Engine, fault: Fault) -> Error {
    match fault.kind {
        FaultKind::Rejected if fault.sent == Sent::Refused => refused(engine, &fault.to_string()),
        _ => fault.into(),
    }
}

fn refused(engine: &Engine, refusal: &str) -> Error {
    let problem = format!(
        "it refuses the script that looks for locks, because only the script finds their keys: {refusal}"
    );
    engine.unsupported("", problem)
}

/// The holds that all clients tell, sorted by name.
pub(crate) async fn holds(engine: &Engine) -> Result<Vec<HoldInfo>> {
    engine.check_runtime()?;
    let name = |key: &str| key.strip_prefix(engine.name_prefix()).unwrap_or(key).to_owned();
    let mut all = Vec::new();
    for (client, Snapshot { identity, holds, .. }) in of_all_clients(engine).await? {
        all.extend(holds.into_iter().map(|hold| HoldInfo {
            lock: name(&hold.lock),
            held_for: hold.age(),
            owner: format!("{client}:{}", hold.owner),
            identity: identity.clone(),
            acquired_at: hold.at.to_string(),
            kind: hold.kind,
        }));
    }
    all.sort_unstable_by(|a, b| (&a.lock, &a.owner).cmp(&(&b.lock, &b.owner)));
    Ok(all)
}

/// What each master tells of itself: its address, and the text of `INFO`. Tries once.
pub(crate) async fn info(engine: &Engine) -> Result<Vec<(Arc<str>, String)>> {
    engine.check_runtime()?;
    Ok(engine.store.info().await?)
}

/// Looks at what a scan found. `None`: it is no lock that somebody holds, or one that this user may not look at. Without a listing, perhaps
/// somebody holds it: its slot moves, and no server has all keys of the lock, or there is other data among the permits.
async fn look_at(engine: &Engine, mut found: Found) -> Result<Option<(Found, Option<Listing>)>, Fault> {
    let is_lock = |listing: &Listing| !listing.has_other_data && listing.lease().is_some();
    let listing = match (found.listing.take(), found.kind) {
        (Some(listing), _) => Ok(Some(listing)),
        (None, FoundKind::Semaphore) => permits::list(engine, &found.key).await,
        (None, FoundKind::Exclusive | FoundKind::ReadWrite) => list(engine, &found.key).await.map(Some),
    };
    match listing {
        Ok(Some(listing)) if is_lock(&listing) => Ok(Some((found, Some(listing)))),
        Ok(Some(listing)) if listing.permits.is_some() && listing.lease().is_some() => {
            Ok(Some((found, None)))
        }
        Ok(_) => Ok(None),
        // The scan could read this key, so the user has a right to it. But a read-write lock and a semaphore have
        // further keys, and the right to those can be missing.
        Err(fault) if fault.kind == FaultKind::Permission && found.kind != FoundKind::Exclusive => Ok(None),
        // Since the scan, another program replaced the lock by other data.
        Err(fault) if fault.kind == FaultKind::WrongType => Ok(None),
        Err(fault) if fault.kind == FaultKind::Split => Ok(Some((found, None))),
        Err(fault) => Err(fault),
    }
}
