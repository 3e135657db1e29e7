//! What a topology and its connections tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// What a topology and the connections to its servers tell each other.
pub(crate) struct TopologyLink {
    reports: Notify,
    connections: AtomicU64,
    is_sharded: AtomicBool,
    can_switch: bool,
}

impl TopologyLink {
    pub(crate) fn new(can_switch: bool) -> Self {
        let (reports, connections) = (Notify::new(), AtomicU64::new(0));
        Self { reports, connections, is_sharded: AtomicBool::new(false), can_switch }
    }

    /// Whether another server can become the master, perhaps without the last writes.
    pub(crate) const fn can_switch(&self) -> bool {
        self.can_switch
    }

    /// Reports that something is wrong, so perhaps another server is the master now.
    pub(crate) fn report(&self) {
        self.reports.notify_one();
    }

    /// Waits for a report. A report while nobody waits counts, too.
    pub(crate) async fn reported(&self) {
        self.reports.notified().await;
    }

    /// How many connections were made so far, to all of these servers.
    pub(crate) fn connections_made(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts a connection. Returns its number, which no other connection of this client has or had.
    pub(crate) fn count_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether messages stay in their slots.
    pub(crate) fn is_sharded(&self) -> bool {
        self.is_sharded.load(Ordering::Relaxed)
    }

    /// From now on, messages stay in their slots. Known before the first message.
    pub(crate) fn shard_messages(&self) {
        self.is_sharded.store(true, Ordering::Relaxed);
    }
}
