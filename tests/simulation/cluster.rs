//! A cluster as the server of a world: who has a lock's slot, and how slots move and masters are replaced.
//!
//! A master that sentinels watch is one, too. It has all slots, which never move.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join;
use lockkeeper::{Process, Source};
use lockkeeper_memory::{Data, MemoryCluster, MemoryServer, Network};
use tokio::time::{Instant, sleep};

use crate::locks::{NAMES, NAMES_IN_CLUSTER};
use crate::masters::Masters;
use crate::oracle::RenewedHold;
use crate::plan::{Deployment, FaultKind, MS, SECOND, up_to};
use crate::process_stream::ProcessStream;
use crate::trace::Script;
use crate::world::World;

pub struct WorldCluster {
    pub cluster: MemoryCluster,
    /// How many there are. There are as many replicas, and then come sentinels.
    masters_count: usize,
    deployment: Deployment,
    state: Mutex<State>,
    masters: Arc<Mutex<Masters>>,
}

struct State {
    /// The slots of the locks.
    slots: BTreeMap<u16, Place>,
    /// They neither speak nor listen to the others.
    silent: BTreeSet<usize>,
}

#[derive(Clone, Copy)]
struct Place {
    /// The master, whoever else claims to be it.
    master: usize,
    /// The master to which its keys move.
    target: Option<usize>,
    /// When its keys came there from another one.
    since: Duration,
}

/// A question to a node.
type Ask<'a> = &'a mut dyn FnMut(&[&str]) -> Vec<u8>;

impl WorldCluster {
    pub fn new(deployment: Deployment, server: impl FnMut(usize) -> MemoryServer) -> Self {
        let (cluster, masters_count) = if deployment == Deployment::Sentinels {
            (MemoryCluster::with_sentinels(server), 1)
        } else {
            (MemoryCluster::new(3, 1, server), 3)
        };
        let place = |name: &&str| {
            let slot = MemoryCluster::slot_of(name);
            (slot, Place { master: cluster.master_of(slot, 0), target: None, since: Duration::ZERO })
        };
        let slots = NAMES[..NAMES_IN_CLUSTER].iter().map(place).collect();
        let (state, masters) = (Mutex::new(State { slots, silent: BTreeSet::new() }), Arc::default());
        Self { cluster, masters_count, deployment, state, masters }
    }

    fn has_sentinels(&self) -> bool {
        self.deployment == Deployment::Sentinels
    }

    /// The masters and their replicas.
    fn with_data(&self) -> Range<usize> {
        0..2 * self.masters_count
    }

    fn all(&self) -> Range<usize> {
        0..self.cluster.nodes().len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn place(&self, key: &str) -> Option<Place> {
        self.state().slots.get(&MemoryCluster::slot_of(key)).copied()
    }

    /// Whether the slot of this key moves, or has moved since then.
    pub fn has_moved(&self, key: &str, since: Duration) -> bool {
        self.place(key).is_some_and(|place| place.target.is_some() || place.since > since)
    }

    /// Whether what this node does with this key counts.
    pub fn counts(&self, node: usize, key: &[u8]) -> bool {
        let place = self.place(&String::from_utf8_lossy(key));
        place.is_none_or(|place| place.master == node || place.target == Some(node))
    }

    /// Asks the node that has the key. `running`: this node runs a command, and answers by itself.
    pub fn ask(&self, words: &[&str], running: Option<(usize, Ask<'_>)>) -> Vec<u8> {
        let (at, own) = running.map_or((None, None), |(at, ask)| (Some(at), Some(ask)));
        let Some(place) = words.get(1).and_then(|key| self.place(key)) else {
            return own.map_or_else(|| self.cluster.nodes()[0].execute(words), |ask| ask(words));
        };
        let mut own = own;
        let mut ask = |node: usize, words: &[&str]| match &mut own {
            Some(ask) if at == Some(node) => ask(words),
            _ => self.cluster.nodes()[node].execute(words),
        };
        let has_moved = place.target.filter(|target| ask(*target, &["EXISTS", words[1]]) == b":1\r\n");
        ask(has_moved.unwrap_or(place.master), words)
    }

    /// The cluster, for a client in this process.
    pub fn source(
        &self,
        networks: &[MemoryServer],
        process: &Process,
        number: usize,
        start: Instant,
    ) -> Source {
        let (networks, of_stream, masters) = (networks.to_vec(), process.clone(), Arc::clone(&self.masters));
        process.connect_by(move |_host, port| {
            let node = usize::from(port - 7_000);
            let (connect, process, masters) =
                (networks[node].connector(), of_stream.clone(), Arc::clone(&masters));
            async move {
                let stream = connect().await?;
                lock(&masters).connects(start.elapsed(), number, (node, stream.number()));
                io::Result::Ok(ProcessStream::new(stream, process))
            }
        });
        let url = |node: usize| format!("redis://127.0.0.1:{}", 7_000 + node);
        if self.has_sentinels() {
            let sentinels = self.all().skip(self.with_data().len()).map(url);
            Source::sentinel("mymaster", sentinels, "redis://mymaster")
        } else {
            Source::cluster((0..self.masters_count).map(url))
        }
    }

    /// A node answered a script. Returns what is wrong about its being asked.
    pub fn asked(
        &self,
        now: Duration,
        (node, client): (usize, u64),
        script: &Script<'_>,
        reply: &[u8],
    ) -> Option<String> {
        let key = String::from_utf8_lossy(script.keys.first()?);
        let (slot, place) = (MemoryCluster::slot_of(&key), self.place(&key)?);
        let is_refused = reply.starts_with(b"-");
        lock(&self.masters).asked(now, (node, client), script, (slot, place.master == node), is_refused)
    }

    /// Looks again and again whether holds that new masters lack are lost, until the world is over.
    pub async fn look_at_holds(&self, world: &World) {
        loop {
            sleep(Masters::LOOKS).await;
            let is_settled = |name: usize| {
                let place = self.place(NAMES[name]).expect("it is known");
                place.target.is_none() && !self.state().silent.contains(&place.master)
            };
            lock(&self.masters).check_told(world, is_settled);
        }
    }

    /// Nodes hear of each other, until the world is over.
    pub async fn gossip(&self, world: &World) {
        let mut rng = Rng::with_seed(world.plan.seed ^ 0x60551b);
        loop {
            sleep(20 * MS + up_to(&mut rng, 200 * MS)).await;
            let all = self.with_data().flat_map(|from| self.all().map(move |to| (from, to)));
            for (from, to) in all.filter(|(from, to)| from != to) {
                let is_silent = |node| self.state().silent.contains(&node);
                if rng.bool() && !is_silent(from) && !is_silent(to) {
                    self.cluster.tell(from, to);
                }
            }
        }
    }

    /// Waits until all nodes name the masters of the locks' slots.
    async fn agreed(&self, world: &World) {
        let agree = || {
            let slots = self.state().slots.clone();
            slots.into_iter().all(|(slot, place)| {
                self.all().all(|node| self.cluster.master_of(slot, node) == place.master)
            })
        };
        let begun = world.now();
        while !agree() {
            sleep(10 * MS).await;
            assert!(world.now() < begun + 30 * SECOND, "the nodes do not agree");
        }
    }

    /// Moves a slot to another master, key by key.
    pub async fn move_slot(&self, world: &World, name: usize, time: Duration, rng: &mut Rng) {
        let slot = MemoryCluster::slot_of(NAMES[name]);
        let from = self.place(NAMES[name]).expect("it is known").master;
        let others: Vec<_> =
            self.all().filter(|node| *node != from && self.cluster.is_master(*node)).collect();
        let to = others[rng.usize(..others.len())];
        world.say("cluster", format_args!("slot {slot} moves from {from} to {to}"));
        self.move_keys(world, slot, from, to, time, rng).await;
        // Sometimes back at once: those who ask now and then see nothing of it.
        let mut more = Rng::with_seed(u64::try_from(time.as_nanos()).expect("years") ^ 0xbac);
        if more.u32(..3) == 0 {
            sleep(up_to(&mut more, 20 * MS)).await;
            self.cluster.tell(to, from);
            self.move_keys(world, slot, to, from, up_to(&mut more, 20 * MS), &mut more).await;
        }
        self.agreed(world).await;
    }

    async fn move_keys(
        &self,
        world: &World,
        slot: u16,
        from: usize,
        to: usize,
        time: Duration,
        rng: &mut Rng,
    ) {
        self.cluster.open_slot(slot, from, to);
        self.state().slots.get_mut(&slot).expect("it is known").target = Some(to);
        sleep(time).await;
        let keys = || {
            let keys =
                String::from_utf8_lossy(&self.cluster.nodes()[from].execute(&["KEYS", "*"])).into_owned();
            let keys = keys.split("\r\n").filter(|key| !key.starts_with(['*', '$']) && !key.is_empty());
            let mut keys: Vec<_> =
                keys.filter(|key| MemoryCluster::slot_of(key) == slot).map(str::to_owned).collect();
            keys.sort();
            keys
        };
        loop {
            let keys = keys();
            if keys.is_empty() {
                break;
            }
            let key = &keys[rng.usize(..keys.len())];
            world.say("cluster", format_args!("{key} moves to {to}"));
            self.cluster.move_key(key, from, to);
            sleep(up_to(rng, time / 4)).await;
        }
        // If the new master did not know the latest claims, its own would perhaps never count.
        self.all().filter(|node| *node != to).for_each(|node| self.cluster.tell(node, to));
        self.cluster.close_slot(slot, to);
        world.say("cluster", format_args!("slot {slot} is at {to}"));
        self.state().slots.insert(slot, Place { master: to, target: None, since: world.now() });
    }

    /// The node that has the permits of a semaphore.
    pub fn holder_of(&self, semaphore: &str) -> usize {
        let place = self.place(semaphore).expect("it is known");
        let permits = format!("{{{semaphore}}}:timeout");
        let has = |node: &usize| self.cluster.nodes()[*node].execute(&["EXISTS", &permits]) == b":1\r\n";
        place.target.filter(has).unwrap_or(place.master)
    }

    /// The master of a lock's slot.
    pub fn master_of(&self, name: usize) -> usize {
        self.place(NAMES[name]).expect("it is known").master
    }

    /// Another node takes the place of a master.
    pub async fn replace(
        &self,
        world: &World,
        kind: FaultKind,
        master: usize,
        time: Duration,
        age: Duration,
        rng: &mut Rng,
    ) {
        let replica = (master + self.masters_count) % self.with_data().len();
        let node = &self.cluster.nodes()[master];
        let promote = |age: Duration| {
            if self.has_sentinels() {
                // One of them leads the failover. The others hear of it when it is over.
                let seed = u64::try_from(world.now().as_nanos()).expect("years");
                let leader = Rng::with_seed(seed).usize(self.with_data().end..self.all().end);
                self.cluster.promotes(leader, replica);
            }
            let holds = self.acknowledged_holds(world, master);
            self.cluster.take_over(master, replica, age);
            world.say("cluster", format_args!("{replica} takes the place of {master}"));
            let mut state = self.state();
            let places = state.slots.iter_mut().filter(|(_, place)| place.master == master);
            let moved: Vec<u16> = places
                .map(|(slot, place)| {
                    place.master = replica;
                    *slot
                })
                .collect();
            drop(state);
            lock(&self.masters).replaces(world.now(), replica, master, &moved);
            let mut oracle = world.oracle();
            oracle.loses(world.now(), Some(kind), Some(0));
            oracle.replaces(world.now(), replica, master);
            drop(oracle);
            self.check_acknowledged(world, &holds);
        };
        let others = || self.all().filter(|node| *node != master);
        let mut more = Rng::with_seed(u64::try_from(time.as_nanos()).expect("years") ^ 0x01d);
        if kind != FaultKind::FailOver {
            // It does not reach its replica any more, perhaps since a while.
            self.cluster.set_replicas(master, 0);
            if world.plan.waits_for_replica {
                sleep(up_to(&mut more, time.max(2 * SECOND))).await;
            }
        }
        match kind {
            FaultKind::FailOver => {
                // The master waits until the replica has everything, and runs nothing meanwhile.
                node.freeze(true);
                sleep(up_to(rng, 100 * MS)).await;
                promote(Duration::ZERO);
                self.cluster.tell(replica, master);
                node.freeze(false);
            }
            // The old master goes on for a while, and only some clients see it.
            FaultKind::TakeOverOld if rng.bool() => {
                let hangs = more.bool();
                self.state().silent.insert(master);
                sleep(up_to(rng, time)).await;
                node.freeze(hangs);
                if hangs {
                    sleep(up_to(&mut more, 300 * MS)).await;
                }
                promote(age);
                if hangs {
                    self.reached(world, replica, time).await;
                    sleep(up_to(&mut more, 200 * MS)).await;
                    // What it was sent before runs now.
                    node.freeze(false);
                }
                join(sleep(up_to(rng, time)), self.leave_with(world, master, time, &mut more)).await;
                self.cluster.tell(replica, master);
                self.state().silent.remove(&master);
            }
            _ => {
                self.state().silent.insert(master);
                node.stop();
                sleep(up_to(rng, time)).await;
                others().for_each(|node| self.cluster.set_down(node, true));
                sleep(up_to(rng, 300 * MS)).await;
                promote(if kind == FaultKind::TakeOverOld { age } else { Duration::ZERO });
                others().for_each(|node| self.cluster.set_down(node, false));
                others()
                    .filter(|node| self.with_data().contains(node))
                    .for_each(|node| self.cluster.tell(replica, node));
                sleep(up_to(rng, time)).await;
                // Without a cluster, an old master that comes back runs what it is sent. Those writes are lost.
                let claims = more.bool() && (!self.has_sentinels() || kind == FaultKind::TakeOverOld);
                if claims {
                    // It still claims its slots. In a cluster it runs nothing while it hears of nobody.
                    self.cluster.set_down(master, true);
                    node.start(Data::Kept);
                    sleep(up_to(&mut more, time)).await;
                    self.cluster.set_down(master, false);
                }
                self.cluster.tell(replica, master);
                self.state().silent.remove(&master);
                if !claims {
                    node.start(Data::Kept);
                }
            }
        }
        self.cluster.set_replicas(replica, 1);
        self.agreed(world).await;
    }

    /// The holds on this master that a replica has, by the word of `WAIT`, and whose first lease goes on.
    fn acknowledged_holds(&self, world: &World, master: usize) -> Vec<RenewedHold> {
        let (now, lease) = (world.now(), world.plan.lease);
        let mut holds = world.oracle().renewed_holds(now);
        holds.retain(|hold| {
            let place = self.place(NAMES[hold.claim.name]).expect("it is known");
            let is_known = |at: Duration| place.since < at && now < at + lease;
            place.master == master
                && hold.first_granted_at.is_some_and(is_known)
                && world.has_field(&hold.claim, &hold.owner)
        });
        if world.plan.waits_for_replica { holds } else { Vec::new() }
    }

    /// Rule v: the new master has these holds.
    fn check_acknowledged(&self, world: &World, holds: &[RenewedHold]) {
        for hold in holds {
            world.oracle().count("holds that a replica had");
            if !world.has_field(&hold.claim, &hold.owner) {
                let text = format!("the replica lacks the hold of worker {}", hold.worker);
                world.oracle().violate(world.now(), "v", text);
            }
        }
    }
}

impl WorldCluster {
    /// Waits until a process has reached this new master, for a while.
    async fn reached(&self, world: &World, master: usize, most: Duration) {
        let slots = self.state().slots.clone().into_iter().filter(|(_, place)| place.master == master);
        let slots: Vec<u16> = slots.map(|(slot, _)| slot).collect();
        let end = world.now() + most;
        while world.now() < end && !lock(&self.masters).is_reached(&slots) {
            sleep(10 * MS).await;
        }
    }

    /// A process reaches no other node than an old master, for a while.
    async fn leave_with(&self, world: &World, master: usize, time: Duration, rng: &mut Rng) {
        sleep(up_to(rng, time)).await;
        let (process, time) = (rng.usize(..world.plan.processes), up_to(rng, time));
        let targets: Vec<_> =
            self.all().filter(|node| *node != master).map(|node| (0, process, node)).collect();
        let taken: Vec<_> = targets.iter().copied().filter(|target| world.is_free(*target)).collect();
        if taken == targets {
            let begun = world.now();
            let number = world.oracle().begin_fault(begun, Some(FaultKind::Hold), Some(process), Some(0));
            self.set_network(world, process, master, true);
            sleep(time).await;
            self.set_network(world, process, master, false);
            let now = world.now();
            world.oracle().end_fault(now, number);
        }
        taken.into_iter().for_each(|target| world.frees(target));
    }

    fn set_network(&self, world: &World, process: usize, but: usize, is_held: bool) {
        let network = Network {
            most_delay: world.plan.most_delay,
            holds_requests: is_held,
            holds_replies: is_held,
            ..Network::default()
        };
        let networks = world.networks[process].iter().enumerate().filter(|(node, _)| *node != but);
        networks.for_each(|(_, other)| other.set_network(network));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
