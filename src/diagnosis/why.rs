//! Who waits for whom, as clients tell in their snapshots.
//!
//! A chain goes from a lock to its holder, to the lock for which the same `Owner` waits, to the holder of that, and so on. Nothing is
//! guessed: without an `Owner`, nobody knows that the one who holds is the one who waits, and the chain ends there.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::base::error::Result;
use crate::base::fault::{Fault, FaultKind};
use crate::base::timer::sleep;
use crate::diagnosis::clients::Clients;
use crate::diagnosis::inspect::{inspect, list_any};
use crate::diagnosis::snapshot::{Snapshot, Wait, of_all_clients, read_all};
use crate::engine::Engine;
use crate::protocol::{Holding, LeaseLeft, Listing};

/// The most links of a chain, and the most chains that begin with one lock.
const LONGEST: usize = 32;
const MOST: usize = 100;

/// How many locks are looked at for these chains, each as often as a chain leads to it.
const MOST_STEPS: usize = 200;

/// The most calls of a client that a link names because one of them is perhaps the holder's.
const MOST_OF_CLIENT: usize = 8;

/// How many locks are looked at together.
const AT_ONCE: usize = 64;

/// The time between two looks at a cycle. A snapshot is written sooner than that after a wait has ended.
pub(crate) const LATER: Duration = Duration::from_millis(500);

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
    pub(crate) waits_for: Option<Wait>,
    /// If it is not known that the holder waits: what the same client waits for with handles that are of no `Owner`. One of these
    /// calls is perhaps the holder's.
    pub(crate) client_waits: Vec<Wait>,
}

/// The chains that begin with the lock that has this name.
pub(crate) async fn chains(engine: &Engine, name: &str) -> Result<Vec<Chain>> {
    let Some(listing) = inspect(engine, name).await? else { return Ok(Vec::new()) };
    let key = engine.key(name);
    let mut known = Known::default();
    known.locks.insert(Arc::clone(&key), listing);
    known.ask(engine, [Arc::clone(&key)]).await?;
    let mut found = known.chains(&key);
    confirm(engine, &mut found).await?;
    Ok(found)
}

/// Looks once more at the cycles, and takes those back that are not there any more.
///
/// The links are asked for one after the other, and a snapshot can show a wait that has just ended. So one look can see a cycle that never was.
/// What two looks see was there from the first to shortly before the second: no owner is used again, and a wait that began anew is younger.
pub(crate) async fn confirm(engine: &Engine, found: &mut [Chain]) -> Result<(), Fault> {
    if !found.iter().any(|chain| chain.is_cycle) {
        return Ok(());
    }
    sleep(LATER).await;
    let rings = found.iter().filter(|chain| chain.is_cycle).map(Chain::ring);
    let mut known = Known::default();
    known.ask(engine, rings.map(|ring| Arc::clone(&ring.links[0].lock))).await?;
    for chain in found.iter_mut().filter(|chain| chain.is_cycle) {
        let ring = chain.ring();
        chain.is_cycle = known.chains(&ring.links[0].lock).iter().any(|later| later.confirms(&ring));
    }
    Ok(())
}

/// The chains that begin with the lock that has this key.
pub(crate) async fn chains_from(engine: &Engine, key: &Arc<str>) -> Result<Vec<Chain>, Fault> {
    let mut known = Known::default();
    known.ask(engine, [Arc::clone(key)]).await?;
    Ok(known.chains(key))
}

/// All chains of more than one link. One that is a part of another is left out.
pub(crate) async fn all_chains(engine: &Engine) -> Result<Vec<Chain>> {
    engine.check_runtime()?;
    let mut known =
        Known { locks: HashMap::new(), clients: of_all_clients(engine).await?.into_iter().collect() };
    let starts = known.of_waiters();
    known.ask(engine, starts.clone()).await?;
    let mut found = known.all_chains(&starts);
    confirm(engine, &mut found).await?;
    Ok(found)
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
        let next = self.links.last().and_then(|link| link.waits_for.as_ref()).map(|wait| &wait.lock);
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
            (Some(now), Some(before)) => now.lock == before.lock && now.age() > before.age(),
            (now, before) => now.is_none() && before.is_none(),
        };
        self.is(before) && wait_goes_on
    }
}

/// Who holds the locks, and what the holders' clients tell. What follows from that is computed here, without a server.
#[derive(Default)]
struct Known {
    locks: HashMap<Arc<str>, Listing>,
    clients: HashMap<String, Snapshot>,
}

impl Known {
    /// Asks about these locks, about those for which their holders wait, and so on: about all that is as far away at the same time.
    async fn ask(&mut self, engine: &Engine, from: impl IntoIterator<Item = Arc<str>>) -> Result<(), Fault> {
        let mut next: BTreeSet<_> = from.into_iter().collect();
        let mut seen = BTreeSet::new();
        while !next.is_empty() && seen.len() < MOST_STEPS {
            let unknown =
                next.iter().filter(|key| !self.locks.contains_key(*key)).map(|key| listing(engine, key));
            self.locks.extend(
                stream::iter(unknown.collect::<Vec<_>>()).buffered(AT_ONCE).try_collect::<Vec<_>>().await?,
            );
            let holders = next.iter().filter_map(|key| self.locks.get(key)).flat_map(alive);
            let clients: BTreeSet<_> = holders.filter_map(|holding| client_of(&holding.field)).collect();
            let unread =
                clients.into_iter().filter(|client| !self.clients.contains_key(*client)).map(str::to_owned);
            for told in read_all(engine, unread.collect::<Vec<_>>()).await {
                self.clients.extend([told?]);
            }
            let awaited = next.iter().filter_map(|key| self.locks.get(key)).flat_map(alive);
            let awaited =
                awaited.flat_map(|holding| self.waits_of(&holding.field)).map(|wait| Arc::clone(&wait.lock));
            let awaited: BTreeSet<_> = awaited.collect();
            seen.append(&mut next);
            next = awaited.difference(&seen).cloned().collect();
        }
        Ok(())
    }

    /// The locks of owners that wait.
    fn of_waiters(&self) -> BTreeSet<Arc<str>> {
        let locks = |told: &Snapshot| {
            let waits = |owner: &String| told.waits.iter().any(|wait| wait.held.contains(owner));
            told.holds
                .iter()
                .filter(|hold| waits(&hold.owner))
                .map(|hold| Arc::clone(&hold.lock))
                .collect::<Vec<_>>()
        };
        self.clients.values().flat_map(locks).collect()
    }

    /// The chains of more than one link that begin with these locks, without those that are a part of another.
    fn all_chains(&self, starts: &BTreeSet<Arc<str>>) -> Vec<Chain> {
        let mut all: Vec<_> =
            starts.iter().flat_map(|key| self.chains(key)).filter(|chain| chain.links.len() > 1).collect();
        all.sort_by_key(|chain: &Chain| Reverse(chain.links.len()));
        let mut whole: Vec<Chain> = Vec::new();
        for chain in all {
            let is_part =
                |other: &Chain| chain.links.iter().all(|link| other.links.iter().any(|same| same.is(link)));
            if !whole.iter().any(is_part) {
                whole.push(chain);
            }
        }
        whole
    }

    /// The chains that begin with this lock. Deadlocks first, then the longest chains.
    fn chains(&self, key: &Arc<str>) -> Vec<Chain> {
        let (mut found, mut open) = (Vec::new(), vec![(Vec::<Link>::new(), Arc::clone(key))]);
        for _ in 0..MOST_STEPS {
            let Some((path, lock)) = open.pop() else { break };
            for holding in self.locks.get(&lock).into_iter().flat_map(alive) {
                let with = |waits_for, client_waits| {
                    let (lock, holding) = (Arc::clone(&lock), holding.clone());
                    [&path[..], &[Link { lock, holding, waits_for, client_waits }]].concat()
                };
                let mut is_end = true;
                for wait in self.waits_of(&holding.field).filter(|wait| self.blocks(wait)) {
                    let links = with(Some(wait.clone()), Vec::new());
                    let is_cycle = links.iter().any(|link| link.lock == wait.lock);
                    is_end = false;
                    if is_cycle || links.len() == LONGEST {
                        found.push(Chain { links, is_cycle });
                    } else {
                        open.push((links, Arc::clone(&wait.lock)));
                    }
                }
                if is_end {
                    found.push(Chain {
                        links: with(None, self.client_waits(&holding.field)),
                        is_cycle: false,
                    });
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
        found
    }

    /// Whether somebody holds the lock in a way that excludes the waiter.
    fn blocks(&self, wait: &Wait) -> bool {
        self.locks.get(&wait.lock).is_some_and(|listing| {
            let excludes = |holding: &Holding| {
                wait.is_exclusive || !listing.is_read_write || holding.field.ends_with(":write")
            };
            alive(listing).any(excludes)
        })
    }

    /// The waits of the `Owner` that holds something as this owner.
    fn waits_of<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = &'a Wait> {
        let known =
            owner.split_once(':').and_then(|(client, owner)| Some((self.clients.get(client)?, owner)));
        known.into_iter().flat_map(|(told, owner)| {
            told.waits.iter().filter(move |wait| wait.held.iter().any(|held| held == owner))
        })
    }

    /// The waits of handles that are of no `Owner`, of the client that has this owner. The oldest for each lock, and these first.
    fn client_waits(&self, owner: &str) -> Vec<Wait> {
        let told = client_of(owner).and_then(|client| self.clients.get(client));
        let waits = told.into_iter().flat_map(|told| &told.waits).filter(|wait| wait.held.is_empty());
        let mut waits: Vec<_> = waits.cloned().collect();
        waits.sort_by_key(|wait| Reverse(wait.age()));
        let mut locks = HashSet::new();
        waits.retain(|wait| locks.insert(Arc::clone(&wait.lock)));
        waits.truncate(MOST_OF_CLIENT);
        waits
    }
}

fn alive(listing: &Listing) -> impl Iterator<Item = &Holding> {
    listing.holders.iter().filter(|holding| holding.lease != LeaseLeft::Ended)
}

fn client_of(owner: &str) -> Option<&str> {
    owner.split_once(':').map(|(client, _)| client)
}

/// The holders of a lock. None: it is free, or the key has other data.
async fn listing(engine: &Engine, key: &Arc<str>) -> Result<(Arc<str>, Listing), Fault> {
    let listing = match list_any(engine, key).await {
        Ok(listing) if listing.has_other_data => Listing::default(),
        Err(fault) if fault.kind == FaultKind::WrongType => Listing::default(),
        listing => listing?,
    };
    Ok((Arc::clone(key), listing))
}

/// Of too many chains, leaves out the shortest. A lock can have very many readers that wait for nothing.
fn keep_most(found: &mut Vec<Chain>) {
    found.sort_by_key(|chain| Reverse((chain.is_cycle, chain.links.len())));
    found.truncate(MOST);
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// What owners hold, and for what they wait.
    #[derive(Default)]
    struct World {
        known: Known,
        owners: u64,
    }

    impl World {
        /// An owner of one of four clients, without the id of the client.
        fn owner(&mut self) -> (String, String) {
            self.owners += 1;
            (format!("{}-0-0-0-0", self.owners % 4), self.owners.to_string())
        }

        fn holds(&mut self, (client, owner): &(String, String), lock: &str, lease: LeaseLeft) {
            let field = format!("{client}:{owner}");
            let listing = self.known.locks.entry(lock.into()).or_default();
            listing.is_read_write = lock.starts_with("rw");
            listing.holders.push(Holding { field, holds: 1, lease, grant: 0 });
        }

        fn waits(&mut self, (client, is_exclusive): (&str, bool), held: &[&str], lock: &str) {
            let held = held.iter().map(|owner| (*owner).to_owned()).collect();
            let wait = Wait::new(is_exclusive, held, lock.into());
            self.known.clients.entry(client.to_owned()).or_default().waits.push(wait);
        }

        /// Adds what cannot close a circle: owners that hold a lock and wait for an earlier one, waits for what nobody holds, holds whose
        /// lease has ended, and readers beside each other.
        fn add_harmless(&mut self, rng: &mut Rng, locks: &[String]) {
            for number in 0..rng.usize(..12) {
                let owner = self.owner();
                let own = format!("own:{number}");
                match rng.usize(..5) {
                    0 => self.holds(&owner, &own, LeaseLeft::Endless),
                    1 => self.holds(&owner, rng.choice(locks).unwrap(), LeaseLeft::Ended),
                    2 => self.holds(&owner, &format!("rw:own:{number}"), LeaseLeft::Endless),
                    _ => {}
                }
                let awaited = match rng.usize(..3) {
                    0 if number > 0 => format!("own:{}", rng.usize(..number)),
                    1 => "nobody".to_owned(),
                    _ => rng.choice(locks).unwrap().clone(),
                };
                let held = if rng.bool() { vec![&*owner.1] } else { Vec::new() };
                self.waits((&owner.0, false), &held, &awaited);
            }
        }
    }

    /// Guarantee 18: each of 10,000 deadlocks is found from each of its locks, and once in the list.
    #[test]
    fn each_deadlock_is_found_and_none_that_is_not_there() {
        let mut rng = Rng::with_seed(66);
        for round in 0..10_000 {
            let mut world = World::default();
            let size = rng.usize(2..9);
            let locks: Vec<String> =
                (0..size).map(|lock| format!("{}:{lock}", rng.choice(["rw", "a"]).unwrap())).collect();
            let owners: Vec<_> = (0..size).map(|_| world.owner()).collect();
            let is_deadlock = rng.bool();
            for (place, owner) in owners.iter().enumerate() {
                world.holds(owner, &locks[place], LeaseLeft::Endless);
                // Without a deadlock, the last one waits for nothing that is held.
                let next =
                    if place + 1 == size && !is_deadlock { "nobody" } else { &locks[(place + 1) % size] };
                world.waits((&owner.0, true), &[&owner.1], next);
            }
            world.add_harmless(&mut rng, &locks);
            let all: BTreeSet<Arc<str>> = world.known.locks.keys().cloned().collect();
            let ring: BTreeSet<&str> = locks.iter().map(|lock| &**lock).collect();
            let is_ring = |chain: &Chain| {
                chain.ring().links.iter().map(|link| &*link.lock).collect::<BTreeSet<_>>() == ring
            };
            for key in &all {
                let chains = world.known.chains(key);
                assert!(!chains.iter().any(|chain| chain.is_cycle && !is_ring(chain)), "round {round}");
                if ring.contains(&**key) {
                    assert_eq!(chains[0].is_cycle, is_deadlock, "round {round}");
                }
            }
            let listed = world.known.all_chains(&all);
            assert_eq!(listed.iter().any(|chain| chain.is_cycle), is_deadlock, "round {round}");
        }
    }
}
