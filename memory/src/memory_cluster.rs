//! Several servers as the nodes of a cluster. For simulations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Kind, Known, Node, NodeId, SLOTS, slot};
use crate::server::MemoryServer;
use crate::sync::lock;
use crate::value::Bytes;

/// The port of the first node.
const FIRST_PORT: u16 = 7_000;

/// A cluster. Nothing happens in it by itself: no node hears of another one, and none takes the place of its master, unless it is told
/// to. Slots are moved as in Redis, by `CLUSTER SETSLOT`.
///
/// ```
/// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
/// let cluster = MemoryCluster::new(3, 1, |_| MemoryServer::new());
/// assert_eq!(cluster.nodes().len(), 6);
/// ```
#[doc(hidden)]
#[derive(Debug)]
pub struct MemoryCluster {
    nodes: Vec<MemoryServer>,
}

impl MemoryCluster {
    /// Makes these servers the nodes of a cluster: at first the masters, then their replicas in the same order. Their ports begin
    /// with 7000.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// let cluster = MemoryCluster::new(1, 0, |_| MemoryServer::new());
    /// assert_eq!(cluster.nodes()[0].execute(&["CLUSTER", "KEYSLOT", "a"]), b":15495\r\n");
    /// ```
    #[doc(hidden)]
    pub fn new(masters: usize, replicas_of_each: usize, server: impl FnMut(usize) -> MemoryServer) -> Self {
        Self::with(masters, masters * replicas_of_each, 0, server)
    }

    /// Makes these servers a master, its replica, and three sentinels that watch them, in this order. Clients find the master as
    /// `mymaster`.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// let watched = MemoryCluster::with_sentinels(|_| MemoryServer::new());
    /// let reply = watched.nodes()[2].execute(&["SENTINEL", "MASTER", "mymaster"]);
    /// assert!(String::from_utf8_lossy(&reply).contains("7000"));
    /// ```
    #[doc(hidden)]
    pub fn with_sentinels(server: impl FnMut(usize) -> MemoryServer) -> Self {
        Self::with(1, 1, 3, server)
    }

    fn with(
        masters: usize,
        replicas: usize,
        sentinels: usize,
        server: impl FnMut(usize) -> MemoryServer,
    ) -> Self {
        let count = masters + replicas + sentinels;
        let id = || -> NodeId { format!("{:032x}{:08x}", fastrand::u128(..), fastrand::u32(..)).into() };
        let ids: Vec<NodeId> = (0..count).map(|_| id()).collect();
        let known = |index: usize| Known {
            port: FIRST_PORT + u16::try_from(index).expect("few nodes"),
            epoch: if index < masters { index as u64 + 1 } else { 0 },
            master: (masters..masters + replicas).contains(&index).then(|| Arc::clone(&ids[index % masters])),
        };
        let all: BTreeMap<_, _> = ids.iter().cloned().zip((0..count).map(known)).collect();
        let first = |index: usize| u16::try_from(usize::from(SLOTS) * index / masters).expect("a slot");
        let owners: BTreeMap<_, _> =
            (0..masters).map(|index| (first(index), Arc::clone(&ids[index]))).collect();
        let nodes: Vec<_> = (0..count).map(server).collect();
        for (index, (server, id)) in nodes.iter().zip(ids).enumerate() {
            let mut node = Node::new(id, all.clone(), owners.clone());
            if sentinels > 0 {
                node.kind = if index < masters + replicas { Kind::Watched } else { Kind::Sentinel };
            }
            lock(&server.shared.state).data.node = Some(node);
        }
        let cluster = Self { nodes };
        (0..masters).for_each(|master| cluster.set_replicas(master, replicas / masters));
        cluster
    }

    /// The nodes, in the order of their ports.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// assert_eq!(MemoryCluster::new(3, 0, |_| MemoryServer::new()).nodes().len(), 3);
    /// ```
    #[doc(hidden)]
    pub fn nodes(&self) -> &[MemoryServer] {
        &self.nodes
    }

    /// The node with this port.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// assert_eq!(MemoryCluster::new(3, 0, |_| MemoryServer::new()).index_of(7_001), 1);
    /// ```
    #[doc(hidden)]
    pub fn index_of(&self, port: u16) -> usize {
        usize::from(port - FIRST_PORT)
    }

    /// The slot of a key.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryCluster;
    /// assert_eq!(MemoryCluster::slot_of("a"), 15_495);
    /// ```
    #[doc(hidden)]
    pub fn slot_of(key: &str) -> u16 {
        slot(key.as_bytes())
    }

    /// The master of a slot, as this node knows it.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// assert_eq!(MemoryCluster::new(2, 0, |_| MemoryServer::new()).master_of(15_495, 0), 1);
    /// ```
    #[doc(hidden)]
    pub fn master_of(&self, slot: u16, asked: usize) -> usize {
        self.index_of(self.see(asked, |node| node.port_of(slot)))
    }

    /// Whether a node calls itself a master.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// assert!(!MemoryCluster::new(1, 1, |_| MemoryServer::new()).is_master(1));
    /// ```
    #[doc(hidden)]
    pub fn is_master(&self, index: usize) -> bool {
        self.see(index, |node| node.is_master())
    }

    /// The id of a node.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// assert_eq!(MemoryCluster::new(1, 0, |_| MemoryServer::new()).id(0).len(), 40);
    /// ```
    #[doc(hidden)]
    pub fn id(&self, index: usize) -> Arc<str> {
        self.see(index, |node| Arc::clone(&node.id))
    }

    /// Begins to move a slot, and moves no key.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// MemoryCluster::new(3, 0, |_| MemoryServer::new()).open_slot(0, 0, 1);
    /// ```
    #[doc(hidden)]
    pub fn open_slot(&self, slot: u16, from: usize, to: usize) {
        self.set_slot(to, slot, "IMPORTING", from);
        self.set_slot(from, slot, "MIGRATING", to);
    }

    /// Ends the move of a slot whose keys have moved. Only its new master knows it yet.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// let cluster = MemoryCluster::new(3, 0, |_| MemoryServer::new());
    /// cluster.open_slot(0, 0, 1);
    /// cluster.close_slot(0, 1);
    /// assert_eq!((cluster.master_of(0, 1), cluster.master_of(0, 2)), (1, 0));
    /// ```
    #[doc(hidden)]
    pub fn close_slot(&self, slot: u16, to: usize) {
        self.set_slot(to, slot, "NODE", to);
    }

    fn set_slot(&self, at: usize, slot: u16, what: &str, other: usize) {
        let words = ["CLUSTER", "SETSLOT", &slot.to_string(), what, &self.id(other)];
        let reply = self.nodes[at].execute(&words);
        assert_eq!(reply, b"+OK\r\n", "{words:?} {}", String::from_utf8_lossy(&reply));
    }

    /// One node hears what another one says of itself.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// MemoryCluster::new(3, 0, |_| MemoryServer::new()).tell(0, 1);
    /// ```
    #[doc(hidden)]
    pub fn tell(&self, from: usize, to: usize) {
        let said = self.see(from, |node| node.clone());
        let (kind, before, after, is_demoted) = self.see(to, |node| {
            let (before, was_master) = (node.port_of(0), node.is_master());
            node.hear(&said);
            (node.kind, before, node.port_of(0), was_master && !node.is_master())
        });
        lock(&self.nodes[to].shared.state).data.leave_slots();
        if is_demoted {
            self.set_replicas(to, 0);
        }
        if kind == Kind::Sentinel && before != after {
            let facts = format!("mymaster 127.0.0.1 {before} 127.0.0.1 {after}");
            self.nodes[to].execute(&["PUBLISH", "+switch-master", &facts]);
        }
    }

    /// A sentinel says that it is about to make this replica the master.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// let watched = MemoryCluster::with_sentinels(|_| MemoryServer::new());
    /// watched.promotes(2, 1);
    /// let reply = watched.nodes()[2].execute(&["SENTINEL", "MASTER", "mymaster"]);
    /// assert!(String::from_utf8_lossy(&reply).contains("failover_in_progress"));
    /// ```
    #[doc(hidden)]
    pub fn promotes(&self, sentinel: usize, replica: usize) {
        let id = self.id(replica);
        self.see(sentinel, |node| node.promotes = Some(id));
        self.nodes[sentinel].execute(&["PUBLISH", "+failover-state-send-slaveof-noone", "mymaster"]);
    }

    /// So many replicas follow a node from now on, and have what it writes. `WAIT` tells how many.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// let cluster = MemoryCluster::new(1, 1, |_| MemoryServer::new());
    /// assert_eq!(cluster.nodes()[0].execute(&["WAIT", "1", "0"]), b":1\r\n");
    /// cluster.set_replicas(0, 0);
    /// assert_eq!(cluster.nodes()[0].execute(&["WAIT", "1", "1"]), b":0\r\n");
    /// ```
    #[doc(hidden)]
    pub fn set_replicas(&self, index: usize, count: usize) {
        lock(&self.nodes[index].shared.state).set_replicas(count);
        // `change` wakes the commands that wait for replicas, so that they count the replicas again.
        self.nodes[index].change(|_| {});
    }

    /// A node says that it is a single server, as a proxy in front of a cluster does.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// let cluster = MemoryCluster::new(1, 0, |_| MemoryServer::new());
    /// cluster.hide(0);
    /// let reply = cluster.nodes()[0].execute(&["HELLO", "2"]);
    /// assert!(String::from_utf8_lossy(&reply).contains("standalone"));
    /// ```
    #[doc(hidden)]
    pub fn hide(&self, index: usize) {
        self.see(index, |node| node.kind = Kind::BehindProxy);
    }

    /// Moves one key, as `MIGRATE` does. Returns whether there was such a key.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// assert!(!MemoryCluster::new(3, 0, |_| MemoryServer::new()).move_key("a", 0, 1));
    /// ```
    #[doc(hidden)]
    pub fn move_key(&self, key: &str, from: usize, to: usize) -> bool {
        let key: Bytes = key.as_bytes().into();
        let taken = lock(&self.nodes[from].shared.state).data.keyspace.take(&key);
        let is_there = taken.is_some();
        if let Some(entry) = taken {
            lock(&self.nodes[to].shared.state).data.keyspace.put(key, entry);
        }
        is_there
    }

    /// A replica takes the place of its master, with the data that this had a while ago, or when `WAIT` last said that replicas have
    /// it. The others do not know it yet, and nobody follows it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// let cluster = MemoryCluster::new(1, 1, |_| MemoryServer::new());
    /// cluster.take_over(0, 1, Duration::ZERO);
    /// assert!(cluster.is_master(0) && cluster.is_master(1));
    /// ```
    #[doc(hidden)]
    pub fn take_over(&self, master: usize, replica: usize, age: Duration) {
        let entries = lock(&self.nodes[master].shared.state).entries_as_of(age);
        let epochs = (0..self.nodes.len()).map(|index| self.see(index, |node| node.latest_epoch()));
        let epoch = epochs.max().unwrap_or_default() + 1;
        self.see(replica, |node| node.take_over(epoch));
        let mut state = lock(&self.nodes[replica].shared.state);
        state.data.leave_slots();
        state.data.take_data(entries);
    }

    /// A node knows that too few others are there, or that a slot has no master, and runs nothing. Or it knows that all is well.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryCluster, MemoryServer};
    /// MemoryCluster::new(3, 0, |_| MemoryServer::new()).set_down(0, true);
    /// ```
    #[doc(hidden)]
    pub fn set_down(&self, index: usize, is_down: bool) {
        self.see(index, |node| node.is_down = is_down);
    }

    fn see<R>(&self, index: usize, see: impl FnOnce(&mut Node) -> R) -> R {
        let mut state = lock(&self.nodes[index].shared.state);
        see(state.data.node.as_mut().expect("it is a node"))
    }
}
