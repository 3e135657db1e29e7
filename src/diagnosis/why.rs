//! Who waits for whom, as clients recorded it.
//!
//! A chain goes from a lock to its holder, to the lock for which the same `Owner` waits, to the holder of that, and so on. Nothing is
//! guessed: without an `Owner`, nobody knows that the one who holds is the one who waits, and the chain ends there.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::consume_budget;

use crate::base::error::Result;
use crate::base::fault::{Fault, FaultKind};
use crate::base::timer::sleep;
use crate::diagnosis::clients::Clients;
use crate::diagnosis::inspect::{inspect, list_any};
use crate::diagnosis::list::Scan;
use crate::engine::Engine;
use crate::protocol::{Holding, LeaseLeft, Listing, Reply, record_list, waits_key};

/// The most links of a chain, and the most chains that begin with one lock.
const LONGEST: usize = 32;
const MOST: usize = 100;

/// How many locks are looked at for these chains, each as often as a chain leads to it.
const MOST_STEPS: usize = 200;

/// The most calls of a client that a link names because one of them is perhaps the holder's.
const MOST_OF_CLIENT: usize = 8;

/// Stands in the record of a wait for the owners of an `Owner` that holds something.
pub(crate) const HOLDS_NOTHING: &str = "-";

/// The time between two looks at a cycle. A record is removed sooner than that after its wait.
pub(crate) const LATER: Duration = Duration::from_secs(1);

/// A lock, one of its holders, and so on.
#[derive(Clone, Default)]
pub(crate) struct Chain {
    pub(crate) links: Vec<Link>,
    /// The last holder waits for a lock of this chain.
    pub(crate) is_cycle: bool,
}

#[derive(Clone)]
pub(crate) struct Link {
    /// The key of the lock.
    pub(crate) lock: Arc<str>,
    pub(crate) holding: Holding,
    /// The wait of this holder for the lock of the next link; after the last link of a cycle, for one of the others.
    pub(crate) waits_for: Option<Awaited>,
    /// If it is not known that the holder waits: what the same client waits for with handles that are of no `Owner`. One of these
    /// calls is perhaps the holder's.
    pub(crate) client_waits: Vec<Awaited>,
}

/// For what an owner waits.
#[derive(Clone)]
pub(crate) struct Awaited {
    pub(crate) lock: Arc<str>,
    /// For how long it has waited.
    pub(crate) age: Duration,
    /// Where in its program: file and line.
    pub(crate) at: Arc<str>,
}

/// A call that waits.
#[derive(Clone)]
struct Wait {
    /// The owners of what the same `Owner` holds. Empty: the handle is of no `Owner`, or that one holds nothing.
    held: Vec<String>,
    is_writer: bool,
    awaited: Awaited,
}

/// The chains that begin with the lock that has this name.
pub(crate) async fn chains(engine: &Engine, name: &str) -> Result<Vec<Chain>> {
    let Some(listing) = inspect(engine, name).await? else { return Ok(Vec::new()) };
    let (mut explorer, key) = (Explorer::new(engine), engine.key(name));
    explorer.locks.insert(Arc::clone(&key), Arc::new(listing));
    let mut found = explorer.chains(&key).await?;
    confirm(engine, &mut found).await?;
    Ok(found)
}

/// Looks once more at the cycles, and takes those back that are not there any more.
///
/// The links are asked for one after the other, and a record can outlive its wait by a moment. So one look can see a cycle that never was.
/// What two looks see was there from the first to shortly before the second: no owner is used again, and a wait that began anew is younger.
pub(crate) async fn confirm(engine: &Engine, found: &mut [Chain]) -> Result<(), Fault> {
    if !found.iter().any(|chain| chain.is_cycle) {
        return Ok(());
    }
    sleep(LATER).await;
    let mut explorer = Explorer::new(engine);
    for chain in found.iter_mut().filter(|chain| chain.is_cycle) {
        let ring = chain.ring();
        let again = explorer.chains(&ring.links[0].lock).await?;
        chain.is_cycle = again.iter().any(|later| later.confirms(&ring));
    }
    Ok(())
}

/// The chains that begin with the lock that has this key.
pub(crate) async fn chains_from(engine: &Engine, key: &Arc<str>) -> Result<Vec<Chain>, Fault> {
    Explorer::new(engine).chains(key).await
}

/// All chains of more than one link. One that is a part of another is left out.
pub(crate) async fn all_chains(engine: &Engine) -> Result<Vec<Chain>> {
    let mut explorer = Explorer::new(engine);
    let (mut scan, mut keys) = (Scan::new("*"), Vec::new());
    while let Some((listed, _)) = scan.next(engine).await? {
        keys.extend(listed.iter().map(|(found, _)| Arc::clone(&found.key)));
        explorer.locks.extend(listed.into_iter().map(|(found, listing)| (found.key, Arc::new(listing))));
    }
    let mut all = Vec::new();
    for key in &keys {
        all.extend(explorer.chains(key).await?.into_iter().filter(|chain| chain.links.len() > 1));
    }
    all.sort_by_key(|chain: &Chain| Reverse(chain.links.len()));
    let mut whole: Vec<Chain> = Vec::new();
    for chain in all {
        let is_part =
            |other: &Chain| chain.links.iter().all(|link| other.links.iter().any(|same| same.is(link)));
        if !whole.iter().any(is_part) {
            whole.push(chain);
        }
    }
    confirm(engine, &mut whole).await?;
    Ok(whole)
}

impl Chain {
    /// The holders of all its locks.
    pub(crate) fn holders(&self) -> Listing {
        let holders = self.links.iter().map(|link| link.holding.clone()).collect();
        Listing { holders, ..Listing::default() }
    }

    /// Whether the process of a holder has perhaps ended: then its lease ends soon, and with it the chain.
    pub(crate) fn has_ended(&self, clients: &Clients) -> bool {
        self.links.iter().any(|link| clients.is_gone(&link.holding.field))
    }

    /// The links of a cycle, without those that only lead to it.
    fn ring(&self) -> Self {
        let next = self.links.last().and_then(|link| link.waits_for.as_ref()).map(|awaited| &awaited.lock);
        let start = self.links.iter().position(|link| Some(&link.lock) == next).unwrap_or(0);
        Self { links: self.links[start..].to_vec(), is_cycle: self.is_cycle }
    }

    /// Whether this chain, which was seen later, shows that all links of the other one were there together.
    fn confirms(&self, before: &Self) -> bool {
        self.links.len() == before.links.len()
            && self.links.iter().zip(&before.links).all(|(link, before)| link.goes_on_from(before))
    }
}

impl Link {
    fn is(&self, other: &Self) -> bool {
        self.lock == other.lock && self.holding.field == other.holding.field
    }

    fn goes_on_from(&self, before: &Self) -> bool {
        let wait_goes_on = match (&self.waits_for, &before.waits_for) {
            (Some(now), Some(before)) => now.lock == before.lock && now.age > before.age,
            (now, before) => now.is_none() && before.is_none(),
        };
        self.is(before) && wait_goes_on
    }
}

/// Asks about each lock and each client once.
struct Explorer<'a> {
    engine: &'a Engine,
    locks: HashMap<Arc<str>, Arc<Listing>>,
    waits: HashMap<String, Vec<Wait>>,
}

impl<'a> Explorer<'a> {
    fn new(engine: &'a Engine) -> Self {
        Self { engine, locks: HashMap::new(), waits: HashMap::new() }
    }

    /// Deadlocks first, then the longest chains.
    async fn chains(&mut self, key: &Arc<str>) -> Result<Vec<Chain>, Fault> {
        let (mut found, mut open) = (Vec::new(), vec![(Vec::<Link>::new(), Arc::clone(key))]);
        for _ in 0..MOST_STEPS {
            let Some((path, lock)) = open.pop() else { break };
            // a lock that is known is not asked for, so nothing else here suspends
            consume_budget().await;
            let listing = self.listing(&lock).await?;
            let alive = listing.holders.iter().filter(|holding| holding.lease != LeaseLeft::Ended);
            for holding in alive {
                let mut is_end = true;
                for wait in self.waits_of(&holding.field).await? {
                    let mut links = path.clone();
                    let next = Arc::clone(&wait.awaited.lock);
                    let waits_for = Some(wait.awaited.clone());
                    let (lock, holding) = (Arc::clone(&lock), holding.clone());
                    links.push(Link { lock, holding, waits_for, client_waits: Vec::new() });
                    let is_cycle = links.iter().any(|link| link.lock == next);
                    if !self.blocks(&wait).await? {
                        continue;
                    }
                    is_end = false;
                    if is_cycle || links.len() == LONGEST {
                        found.push(Chain { links, is_cycle });
                    } else {
                        open.push((links, next));
                    }
                }
                if is_end {
                    let mut links = path.clone();
                    let client_waits = self.client_waits(&holding.field).await?;
                    let (lock, holding) = (Arc::clone(&lock), holding.clone());
                    links.push(Link { lock, holding, waits_for: None, client_waits });
                    found.push(Chain { links, is_cycle: false });
                }
            }
            keep_most(&mut found);
            if open.len() > MOST_STEPS {
                break;
            }
        }
        // The search stopped before it followed these paths. They are returned as far as they are known.
        found.extend(open.into_iter().map(|(links, _)| Chain { links, is_cycle: false }));
        keep_most(&mut found);
        Ok(found)
    }

    /// Whether somebody holds the lock in a way that excludes the waiter.
    async fn blocks(&mut self, wait: &Wait) -> Result<bool, Fault> {
        let listing = self.listing(&wait.awaited.lock).await?;
        let excludes =
            |holding: &Holding| wait.is_writer || !listing.is_read_write || holding.field.ends_with(":write");
        Ok(listing.holders.iter().any(|holding| holding.lease != LeaseLeft::Ended && excludes(holding)))
    }

    /// The holders of a lock. None: it is free, or the key has other data.
    async fn listing(&mut self, key: &Arc<str>) -> Result<Arc<Listing>, Fault> {
        if let Some(known) = self.locks.get(key) {
            return Ok(Arc::clone(known));
        }
        let listing = Arc::new(match list_any(self.engine, key).await {
            Ok(listing) if listing.has_other_data => Listing::default(),
            Err(fault) if fault.kind == FaultKind::WrongType => Listing::default(),
            listing => listing?,
        });
        self.locks.insert(Arc::clone(key), Arc::clone(&listing));
        Ok(listing)
    }

    /// The waits of the `Owner` that holds something as this owner.
    async fn waits_of(&mut self, owner: &str) -> Result<Vec<Wait>, Fault> {
        let waits = self.waits_of_client(owner).await?.iter();
        Ok(waits.filter(|wait| wait.held.iter().any(|held| held == owner)).cloned().collect())
    }

    /// The waits of handles that are of no `Owner`, of the client that has this owner. The oldest for each lock, and these first.
    async fn client_waits(&mut self, owner: &str) -> Result<Vec<Awaited>, Fault> {
        let waits = self.waits_of_client(owner).await?.iter();
        let mut waits: Vec<_> =
            waits.filter(|wait| wait.held.is_empty()).map(|wait| wait.awaited.clone()).collect();
        waits.sort_by_key(|awaited| Reverse(awaited.age));
        let mut locks = HashSet::new();
        waits.retain(|awaited| locks.insert(Arc::clone(&awaited.lock)));
        waits.truncate(MOST_OF_CLIENT);
        Ok(waits)
    }

    async fn waits_of_client(&mut self, owner: &str) -> Result<&[Wait], Fault> {
        let Some((client, _)) = owner.split_once(':') else { return Ok(&[]) };
        if !self.waits.contains_key(client) {
            let waits = waits(self.engine, client).await?;
            self.waits.insert(client.to_owned(), waits);
        }
        Ok(&self.waits[client])
    }
}

/// Of too many chains, leaves out the shortest. A lock can have very many readers that wait for nothing.
fn keep_most(found: &mut Vec<Chain>) {
    found.sort_by_key(|chain| Reverse((chain.is_cycle, chain.links.len())));
    found.truncate(MOST);
}

/// What a client waits for, as it recorded. Without the right to look, nothing is known.
async fn waits(engine: &Engine, client: &str) -> Result<Vec<Wait>, Fault> {
    let (store, key) = (&engine.store, waits_key(engine.name_prefix(), client));
    let connection = store.connection(store.route(&key)).await?;
    let reply = match store.run(&connection, &record_list(&key)).await {
        Err(fault) if fault.kind == FaultKind::Permission => return Ok(Vec::new()),
        reply => reply?,
    };
    let Reply::List(rows) = &reply else { return Err(Fault::unexpected(&reply)) };
    let wait = |row: &[Reply]| {
        let [Reply::Text(owner), Reply::Text(age), Reply::Text(what)] = row else { return None };
        let (held, rest) = what.split_once(' ')?;
        let (at, lock) = rest.split_once(' ')?;
        let held = held.split(',').filter(|owner| *owner != HOLDS_NOTHING);
        let held = held.map(|owner| format!("{client}:{owner}")).collect();
        let age = Duration::from_millis(age.parse().ok()?);
        let awaited = Awaited { lock: lock.into(), age, at: at.into() };
        Some(Wait { held, is_writer: owner.ends_with(":write"), awaited })
    };
    Ok(rows.chunks(3).filter_map(wait).collect())
}
