//! The servers of a source that has several, and which of them is used.
//!
//! `ask.rs` asks who the masters are, `map.rs` and `slots.rs` decide by the answers, and the one task of `watch.rs` does that again
//! and again. A server that is no longer a master is left at once: its commands in flight fail with an unknown outcome, and its
//! connections are closed.

mod address;
mod ask;
mod group;
mod map;
mod master;
mod redirects;
mod slots;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::runtime::Handle;
use tokio::time::{Duration, Instant, timeout};

use super::connection::{
    CommandDial, Connection, ConnectionCount, Endpoint, Membership, MessageDial, Route, Server, follow,
};
use super::error::OpenError;
use super::task::Task;
use crate::config::LockConfig;
use crate::fault::{Fault, FaultKind, Sent};
use crate::sync::{Watched, lock};
use ask::{Asked, Way};
use map::{Rank, Vote, elect, has_majority};

pub(super) use address::Address;
pub(super) use group::Group;
pub(super) use master::Master;
pub(super) use slots::Map;

/// How often a caller looks for the master while there is none, and for how long before its try counts as failed.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS_FOR: Duration = Duration::from_millis(500);

/// For this long after a switch, earlier news is ignored: it comes from those who have not heard of the switch. Afterwards it counts
/// if most say so: perhaps the sentinels were set up anew.
const NEWS: Duration = Duration::from_secs(10);

/// How long a server is kept that is the master of no slot, after a redirect to it.
const GUEST: Duration = Duration::from_secs(10);

pub(super) struct Topology {
    group: Group,
    config: LockConfig,
    state: Mutex<State>,
    master: Arc<Master>,
    membership: Membership,
    /// The runtime on which the client was made. The runtime of a caller can end earlier.
    runtime: Handle,
    /// Counts the changes of the map.
    changes: Watched<u64>,
}

struct State {
    map: Map,
    rank: Rank,
    switched_at: Instant,
    /// The servers of the map, and guests.
    servers: BTreeMap<Address, Member>,
    /// Servers to which a redirect led, and when the last one did.
    guests: BTreeMap<Address, Instant>,
}

struct Member {
    server: Arc<Server>,
    /// Authenticates the connections when the credentials change.
    _login: Option<Task>,
}

impl Topology {
    /// Asks once who the masters are. The task that asks again ends when it is dropped.
    pub(super) async fn open(group: Group, config: &LockConfig) -> Result<(Arc<Self>, Task), OpenError> {
        let mut asked = Asked::new(group.way.clone(), group.asked.clone());
        let (votes, faults) = asked.ask(config.command_timeout()).await;
        let (rank, map) = match &group.way {
            Way::Cluster => {
                (Rank::default(), Map::default().updated(votes.iter().map(|vote| &vote.map), true))
            }
            Way::Sentinel { .. } => elect(&votes, None).map(|vote| (vote.rank, vote.map)).unwrap_or_default(),
        };
        let Some(first) = map.first() else { return Err(group.explain(faults)) };
        let master = Arc::new(Master::new(group.endpoint(first)));
        let topology = Arc::new(Self::new(group, config.clone(), master, rank, map));
        let watched = Arc::downgrade(&topology);
        let update = move |votes: &[Vote]| {
            let topology = watched.upgrade()?;
            topology.update(votes);
            Some(topology.asked(votes))
        };
        let task = Task::spawn(watch::watch(&topology.group, &topology.membership, asked, update));
        Ok((topology, task))
    }

    /// The servers of a map, with this one as the master of those that have only one. Connects to none.
    fn new(group: Group, config: LockConfig, master: Arc<Master>, rank: Rank, map: Map) -> Self {
        let state = State {
            map,
            rank,
            switched_at: Instant::now(),
            servers: BTreeMap::new(),
            guests: BTreeMap::new(),
        };
        let topology = Self {
            group,
            config,
            state: Mutex::new(state),
            master,
            membership: Membership::default(),
            runtime: Handle::current(),
            changes: Watched::default(),
        };
        topology.fill(&mut lock(&topology.state));
        topology
    }

    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self.group.way, Way::Cluster)
    }

    pub(super) const fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The server that is the master of a slot. `None`: nobody says which one that is.
    pub(super) fn server(&self, slot: u16) -> Option<Arc<Server>> {
        let state = lock(&self.state);
        Some(Arc::clone(&state.servers.get(state.map.master(slot)?)?.server))
    }

    /// Makes the connections for messages to this server.
    pub(super) fn messages(&self, address: &Address) -> MessageDial {
        MessageDial::Shard(Box::new(self.group.endpoint(address)), self.membership.clone())
    }

    /// Which server is the master of each slot.
    pub(super) fn map(&self) -> Map {
        lock(&self.state).map.clone()
    }

    /// How often the map has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Waits for a further change. Returns their number.
    pub(super) async fn changed(&self, since: u64) -> u64 {
        self.changes.until(|changes| *changes > since).await;
        self.changes.get()
    }

    /// Where a master is, for connections that follow it.
    pub(super) const fn master(&self) -> &Arc<Master> {
        &self.master
    }

    /// Returns a connection to the master of a slot. While none can be made, waits for another master for a moment: so a call goes on
    /// as soon as there is one.
    pub(super) async fn connection(&self, Route { slot, index }: Route) -> Result<Connection, Fault> {
        let mut limit = None;
        loop {
            let switches = self.master.switches(); // before the server is looked up: no switch is missed
            let connecting = async {
                let none = || Fault::new(FaultKind::Unavailable, Sent::No, "no server has the key's slot");
                self.server(slot).ok_or_else(none)?.connection(index).await
            };
            let connected = tokio::select! {
                biased;
                connected = connecting => connected,
                // A silent server keeps nobody who could go on with the new master.
                _ = self.master.switched(switches) => continue,
            };
            let fault = match connected {
                Err(fault) if fault.is_transient() => fault,
                result => return result,
            };
            self.membership.complain();
            let now = Instant::now();
            if now > *limit.get_or_insert(now + LOOKS_FOR) {
                return Err(fault);
            }
            let _ = timeout(LOOK, self.master.switched(switches)).await;
        }
    }

    /// Takes over what the votes say.
    fn update(&self, votes: &[Vote]) {
        let mut state = lock(&self.state);
        let map = match &self.group.way {
            Way::Cluster => {
                let have_most_answered = votes.len() * 2 > self.known(&state, votes).len();
                Some(state.map.updated(votes.iter().map(|vote| &vote.map), have_most_answered))
            }
            Way::Sentinel { .. } => self.elected(&mut state, votes),
        };
        if let Some(map) = map {
            self.adopt(state, map);
        }
    }

    /// The master that most name, unless that is old news.
    fn elected(&self, state: &mut State, votes: &[Vote]) -> Option<Map> {
        let vote = elect(votes, Some(&state.map))?;
        // Later, too, a few that were cut off with an old master do not count while the others are silent.
        let is_news =
            || state.switched_at.elapsed() >= NEWS && has_majority(&vote, votes, self.group.asked.len());
        if vote.rank < state.rank && !is_news() {
            return None;
        }
        let Vote { rank, map, .. } = vote;
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
        // Redirects perhaps told before that other servers have all its slots.
        let successor = |left| state.map.successor(left, &before).or(first.as_ref());
        let masters: Vec<_> =
            left.keys().map(|left| successor(left).filter(|_| !guests.contains(left)).cloned()).collect();
        drop(state);
        if is_changed {
            self.changes.modify(|changes| *changes += 1);
        }
        let mut is_switch = false;
        for ((address, member), master) in left.into_iter().zip(masters) {
            member.server.leave();
            if let Some(master) = master {
                tracing::warn!(server = %master, before = %address, "another server is the master");
                is_switch = true;
            }
        }
        if let Some(first) = first.filter(|_| is_switch) {
            self.master.switch(self.group.endpoint(&first));
        }
    }

    /// Makes the servers of the map that are missing. Returns those that are neither in the map nor guests any more.
    fn fill(&self, state: &mut State) -> BTreeMap<Address, Member> {
        let State { map, servers, guests, .. } = state;
        guests.retain(|address, at| at.elapsed() < GUEST && !map.has(address));
        let masters = map.masters();
        let count = self.count(map);
        let (stay, left): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(servers)
            .into_iter()
            .partition(|(address, _)| masters.contains(address) || guests.contains_key(address));
        *servers = stay;
        for address in masters {
            servers.entry(address.clone()).or_insert_with_key(|address| self.member(address, count));
        }
        left
    }

    /// How many connections a server has that is made while this map counts.
    fn count(&self, map: &Map) -> ConnectionCount {
        ConnectionCount::of(&self.config, map.masters().len())
    }

    fn member(&self, address: &Address, count: ConnectionCount) -> Member {
        let _entered = self.runtime.enter();
        let endpoint = self.group.endpoint(address);
        let logins = endpoint.logins();
        let dial = CommandDial::Master(Box::new(endpoint));
        let membership = Some(self.membership.clone());
        let server = Server::new(dial, address.to_string().into(), &self.config, count, membership);
        let server = Arc::new(server);
        Member { _login: logins.map(|logins| follow(&server, logins)), server }
    }

    /// Who is to be asked next: those that the source names, and in a cluster all nodes that are known.
    fn asked(&self, votes: &[Vote]) -> Vec<(Address, Endpoint)> {
        if !self.is_cluster() {
            return self.group.asked.clone();
        }
        let known = self.known(&lock(&self.state), votes);
        known.into_iter().map(|address| (address.clone(), self.group.endpoint(&address))).collect()
    }

    fn known(&self, state: &State, votes: &[Vote]) -> BTreeSet<Address> {
        let seeds = self.group.asked.iter().map(|(seed, _)| seed);
        let others = votes.iter().flat_map(|vote| &vote.others);
        seeds.chain(others).chain(state.map.masters()).cloned().collect()
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.master.end();
    }
}

#[cfg(test)]
mod tests;
