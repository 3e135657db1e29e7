//! A cluster as the server of a world: who has a lock's slot, and how slots move and masters are replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use lockkeeper::{Process, Source};
use lockkeeper_memory::{Data, MemoryCluster, MemoryServer};
use tokio::time::sleep;

use crate::locks::NAMES;
use crate::plan::{FaultKind, MS, SECOND, up_to};
use crate::process_stream::ProcessStream;
use crate::world::World;

const MASTERS: usize = 3;

/// Masters, and a replica for each.
pub const NODES: usize = 2 * MASTERS;

pub struct WorldCluster {
    pub cluster: MemoryCluster,
    state: Mutex<State>,
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
}

/// A question to a node.
type Ask<'a> = &'a mut dyn FnMut(&[&str]) -> Vec<u8>;

impl WorldCluster {
    pub fn new(server: impl FnMut(usize) -> MemoryServer) -> Self {
        let cluster = MemoryCluster::new(MASTERS, 1, server);
        let place = |name: &&str| {
            let slot = MemoryCluster::slot_of(name);
            (slot, Place { master: cluster.master_of(slot, 0), target: None })
        };
        let slots = NAMES.iter().map(place).collect();
        Self { cluster, state: Mutex::new(State { slots, silent: BTreeSet::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, key: &str) -> Option<Place> {
        self.state().slots.get(&MemoryCluster::slot_of(key)).copied()
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
    pub fn source(&self, networks: &[MemoryServer], process: &Process) -> Source {
        let (networks, of_stream) = (networks.to_vec(), process.clone());
        process.connect_by(move |_host, port| {
            let node = usize::from(port - 7_000);
            let (connect, process) = (networks[node].connector(), of_stream.clone());
            async move { io::Result::Ok(ProcessStream::new(connect().await?, process)) }
        });
        Source::cluster((0..MASTERS).map(|node| format!("redis://127.0.0.1:{}", 7_000 + node)))
    }

    /// Nodes hear of each other, until the world is over.
    pub async fn gossip(&self, world: &World) {
        let mut rng = Rng::with_seed(world.plan.seed ^ 0x60551b);
        loop {
            sleep(20 * MS + up_to(&mut rng, 200 * MS)).await;
            let all = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
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
                (0..NODES).all(|node| self.cluster.master_of(slot, node) == place.master)
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
            (0..NODES).filter(|node| *node != from && self.cluster.is_master(*node)).collect();
        let to = others[rng.usize(..others.len())];
        world.say("cluster", format_args!("slot {slot} moves from {from} to {to}"));
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
        (0..NODES).filter(|node| *node != to).for_each(|node| self.cluster.tell(node, to));
        self.cluster.close_slot(slot, to);
        world.say("cluster", format_args!("slot {slot} is at {to}"));
        self.state().slots.insert(slot, Place { master: to, target: None });
        self.agreed(world).await;
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
        let replica = (master + MASTERS) % NODES;
        let node = &self.cluster.nodes()[master];
        let promote = |age: Duration| {
            self.cluster.take_over(master, replica, age);
            world.say("cluster", format_args!("{replica} takes the place of {master}"));
            let mut state = self.state();
            let places = state.slots.values_mut().filter(|place| place.master == master);
            places.for_each(|place| place.master = replica);
            world.oracle().loses(world.now(), Some(kind), Some(0));
        };
        let others = || (0..NODES).filter(|node| *node != master);
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
                self.state().silent.insert(master);
                sleep(up_to(rng, time)).await;
                promote(age);
                sleep(up_to(rng, time)).await;
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
                for node in others() {
                    self.cluster.set_down(node, false);
                    self.cluster.tell(replica, node);
                }
                sleep(up_to(rng, time)).await;
                self.cluster.tell(replica, master);
                self.state().silent.remove(&master);
                node.start(Data::Kept);
            }
        }
        self.agreed(world).await;
    }
}
