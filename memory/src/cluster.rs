//! A node of a cluster: what it knows of the slots, and which commands it runs, redirects or refuses.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::keyspace::Keyspace;
use crate::value::Bytes;
use crate::wire::{Outcome, Reply};

pub(crate) const SLOTS: u16 = 16_384;

/// The id of a node.
pub(crate) type NodeId = Arc<str>;

/// What a node knows of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    nodes: BTreeMap<NodeId, Known>,
    /// Who has a slot and those after it, up to the next one in the map.
    owners: BTreeMap<u16, NodeId>,
    /// The slots that it gives to another node, or takes from one, key by key.
    migrating: BTreeMap<u16, NodeId>,
    importing: BTreeMap<u16, NodeId>,
    /// It knows too few other nodes, or a slot has no master.
    pub(crate) is_down: bool,
    pub(crate) kind: Kind,
    /// The replica that this sentinel makes the master.
    pub(crate) promotes: Option<NodeId>,
    /// The slots that it, or its master, had until now.
    lost: Vec<RangeInclusive<u16>>,
}

/// What a node is for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    NodeOfCluster,
    /// A single server, as a proxy in front of a cluster says.
    BehindProxy,
    /// A master or a replica that sentinels watch. It has no slots.
    Watched,
    Sentinel,
}

/// The name by which sentinels know a master.
const MASTER: &str = "mymaster";

/// What a node knows of another one, or of itself.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) port: u16,
    /// The number of its claim to its slots.
    pub(crate) epoch: u64,
    /// `None`: it is a master.
    pub(crate) master: Option<NodeId>,
}

/// How a command reaches a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Another node sent the client here, for one command.
    pub(crate) is_asking: bool,
    /// It is about a channel, which is no key.
    pub(crate) is_channel: bool,
}

/// Why a node runs no command on these keys.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    CrossSlot,
    Down,
    Elsewhere(String),
    TryAgain,
}

const HOST: &str = "127.0.0.1";

impl Node {
    /// The node with this id, of a cluster in which these nodes have these slots.
    pub(crate) fn new(id: NodeId, nodes: BTreeMap<NodeId, Known>, owners: BTreeMap<u16, NodeId>) -> Self {
        let (migrating, importing) = (BTreeMap::new(), BTreeMap::new());
        Self {
            id,
            nodes,
            owners,
            migrating,
            importing,
            is_down: false,
            kind: Kind::NodeOfCluster,
            promotes: None,
            lost: Vec::new(),
        }
    }

    pub(crate) fn is_master(&self) -> bool {
        self.own().master.is_none()
    }

    fn own(&self) -> &Known {
        &self.nodes[&self.id]
    }

    pub(crate) fn has(&self, slot: u16) -> bool {
        *self.owner(slot) == self.id
    }

    /// The port of the node that has a slot.
    pub(crate) fn port_of(&self, slot: u16) -> u16 {
        self.nodes[self.owner(slot)].port
    }

    fn owner(&self, slot: u16) -> &NodeId {
        self.owners.range(..=slot).next_back().expect("each slot has an owner").1
    }

    /// Whose slots it has: its own, or those of its master.
    fn shard(&self) -> &NodeId {
        self.own().master.as_ref().unwrap_or(&self.id)
    }

    /// Another node has these slots, which had one owner.
    fn set_owner(&mut self, slots: RangeInclusive<u16>, owner: NodeId) {
        let (first, next) = (*slots.start(), slots.end() + 1);
        let before = Arc::clone(self.owner(first));
        if before == owner {
            return;
        }
        if before == *self.shard() {
            self.lost.push(slots);
        }
        if next < SLOTS && !self.owners.contains_key(&next) {
            self.owners.insert(next, before);
        }
        self.owners.retain(|slot, _| *slot <= first || *slot >= next);
        self.owners.insert(first, owner);
    }

    /// The slots that it, or its master, had and does not have any more.
    pub(crate) fn take_lost(&mut self) -> Vec<RangeInclusive<u16>> {
        std::mem::take(&mut self.lost)
    }

    /// The first and the last slot of each range, and who has it.
    fn ranges(&self) -> Vec<(u16, u16, &NodeId)> {
        let mut ranges: Vec<(u16, u16, &NodeId)> = Vec::new();
        let ends = self.owners.keys().skip(1).chain([&SLOTS]).map(|next| next - 1);
        for ((first, owner), last) in self.owners.iter().zip(ends) {
            match ranges.last_mut() {
                Some(before) if before.2 == owner => before.1 = last,
                _ => ranges.push((*first, last, owner)),
            }
        }
        ranges
    }

    /// Whether the node runs a command on these keys. `Ok`: it does, and this is their slot.
    pub(crate) fn check(
        &self,
        keys: &[Bytes],
        asked: Asked,
        keyspace: &mut Keyspace,
    ) -> Result<Option<u16>, Refusal> {
        let Some(first) = keys.first() else { return Ok(None) };
        if matches!(self.kind, Kind::Watched | Kind::Sentinel) {
            return Ok(None);
        }
        let slot = slot(first);
        if keys.iter().any(|key| self::slot(key) != slot) {
            return Err(Refusal::CrossSlot);
        }
        if self.is_down && !asked.is_channel {
            return Err(Refusal::Down);
        }
        let owner = self.owner(slot);
        let (migrating, importing) = (self.migrating.get(&slot), self.importing.get(&slot));
        let missing = match migrating.or(importing) {
            Some(_) if !asked.is_channel => keys.iter().filter(|key| !keyspace.exists(key)).count(),
            _ => 0,
        };
        if let Some(target) = migrating
            && *owner == self.id
            && missing > 0
        {
            return Err(if missing < keys.len() {
                Refusal::TryAgain
            } else {
                Refusal::Elsewhere(format!("ASK {slot} {}", self.address(target)))
            });
        }
        if *owner == self.id {
            return Ok(Some(slot));
        }
        // A replica also serves the channels of its master.
        if asked.is_channel && owner == self.shard() {
            return Ok(Some(slot));
        }
        if importing.is_some() && asked.is_asking {
            let has_several = keys.iter().any(|key| key != first);
            return if has_several && missing > 0 { Err(Refusal::TryAgain) } else { Ok(Some(slot)) };
        }
        Err(Refusal::Elsewhere(format!("MOVED {slot} {}", self.address(owner))))
    }

    fn address(&self, node: &NodeId) -> String {
        format!("{HOST}:{}", self.nodes[node].port)
    }

    /// What the node says about the cluster.
    pub(crate) fn command(&mut self, words: &[Bytes], keyspace: &Keyspace) -> Option<Outcome> {
        let text =
            |index: usize| words.get(index).map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
        Some(match (&*text(1).to_ascii_lowercase(), words.len()) {
            ("keyslot", 3) => Ok(Reply::Int(slot(&words[2]).into())),
            ("myid", 2) => Ok(Reply::bulk(&*self.id)),
            ("nodes", 2) => Ok(Reply::Verbatim(self.lines())),
            ("slots", 2) => Ok(self.slots()),
            ("setslot", 4..) if !self.is_master() => {
                Err("ERR Please use SETSLOT only with masters.".to_owned())
            }
            ("setslot", 4..) => {
                let slot = text(2).parse().ok().filter(|slot| *slot < SLOTS);
                let slot = slot.ok_or_else(|| "ERR Invalid or out of range slot".to_owned());
                let set = |slot| self.set_slot(slot, &text(3).to_ascii_lowercase(), &text(4), keyspace);
                slot.and_then(set).map(|()| Reply::ok())
            }
            _ => return None,
        })
    }

    fn set_slot(&mut self, slot: u16, what: &str, id: &str, keyspace: &Keyspace) -> Result<(), String> {
        let is_mine = self.has(slot);
        let has_keys = || keyspace.keys().any(|key| self::slot(key) == slot);
        let known = self.nodes.get_key_value(id).map(|(id, _)| Arc::clone(id));
        let node = known.ok_or_else(|| format!("ERR I don't know about node {id}"));
        match what {
            "migrating" if !is_mine => return Err(format!("ERR I'm not the owner of hash slot {slot}")),
            "migrating" => drop(self.migrating.insert(slot, node?)),
            "importing" if is_mine => return Err(format!("ERR I'm already the owner of hash slot {slot}")),
            "importing" => drop(self.importing.insert(slot, node?)),
            "stable" => {
                self.migrating.remove(&slot);
                self.importing.remove(&slot);
            }
            "node" => {
                let node = node.map_err(|_| format!("ERR Unknown node {id}"))?;
                if is_mine && node != self.id && has_keys() {
                    return Err(format!(
                        "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
                    ));
                }
                if !has_keys() {
                    self.migrating.remove(&slot);
                }
                if node == self.id && self.importing.remove(&slot).is_some() {
                    self.claim_anew();
                }
                self.set_owner(slot..=slot, node);
            }
            _ => {
                return Err(
                    "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP".to_owned()
                );
            }
        }
        Ok(())
    }

    /// Its claim is the latest of all that it knows.
    fn claim_anew(&mut self) {
        let latest = self.latest_epoch();
        let own = self.nodes.get_mut(&self.id).expect("it knows itself");
        if own.epoch < latest {
            own.epoch = latest + 1;
        }
    }

    /// It takes the place of its master. `epoch`: most masters agreed to this number.
    pub(crate) fn take_over(&mut self, epoch: u64) {
        let id = Arc::clone(&self.id);
        for (first, last) in self.slots_of(&Arc::clone(self.shard())) {
            self.set_owner(first..=last, Arc::clone(&id));
        }
        let own = self.nodes.get_mut(&id).expect("it knows itself");
        (own.epoch, own.master) = (epoch, None);
    }

    fn slots_of(&self, node: &NodeId) -> Vec<(u16, u16)> {
        let ranges = self.ranges().into_iter().filter(|(_, _, owner)| *owner == node);
        ranges.map(|(first, last, _)| (first, last)).collect()
    }

    /// The highest number of a claim that it knows.
    pub(crate) fn latest_epoch(&self) -> u64 {
        self.nodes.values().map(|known| known.epoch).max().unwrap_or_default()
    }

    /// It hears what another node says of itself.
    pub(crate) fn hear(&mut self, other: &Self) {
        self.nodes.insert(Arc::clone(&other.id), other.own().clone());
        // If two masters have the same epoch, the one with the smaller id takes the next epoch.
        if self.is_master()
            && other.is_master()
            && self.own().epoch == other.own().epoch
            && self.id < other.id
        {
            let epoch = self.latest_epoch() + 1;
            self.nodes.get_mut(&self.id).expect("it knows itself").epoch = epoch;
        }
        let had_slots = !self.slots_of(self.shard()).is_empty();
        for (first, last) in other.slots_of(&other.id) {
            let inner = self.owners.range(first..=last).map(|(start, _)| *start);
            let starts: Vec<u16> = [first].into_iter().chain(inner.filter(|start| *start != first)).collect();
            let ends: Vec<u16> = starts.iter().skip(1).map(|next| next - 1).chain([last]).collect();
            for (start, end) in starts.into_iter().zip(ends) {
                let is_later = self.nodes[self.owner(start)].epoch < other.own().epoch;
                // A slot that this node imports changes its owner only by `CLUSTER SETSLOT`.
                if is_later && self.importing.range(start..=end).next().is_none() {
                    self.set_owner(start..=end, Arc::clone(&other.id));
                    self.migrating.retain(|slot, _| !(start..=end).contains(slot));
                }
            }
        }
        if self.promotes.as_ref() == Some(self.owner(0)) {
            self.promotes = None;
        }
        // A master that lost its last slot becomes a replica of the node that has the slot now. A replica of such a
        // master follows the slots in the same way.
        if had_slots && self.slots_of(self.shard()).is_empty() {
            let own = self.nodes.get_mut(&self.id).expect("it knows itself");
            own.master = Some(Arc::clone(&other.id));
            self.migrating.clear();
            self.importing.clear();
        }
    }

    fn lines(&self) -> String {
        let ranges = self.ranges();
        let mut lines = String::new();
        for (id, known) in &self.nodes {
            let me = if *id == self.id { "myself," } else { "" };
            let role = if known.master.is_some() { "slave" } else { "master" };
            let epoch = known.master.as_ref().map_or(known.epoch, |master| self.nodes[master].epoch);
            let master = known.master.as_deref().unwrap_or("-");
            let at = format!("{}@{}", self.address(id), known.port + 10_000);
            lines += &format!("{id} {at} {me}{role} {master} 0 0 {epoch} connected");
            for (first, last, _) in ranges.iter().filter(|(_, _, owner)| *owner == id) {
                lines += &if first == last { format!(" {first}") } else { format!(" {first}-{last}") };
            }
            if *id == self.id {
                self.migrating.iter().for_each(|(slot, to)| lines += &format!(" [{slot}->-{to}]"));
                self.importing.iter().for_each(|(slot, from)| lines += &format!(" [{slot}-<-{from}]"));
            }
            lines.push('\n');
        }
        lines
    }

    /// Runs a command of sentinels. `None`: it knows none with this name.
    pub(crate) fn sentinel(&self, words: &[Bytes]) -> Option<Outcome> {
        let [_, command, name] = words else { return None };
        let flag = |word: &'static str, is_set: bool| if is_set { word } else { "" };
        let facts = |known: &Known, flags: String| {
            let facts = [
                ("name", MASTER.to_owned()),
                ("ip", HOST.to_owned()),
                ("port", known.port.to_string()),
                ("flags", flags),
                ("config-epoch", known.epoch.to_string()),
            ];
            Reply::Map(
                facts.into_iter().flat_map(|(name, fact)| [name.to_owned(), fact]).map(Reply::bulk).collect(),
            )
        };
        let master = self.owner(0);
        let replicas = self.nodes.iter().filter(|(_, known)| known.master.as_ref() == Some(master));
        let replica = |(id, known)| {
            facts(known, format!("slave{}", flag(",promoted", self.promotes.as_ref() == Some(id))))
        };
        let reply = match &*command.to_ascii_lowercase() {
            b"master" => {
                let flags = format!("master{}", flag(",failover_in_progress", self.promotes.is_some()));
                facts(&self.nodes[master], flags)
            }
            b"replicas" => Reply::List(replicas.map(replica).collect()),
            _ => return None,
        };
        let is_known = **name == *MASTER.as_bytes();
        Some(if is_known { Ok(reply) } else { Err("ERR No such master with that name".to_owned()) })
    }

    fn slots(&self) -> Reply {
        let server = |id: &NodeId| {
            let port = Reply::Int(self.nodes[id].port.into());
            Reply::List(vec![Reply::bulk(HOST), port, Reply::bulk(&**id), Reply::Map(Vec::new())])
        };
        let range = |(first, last, owner): (u16, u16, &NodeId)| {
            let replicas = self.nodes.iter().filter(|(_, known)| known.master.as_ref() == Some(owner));
            let servers = [owner].into_iter().chain(replicas.map(|(id, _)| id)).map(server);
            let slots = [first, last].map(|slot| Reply::Int(slot.into()));
            Reply::List(slots.into_iter().chain(servers).collect())
        };
        Reply::List(self.ranges().into_iter().map(range).collect())
    }
}

impl Refusal {
    /// The error of a command of a client.
    pub(crate) fn of_command(self) -> String {
        match self {
            Self::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot".to_owned(),
            Self::Down => "CLUSTERDOWN The cluster is down".to_owned(),
            Self::Elsewhere(redirect) => redirect,
            Self::TryAgain => "TRYAGAIN Multiple keys request during rehashing of slot".to_owned(),
        }
    }

    /// The error of a command of a script.
    pub(crate) fn in_script(self) -> String {
        let problem = match self {
            Self::Down => "execute a command while the cluster is down",
            _ => "access a non local key in a cluster node",
        };
        format!("ERR Script attempted to {problem}")
    }
}

/// The slot of a key or a channel: of what is between the first `{` and the next `}`, if there is something.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then_some(&rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_the_same_tag_have_one_slot() {
        // From the specification of Redis Cluster.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
    }
}
