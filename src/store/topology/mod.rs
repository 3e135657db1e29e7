//! Who is the master of a slot.
//!
//! # How it works
//!
//! A [`Topology`] has a [`Map`] from slots to addresses, and a [`Server`] for each address. A source names the servers and says how
//! the masters are found (`Discovery`):
//!
//! | discovery | who is asked | what the map has |
//! |---|---|---|
//! | fixed | nobody | one master of all slots: the server to which its name leads |
//! | Sentinel | each sentinel | one master of all slots: that of the last failover, by majority |
//! | cluster | each node that is known | for each slot the claim with the highest epoch |
//!
//! If the map can change, one task (`watch.rs`) asks again: every 50 ms while something is wrong, otherwise each second, or one node
//! of a cluster each half second. `ask.rs` sends the questions. `map.rs` and `slots.rs` decide by the answers: they are pure, and
//! send nothing.
//!
//! A server that leaves the map is left at once: its commands in flight fail with an unknown outcome, and its connections are
//! closed. That is a *switch*, which the engine hears of. A server that only a redirect named is a *guest*, and stays for 10 seconds.
//!
//! # Redirects
//!
//! A node that answers `MOVED` or `ASK` did not run the script. [`Topology::follow`] runs the script on the node that it named,
//! inside the time limit of the call, and tells the caller of each further connection before it sends anything there.
//!
//! # Why not redis-rs's own cluster and Sentinel clients
//!
//! The engine must know on which connections an attempt can still run, and what became of it there: not sent, refused or unknown.
//! redis-rs's clients hide that (redis 1.8):
//!
//! - `ClusterConnection` sends a command again by itself, up to 16 times, after a broken connection too. The first copy possibly ran.
//!   The caller sees one reply, and not which connections can still deliver a copy.
//! - With `retries(0)` it follows no `MOVED` or `ASK` either, because both use the same counter.
//! - `SentinelClient` takes the answer of the first sentinel, in the order of the list, whose master says that it is one. It
//!   neither compares epochs nor counts votes, and hears of no failover. An old master stays writable until its sentinel demotes it,
//!   for up to 11 s in a test.
//! - It cannot leave a server: commands in flight to an old master wait for their own time limits.

mod address;
mod ask;
mod group;
mod map;
mod slots;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::connection::{
    ClientName, Connection, ConnectionCount, Endpoint, Route, Server, TimeLimit, TopologyLink, Upkeep,
};
use super::error::OpenError;
use super::task::Task;
use crate::base::config::{LockConfig, Replication};
use crate::base::fault::{Fault, FaultKind, Redirect, Sent};
use crate::base::sync::{MutexGuard, Watched, lock};
use crate::base::timer::{Instant, timeout};
use crate::protocol::{self, Call, Reply};
use ask::Pollees;
use map::{Rank, Vote, elect, elect_next};

pub(super) use address::Address;
pub(super) use group::{Discovery, Group};
pub(super) use slots::Map;

/// How often a caller looks for the master while there is none, and for how long before its try counts as failed.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS_FOR: Duration = Duration::from_millis(500);

/// How long a server is kept that is the master of no slot, after a redirect to it.
const GUEST: Duration = Duration::from_secs(10);

/// How many redirects of one call are followed.
const HOPS: usize = 5;

/// The servers of a client, and which of them is the master of each slot.
pub(super) struct Topology {
    pub(super) group: Group,
    config: LockConfig,
    state: Mutex<State>,
    pub(super) link: Arc<TopologyLink>,
    /// Counts how often another server became the master.
    pub(super) switches: Arc<Watched>,
    /// The runtime on which the client was made. The runtime of a caller can end earlier.
    runtime: Handle,
    /// Counts the changes of the map.
    pub(super) changes: Watched,
}

struct State {
    map: Map,
    rank: Rank,
    switched_at: Instant,
    /// The servers of the map, and guests.
    servers: BTreeMap<Address, Arc<Server>>,
    /// Servers to which a redirect led, and when the last one did.
    guests: BTreeMap<Address, Instant>,
}

/// What a call waits for.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Within(TimeLimit),
    /// The call waits until this many replicas have what the script wrote.
    OnReplicas(Replication),
}

impl Topology {
    /// Asks once who the masters are. If that can change, the task asks again until it is dropped.
    pub(super) async fn open(
        group: Group,
        config: &LockConfig,
        name: &Arc<ClientName>,
        upkeep: Upkeep,
    ) -> Result<(Arc<Self>, Option<Task>), OpenError> {
        let mut pollees = Pollees::new(&group, name);
        let (votes, faults) = pollees.ask(config.command_timeout()).await;
        // The task that asks from now on runs on another runtime, and must not need that of the caller.
        pollees.disconnect();
        let runtime = upkeep.runtime.clone();
        let (rank, map) = match &group.discovery {
            Discovery::Fixed(_) => (Rank::default(), Map::of_one(Address::default())),
            Discovery::Cluster => {
                (Rank::default(), Map::default().updated(votes.iter().map(|vote| &vote.map), true))
            }
            Discovery::Sentinel { .. } => {
                elect(&votes, None).map(|vote| (vote.rank, vote.map)).unwrap_or_default()
            }
        };
        if map.first().is_none() {
            return Err(group.explain(faults));
        }
        let topology = Arc::new(Self::new(group, config.clone(), (name, upkeep), (rank, map)));
        let watched = Arc::downgrade(&topology);
        let update = move |votes: &[Vote]| {
            let topology = watched.upgrade()?;
            topology.update(votes);
            Some(topology.pollees(votes))
        };
        let watch =
            || Task::spawn_on(&runtime, watch::watch(&topology.group, &topology.link, pollees, update));
        let task = topology.group.can_switch().then(watch);
        Ok((topology, task))
    }

    /// Connects to none of the servers.
    fn new(
        group: Group,
        config: LockConfig,
        (name, upkeep): (&Arc<ClientName>, Upkeep),
        (rank, map): (Rank, Map),
    ) -> Self {
        let state = State {
            map,
            rank,
            switched_at: Instant::now(),
            servers: BTreeMap::new(),
            guests: BTreeMap::new(),
        };
        let topology = Self {
            link: Arc::new(TopologyLink::new(group.can_switch(), group.is_cluster(), name, upkeep)),
            group,
            config,
            state: Mutex::new(state),
            switches: Arc::default(),
            runtime: Handle::current(),
            changes: Watched::default(),
        };
        topology.fill(&mut lock(&topology.state));
        topology
    }

    /// The slot of a key or a channel. Without a cluster, there is one slot.
    pub(super) fn slot(&self, key: &str) -> u16 {
        if self.link.has_slots { protocol::slot(key) } else { 0 }
    }

    /// The server that is the master of a slot. `None`: nobody says which one that is.
    pub(super) fn server(&self, slot: u16) -> Option<Arc<Server>> {
        let state = lock(&self.state);
        Some(Arc::clone(state.servers.get(state.map.master(slot)?)?))
    }

    /// The connection to the master of a slot, if there is one.
    pub(super) fn opened(&self, Route { slot, index }: Route) -> Option<Connection> {
        let state = lock(&self.state);
        state.servers.get(state.map.master(slot)?)?.opened(index)
    }

    /// Which server is the master of each slot.
    pub(super) fn map(&self) -> Map {
        lock(&self.state).map.clone()
    }

    /// Returns a connection to the master of a slot. While none can be made, waits for another master for a moment: so a call goes on
    /// as soon as there is one.
    pub(super) async fn connection(&self, Route { slot, index }: Route) -> Result<Connection, Fault> {
        let mut limit = None;
        loop {
            let before = self.switches.get(); // before the server is looked up: no switch is missed
            let connecting = async {
                let none = || Fault::new(FaultKind::Unavailable, Sent::No, "no server has the key's slot");
                self.server(slot).ok_or_else(none)?.connection(index).await
            };
            let connected = tokio::select! {
                biased;
                connected = connecting => connected,
                // Another server became the master, so the call does not wait for the silent one.
                () = self.switches.until(|switches| switches > before) => continue,
            };
            let fault = match connected {
                Err(fault) if fault.is_transient() && self.group.can_switch() => fault,
                result => return result,
            };
            self.link.report();
            let now = Instant::now();
            if now > *limit.get_or_insert(now + LOOKS_FOR) {
                return Err(fault);
            }
            let _ = timeout(LOOK, self.switches.until(|switches| switches > before)).await;
        }
    }

    /// Runs a script that the server of this connection did not run: it redirected the call with this fault, or the call came too late,
    /// so the server's time is learned anew. A call that comes too late twice in a row is given back. `hops` learns each further
    /// connection before the script is sent on it. Returns the reply, and the number of replicas that have what the script wrote: zero
    /// if the call waits for none.
    pub(super) async fn follow(
        &self,
        mut fault: Fault,
        answer: Answer,
        connection: &Connection,
        call: &Call,
        hops: &mut (dyn FnMut(&Connection) + Send),
    ) -> Result<(Reply, u32), Fault> {
        let mut at = connection.clone();
        let mut was_late = false;
        for _ in 0..HOPS {
            let is_late = fault.kind == FaultKind::Late;
            let server = if is_late {
                if was_late {
                    return Err(fault);
                }
                at.learn_time().await?;
                at.server()?
            } else {
                let Some(server) = self.follow_redirect(&at, &fault, call) else { return Err(fault) };
                let is_asking = fault.redirect.as_ref().is_some_and(|redirect| redirect.is_for_once);
                at = server.connection(at.index).await?.asking(is_asking);
                if call.expires() {
                    at.know_time().await?;
                }
                server
            };
            was_late = is_late;
            let result = match answer {
                Answer::Within(limit) => {
                    let Some(limit) = limit.rest() else { return Err(fault) };
                    hops(&at);
                    server.run(limit, &at, call).await.map(|reply| (reply, 0))
                }
                // With a new time limit: a server without replicas redirects late, because its reply also waits for
                // replicas.
                Answer::OnReplicas(sync) => {
                    hops(&at);
                    server.run_on_replicas(&at, call, sync).await
                }
            };
            match result {
                Err(next) if next.is_followed() => fault = next,
                result => return result,
            }
        }
        Err(fault)
    }

    /// Records a redirect, if this is one. Returns the server to which the call can be sent instead.
    ///
    /// A slot that moves from one node to another is at both, key by key. The old node redirects a caller, for once, if it has none
    /// of the keys. But with several keys, some may be at either node. Then nobody can run the script.
    fn follow_redirect(&self, from: &Connection, fault: &Fault, call: &Call) -> Option<Arc<Server>> {
        let Redirect { slot, address, is_for_once } = fault.redirect.as_deref()?;
        let asked = Address::of(from.server().ok()?.endpoint()?)?;
        let address = Address::of_redirect(address, &asked)?;
        if !self.link.has_slots || (*is_for_once && call.keys.len() != 1) {
            return None;
        }
        Some(self.record_redirect(*slot, address, *is_for_once))
    }

    /// A redirect led to this server.
    fn record_redirect(&self, slot: u16, address: Address, is_for_once: bool) -> Arc<Server> {
        let mut state = lock(&self.state);
        // A server that only redirects name is a guest, and stays for a while. A master must be no guest, because it is
        // left as soon as another server takes its place.
        if !state.map.has(&address) {
            state.guests.insert(address.clone(), Instant::now());
        }
        let is_news = !is_for_once && state.map.master(slot) != Some(&address);
        if is_news {
            state.map.set(slot, &address);
        }
        let State { map, servers, .. } = &mut *state;
        let server =
            servers.entry(address).or_insert_with_key(|address| self.start_server(address, self.count(map)));
        let server = Arc::clone(server);
        drop(state);
        if is_news {
            self.changes.modify(|changes| changes + 1);
        }
        server
    }

    /// Takes over what the votes say.
    fn update(&self, votes: &[Vote]) {
        let mut state = lock(&self.state);
        let map = match &self.group.discovery {
            Discovery::Fixed(_) => None,
            Discovery::Cluster => {
                let have_most_answered = votes.len() * 2 > self.known(&state, votes).len();
                Some(state.map.updated(votes.iter().map(|vote| &vote.map), have_most_answered))
            }
            Discovery::Sentinel { .. } => self.elected(&mut state, votes),
        };
        if let Some(map) = map {
            self.adopt(state, map);
        }
    }

    /// The master that the sentinels elect, if it is another one.
    fn elected(&self, state: &mut State, votes: &[Vote]) -> Option<Map> {
        let present = (state.rank, &state.map);
        let elapsed = state.switched_at.elapsed();
        let Vote { rank, map, .. } = elect_next(votes, self.group.pollees.len(), present, elapsed)?;
        state.rank = rank;
        if map == state.map {
            return None;
        }
        state.switched_at = Instant::now();
        Some(map)
    }

    /// Leaves the servers that are masters no longer, and tells those who wait for that.
    fn adopt(&self, mut state: MutexGuard<'_, State>, map: Map) {
        let before = std::mem::replace(&mut state.map, map);
        let is_changed = before != state.map;
        let guests: BTreeSet<_> = state.guests.keys().cloned().collect();
        let left = self.fill(&mut state);
        let first = state.map.first().cloned();
        // Earlier redirects have perhaps moved all slots of a left server to others, so it has no successor. Then the
        // first master counts as its successor.
        let successor = |left| state.map.successor(left, &before).or(first.as_ref());
        let masters: Vec<_> =
            left.keys().map(|left| successor(left).filter(|_| !guests.contains(left)).cloned()).collect();
        drop(state);
        if is_changed {
            self.changes.modify(|changes| changes + 1);
        }
        let mut is_switch = false;
        for ((address, server), master) in left.into_iter().zip(masters) {
            server.leave();
            if let Some(master) = master {
                tracing::warn!(server = %master, before = %address, "another server is the master");
                is_switch = true;
            }
        }
        if is_switch {
            self.switches.modify(|switches| switches + 1);
        }
    }

    /// Makes the servers of the map that are missing. Returns those that are neither in the map nor guests any more.
    fn fill(&self, state: &mut State) -> BTreeMap<Address, Arc<Server>> {
        let State { map, servers, guests, .. } = state;
        guests.retain(|address, at| at.elapsed() < GUEST && !map.has(address));
        let masters = map.masters();
        let count = self.count(map);
        let (stay, left): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(servers)
            .into_iter()
            .partition(|(address, _)| masters.contains(address) || guests.contains_key(address));
        *servers = stay;
        for address in masters {
            servers.entry(address.clone()).or_insert_with_key(|address| self.start_server(address, count));
        }
        left
    }

    /// How many connections a server has that is made while this map counts.
    fn count(&self, map: &Map) -> ConnectionCount {
        ConnectionCount::of(&self.config, map.masters().len())
    }

    fn start_server(&self, address: &Address, count: ConnectionCount) -> Arc<Server> {
        let _entered = self.runtime.enter();
        let (dial, name) = (self.group.dial(address), self.group.name(address));
        Server::start(dial, name, &self.config, count, &self.link)
    }

    /// Who is to be asked next: those that the source names, and in a cluster all nodes that are known.
    fn pollees(&self, votes: &[Vote]) -> Vec<(Address, Endpoint)> {
        if !self.link.has_slots {
            return self.group.pollees.clone();
        }
        let known = self.known(&lock(&self.state), votes);
        known.into_iter().map(|address| (address.clone(), self.group.endpoint(&address))).collect()
    }

    fn known(&self, state: &State, votes: &[Vote]) -> BTreeSet<Address> {
        let seeds = self.group.pollees.iter().map(|(seed, _)| seed);
        let others = votes.iter().flat_map(|vote| &vote.others);
        seeds.chain(others).chain(state.map.masters()).cloned().collect()
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.switches.modify(|switches| switches + 1); // ends those who wait: the engine is gone
    }
}

#[cfg(test)]
mod tests;
