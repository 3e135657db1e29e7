//! Servers in cluster mode: masters that share the slots, and their replicas.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use redis::Value;

use crate::server::{IS_VALKEY, RELEASE};
use crate::turn::{self, Turn, Turns};
use crate::{Certificates, Commands, Server};

const SLOTS: usize = 16_384;

/// The time limit for the group to agree, and for a failover.
const LIMIT: Duration = Duration::from_secs(60);

/// With more groups at the same time, the servers on a busy machine take each other for dead.
static TURNS: Turns = Turns::new(2);

/// A group of servers in cluster mode, which ends when this value is dropped.
#[derive(Debug)]
#[non_exhaustive]
pub struct Cluster {
    /// At first the masters, then their replicas in the same order, then servers that were added.
    pub servers: Vec<Server>,
    node_timeout: Duration,
    _turn: Turn,
}

/// What one server knows about a server of the group: a line of `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    id: String,
    port: u16,
    is_master: bool,
    /// The id of its master, or `-`.
    master: String,
    /// Of several masters that claim a slot, the one with the greatest has it.
    epoch: u64,
    /// The first and the last slot of each range.
    slots: Vec<(u16, u16)>,
    is_well: bool,
    is_self: bool,
}

impl Known {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let port = words[1].split('@').next().and_then(|address| address.rsplit(':').next());
        let has = |flag| words[2].split(',').any(|other| other == flag);
        let range = |word: &&str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some((first.parse().ok()?, last.parse().ok()?)) // None: a slot that moves, such as [93->-id]
        };
        Self {
            id: words[0].to_owned(),
            port: port.and_then(|port| port.parse().ok()).expect("a port"),
            is_master: has("master"),
            master: words[3].to_owned(),
            epoch: words[6].parse().expect("an epoch"),
            slots: words[8..].iter().filter_map(range).collect(),
            is_well: !["fail", "fail?", "handshake", "noaddr"].into_iter().any(has),
            is_self: has("myself"),
        }
    }

    fn has(&self, slot: u16) -> bool {
        self.is_master && self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// Starting.
impl Cluster {
    /// Starts a cluster. Each server takes another for dead after one second without an answer.
    pub fn start(masters: usize, replicas_of_each: usize) -> Self {
        Self::with(masters, replicas_of_each, Duration::from_secs(1), &[])
    }

    /// Starts a cluster. Each server takes another for dead after this time without an answer, and has these further arguments.
    pub fn with(masters: usize, replicas_of_each: usize, node_timeout: Duration, args: &[&str]) -> Self {
        Self::of_nodes(masters, replicas_of_each, node_timeout, || node(node_timeout, args, None))
    }

    /// Starts a cluster that speaks TLS, and accepts only clients with a certificate.
    pub fn secured(masters: usize, replicas_of_each: usize, certificates: &Certificates) -> Self {
        let node_timeout = Duration::from_secs(1);
        Self::of_nodes(masters, replicas_of_each, node_timeout, || {
            node(node_timeout, &[], Some(certificates))
        })
    }

    fn of_nodes(
        masters: usize,
        replicas_of_each: usize,
        node_timeout: Duration,
        node: impl Fn() -> Server,
    ) -> Self {
        let turn = TURNS.wait_for();
        let count = masters * (1 + replicas_of_each);
        let servers = (0..count).map(|_| node()).collect();
        let mut group = Self { servers, node_timeout, _turn: turn };
        // Each server reads the whole cluster from a file, as another run could have left it. So the servers need not
        // be introduced to each other.
        for me in 0..count {
            group.servers[me].write("nodes.conf", &group.nodes(masters, me));
        }
        for server in &mut group.servers {
            server.begin();
        }
        wait_until("the servers agree", || group.agrees());
        group
    }

    /// The file of one server. The epoch of each master differs, as servers with the same epoch have to agree on another.
    fn nodes(&self, masters: usize, me: usize) -> String {
        let mut file = String::new();
        for (index, server) in self.servers.iter().enumerate() {
            let (id, port, bus) = (id(server), server.public_port(), server.bus_port());
            let myself = if index == me { "myself," } else { "" };
            let of = index % masters;
            let (epoch, shard) = (of + 1, shard(&self::id(&self.servers[of])));
            let line = if index < masters {
                let (first, last) = (of * SLOTS / masters, (of + 1) * SLOTS / masters - 1);
                format!(
                    "{id} 127.0.0.1:{port}@{bus}{shard} {myself}master - 0 0 {epoch} connected {first}-{last}\n"
                )
            } else {
                let master = self::id(&self.servers[of]);
                format!("{id} 127.0.0.1:{port}@{bus}{shard} {myself}slave {master} 0 0 {epoch} connected\n")
            };
            file.push_str(&line);
        }
        file + &format!("vars currentEpoch {masters} lastVoteEpoch 0\n")
    }

    /// Starts another master, which has no slots yet and does not speak TLS. Returns its index.
    pub fn add_master(&mut self) -> usize {
        let mut server = node(self.node_timeout, &[], None);
        server.begin();
        let (port, bus) = (server.port().to_string(), server.bus_port().to_string());
        for other in self.answering() {
            self.servers[other].run::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        self.servers.push(server);
        wait_until("the servers agree", || self.agrees());
        self.servers.len() - 1
    }
}

impl Server {
    /// Starts a server that is a cluster by itself: a master with all slots.
    pub fn cluster_of_one() -> Self {
        // With this long node timeout, the server does not notice that its master does not exist before it takes the
        // place of the master.
        let mut server = node(LIMIT, &[], None);
        let (id, port, bus) = (id(&server), server.port(), server.bus_port());
        // A master waits for two seconds after its start, and a replica does not. So it starts as the replica of a
        // master that does not exist, and takes its place.
        let gone = format!("{:0<40}", "f");
        let shard = shard(&gone);
        let file = format!(
            "{gone} 127.0.0.1:1@1{shard} master - 0 0 1 connected 0-{}\n\
             {id} :{port}@{bus}{shard} myself,slave {gone} 0 0 1 connected\n\
             vars currentEpoch 1 lastVoteEpoch 0\n",
            SLOTS - 1
        );
        server.write("nodes.conf", &file);
        server.begin();
        wait_until("it serves all slots", || is_ok(&server));
        server.run::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        server.run::<()>(&["CLUSTER", "FORGET", &gone]);
        wait_until("it is a master", || {
            server.run::<String>(&["INFO", "replication"]).contains("role:master")
        });
        assert!(is_ok(&server));
        server
    }
}

impl Server {
    /// Lets clients and other servers of the cluster hear of this port in place of its own.
    pub fn announce(&self, port: u16) {
        self.run::<()>(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]);
        let announced = format!("127.0.0.1:{port}@");
        let is_known = || self.run::<String>(&["CLUSTER", "NODES"]).contains(&announced);
        // A server that is a cluster by itself knows no address of its own, so its line has only the port.
        let unknown = format!(" :{port}@");
        wait_until("it announces the port", || {
            is_known() || self.run::<String>(&["CLUSTER", "NODES"]).contains(&unknown)
        });
    }
}

/// Who is who.
impl Cluster {
    /// The URLs of all servers.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        self.any().run(&["CLUSTER", "KEYSLOT", key])
    }

    /// The index of the server that has a slot, according to most servers.
    pub fn master_of(&self, slot: u16) -> usize {
        self.owner(slot).expect("most servers name the same one")
    }

    /// The index of the server that has the slot of a key.
    pub fn master_of_key(&self, key: &str) -> usize {
        self.master_of(self.slot_of(key))
    }

    /// The indexes of the servers that call themselves masters.
    pub fn masters(&self) -> Vec<usize> {
        self.answering().filter(|index| self.is_master(*index)).collect()
    }

    /// Whether this server calls itself a master.
    pub fn is_master(&self, index: usize) -> bool {
        self.view(index).is_some_and(|view| view.iter().any(|known| known.is_self && known.is_master))
    }

    /// A name that begins with this text and has a slot of this server.
    pub fn name_on(&self, index: usize, text: &str) -> String {
        let id = id_of(&self.servers[index]);
        let view = self.view(index).expect("it answers");
        let known = view.iter().find(|known| known.id == id).expect("it knows itself");
        let mut names = (0..).map(|number| format!("{text}:{number}"));
        names.find(|name| known.has(self.slot_of(name))).expect("a name")
    }

    /// The servers that can answer.
    fn answering(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|index| self.servers[*index].answers())
    }

    fn any(&self) -> &Server {
        &self.servers[self.answering().next().expect("a server that runs")]
    }

    /// What this server knows.
    fn view(&self, index: usize) -> Option<Vec<Known>> {
        let lines = self.servers[index].try_run::<String>(&["CLUSTER", "NODES"]).ok()?;
        Some(lines.lines().map(Known::parse).collect())
    }

    fn owner(&self, slot: u16) -> Option<usize> {
        let views: Vec<_> = self.answering().filter_map(|index| self.view(index)).collect();
        let has = |view: &Vec<Known>, port| view.iter().any(|known| known.port == port && known.has(slot));
        let votes = |server: &Server| views.iter().filter(|view| has(view, server.port())).count();
        self.servers.iter().position(|server| votes(server) * 2 > views.len())
    }

    fn do_all_masters_know(&self, slot: u16, owner: usize) -> bool {
        let port = self.servers[owner].port();
        let views: Option<Vec<_>> = self.masters().into_iter().map(|index| self.view(index)).collect();
        let epochs = |view: &[Known]| -> BTreeMap<String, u64> {
            let masters = view.iter().filter(|known| known.is_master);
            masters.map(|known| (known.id.clone(), known.epoch)).collect()
        };
        let knows = |view: &[Known]| view.iter().any(|known| known.port == port && known.has(slot));
        views.is_some_and(|views| views.iter().all(|view| knows(view) && epochs(view) == epochs(&views[0])))
    }

    /// Whether all that run know the same, and everything is well.
    fn agrees(&self) -> bool {
        let view = |index| -> Option<Vec<Known>> {
            let mut view = self.view(index)?;
            view.iter_mut().for_each(|known| known.is_self = false);
            view.sort();
            Some(view)
        };
        let views: Option<Vec<_>> = self.answering().map(view).collect();
        views.is_some_and(|views| {
            views[0].len() == self.servers.len()
                && views[0].iter().all(|known| known.is_well)
                && views.iter().all(|view| *view == views[0])
        }) && self.answering().all(|index| is_ok(&self.servers[index]) && is_up(&self.servers[index]))
    }
}

/// Faults.
impl Cluster {
    /// Kills a server with SIGKILL.
    pub fn kill(&mut self, index: usize) {
        self.servers[index].kill();
    }

    /// Waits until another server than this has the slot and serves it. Returns its index.
    pub fn switched(&self, slot: u16, from: usize) -> usize {
        let serves = |index: usize| self.is_master(index) && is_ok(&self.servers[index]);
        wait_until("another server has the slot", || {
            self.owner(slot).is_some_and(|owner| owner != from && serves(owner))
        });
        self.master_of(slot)
    }

    /// Lets a replica take the place of its master, which agrees. Returns the index of the new master, when the old one has copied
    /// from it.
    pub fn fail_over(&self, slot: u16) -> usize {
        let from = self.master_of(slot);
        let master = id_of(&self.servers[from]);
        let is_replica = |known: &Known| known.is_self && known.master == master;
        let is_it = |index: &usize| self.view(*index).is_some_and(|view| view.iter().any(is_replica));
        // A replica gives up a failover after five seconds, if it could not copy everything or too few masters vote for
        // it. After four tries without success, it takes over without votes.
        let (mut patience, mut tries) = (0, 0);
        wait_until("another server has the slot", || {
            if patience == 0
                && let Some(replica) = self.answering().find(is_it)
            {
                let words = ["CLUSTER", "FAILOVER", "TAKEOVER"];
                let _ = self.servers[replica].try_run::<()>(if tries < 4 { &words[..2] } else { &words });
                (patience, tries) = (600, tries + 1);
            }
            patience = patience.max(1) - 1;
            self.owner(slot).is_some_and(|owner| owner != from)
        });
        wait_until("the old master knows that it is none", || !self.is_master(from));
        let after = self.switched(slot, from);
        // A replica that never copied from its master has data of unlimited age, so it does not ask for votes when this master ends.
        wait_until("the old master has copied from the new one", || is_up(&self.servers[from]));
        after
    }
}

/// Moving slots.
impl Cluster {
    /// Moves a slot with its keys to another master.
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.open_slot(slot, to);
        self.close_slot(slot, to);
    }

    /// Begins to move a slot, and moves no key.
    pub fn open_slot(&self, slot: u16, to: usize) {
        let from = self.master_of(slot);
        assert_ne!(from, to, "it has the slot {slot}");
        let (slot, from, to) = (slot.to_string(), &self.servers[from], &self.servers[to]);
        to.run::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
        from.run::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
    }

    /// Moves the keys that are left in an open slot, and then the slot itself.
    pub fn close_slot(&self, slot: u16, to: usize) {
        let from = self.master_of(slot);
        loop {
            let keys = self.keys_in(from, slot);
            if keys.is_empty() {
                break;
            }
            self.migrate(from, to, &keys);
        }
        let (slot, id) = (slot.to_string(), id_of(&self.servers[to]));
        let others = self.masters().into_iter().filter(|index| ![from, to].contains(index));
        let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &id];
        self.servers[to].run::<()>(&words);
        for index in others.chain([from]) {
            // A master that already heard of the move of its last slot is a replica by now, and refuses the command.
            let _ = self.servers[index].try_run::<()>(&words);
        }
        // Waits until all masters agree. If the next slot moved before, the disagreement could stay, and Redis itself
        // would lose keys. The same can happen if two masters have one epoch: one of them takes the next epoch, perhaps
        // just before it hears that its slot is another's.
        let number = slot.parse().expect("a number");
        wait_until("all masters know", || self.do_all_masters_know(number, to));
    }

    /// Moves one key of an open slot.
    pub fn move_key(&self, key: &str, to: usize) {
        self.migrate(self.master_of_key(key), to, &[key.to_owned()]);
    }

    /// The keys that a server has in a slot, whether the slot is its own or not.
    pub fn keys_in(&self, index: usize, slot: u16) -> Vec<String> {
        self.servers[index].run(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"])
    }

    fn migrate(&self, from: usize, to: usize, keys: &[String]) {
        let port = self.servers[to].public_port().to_string();
        let keys = keys.iter().map(String::as_str);
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"].into_iter().chain(keys);
        self.servers[from].run::<()>(&words.collect::<Vec<_>>());
    }
}

/// Moving slots atomically. Redis can do that from 8.4 on, and Valkey from 9.0 on, each by commands of its own.
impl Cluster {
    /// Moves these slots from one master to another, and waits until all masters know.
    pub fn move_atomically(&self, slots: &RangeInclusive<u16>, to: usize) {
        // A move that fails is begun again. It fails, for example, if the servers take each other for dead.
        let mut patience = 0;
        wait_until("the slots have moved", || {
            if patience == 0 && self.owner(*slots.end()) != Some(to) {
                self.begin_atomic_move(slots, to);
                patience = 600;
            }
            patience -= 1;
            self.do_all_masters_know(*slots.end(), to)
        });
    }

    /// Begins to move these slots, and does not wait.
    pub fn begin_atomic_move(&self, slots: &RangeInclusive<u16>, to: usize) {
        let (from, id) = (self.master_of(*slots.end()), id_of(&self.servers[to]));
        let [first, last] = [slots.start(), slots.end()].map(u16::to_string);
        let valkey = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", &id];
        let redis = ["CLUSTER", "MIGRATION", "IMPORT", &first, &last];
        let (server, words) = if *IS_VALKEY { (from, &valkey[..]) } else { (to, &redis[..]) };
        let begun = self.servers[server].try_run::<Value>(words);
        begun.unwrap_or_else(|error| panic!("this server moves no slots atomically: {error}"));
    }
}

/// What is left.
impl Cluster {
    /// All keys of the masters, except the token counters.
    pub fn keys(&self) -> Vec<String> {
        self.of_masters(Commands::keys)
    }

    /// The keys of what clients recorded of their holds and waits.
    pub fn records(&self) -> Vec<String> {
        self.of_masters(Commands::records)
    }

    /// All channels that have a subscriber on a master.
    pub fn channels(&self) -> Vec<String> {
        self.of_masters(Commands::channels)
    }

    /// How many errors with this code the servers that run answered since they started.
    pub fn errors(&self, code: &str) -> u64 {
        self.answering().map(|index| self.servers[index].errors(code)).sum()
    }

    fn of_masters(&self, find: impl Fn(&Commands) -> Vec<String>) -> Vec<String> {
        self.masters().into_iter().flat_map(|index| find(&self.servers[index])).collect()
    }
}

fn node(node_timeout: Duration, args: &[&str], certificates: Option<&Certificates>) -> Server {
    let timeout = node_timeout.as_millis().to_string();
    // With this delay of zero, a replica is copied at once, and not after five seconds. Tests stop a move with DEBUG.
    let usual = ["--cluster-node-timeout", &timeout, "--repl-diskless-sync-delay", "0"];
    let usual = [&usual[..], &["--enable-debug-command", "yes"]].concat();
    Server::of_cluster(&[&usual, args].concat(), certificates)
}

/// The id that a server gets. Other clusters on this machine have other ids.
fn id(server: &Server) -> String {
    format!("{:08x}{:032x}", std::process::id(), server.bus_port())
}

/// What the file says about the shard of a master, to servers that know shards. Redis 8 ends with a failed assertion at the first
/// message in the cluster if its file names none.
fn shard(master: &str) -> String {
    if *RELEASE >= [7, 2] { format!(",,shard-id={master}") } else { String::new() }
}

/// The id that a server has.
fn id_of(server: &Server) -> String {
    server.run(&["CLUSTER", "MYID"])
}

fn is_ok(server: &Server) -> bool {
    let info = server.try_run::<String>(&["CLUSTER", "INFO"]);
    info.is_ok_and(|info| info.contains("cluster_state:ok"))
}

/// Whether it is a master, or a replica that has copied from its master and is connected to it.
fn is_up(server: &Server) -> bool {
    let info: String = server.run(&["INFO", "replication"]);
    info.contains("role:master") || info.contains("master_link_status:up")
}

fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    turn::wait_until(LIMIT, what, is_so);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_cluster_of_one_starts_at_once() {
        let start = Instant::now();
        let server = Server::cluster_of_one();
        println!("after {:?}", start.elapsed());
        server.run::<()>(&["SET", "a", "1"]);
        assert_eq!(server.keys(), ["a"]);
    }

    #[test]
    fn a_cluster_loses_no_key_when_slots_move_and_a_master_ends() {
        let start = Instant::now();
        let mut group = Cluster::start(3, 1);
        println!("after {:?}", start.elapsed());
        let slot = group.slot_of("a");
        let first = group.master_of(slot);
        group.servers[first].run::<()>(&["SET", "a", "1"]);
        let added = group.add_master();
        // so that `added` has a slot: a master without one becomes a replica
        group.move_slot(slot ^ 1, added);
        group.open_slot(slot, added);
        assert!(group.servers[first].try_run::<()>(&["GET", "{a}"]).is_err() && group.errors("ASK") == 1);
        group.close_slot(slot, added);
        assert_eq!((group.master_of(slot), group.keys_in(added, slot)), (added, vec!["a".to_owned()]));
        group.move_slot(slot, first);
        // The old master can continue from nothing that it has, so it copies everything from the new one, and not at once.
        group.servers[first].run::<()>(&["DEBUG", "CHANGE-REPL-ID"]);
        for server in &group.servers {
            server.run::<()>(&[
                "CONFIG",
                "SET",
                "repl-diskless-sync",
                "yes",
                "repl-diskless-sync-delay",
                "2",
            ]);
        }
        let second = group.fail_over(slot);
        assert_ne!(second, first);
        assert_eq!(group.keys(), ["a"]);
        group.kill(second);
        assert_eq!(group.switched(slot, second), first);
        assert_eq!(group.keys(), ["a"]);
    }
}
