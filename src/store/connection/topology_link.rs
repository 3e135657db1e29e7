//! What a topology and its connections tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use redis::{PushInfo, PushKind};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::client_name::ClientName;
use crate::base::sync::{Watched, lock};
use crate::telemetry::Commands;

/// What a topology and the connections to its servers tell each other.
pub(crate) struct TopologyLink {
    reports: Notify,
    connections: AtomicU64,
    is_sharded: AtomicBool,
    /// Whether another server can become the master, perhaps without the last writes.
    pub(crate) can_switch: bool,
    /// Whether the keys of a command have to be in one slot.
    pub(crate) has_slots: bool,
    /// What the connections are called.
    pub(crate) name: Arc<ClientName>,
    pub(crate) upkeep: Upkeep,
    /// Counts the commands to all servers. Made once and with no mutex held, because it calls the recorder of the user.
    pub(super) commands: Commands,
    /// A connection for renewals was made that tells which keys others change.
    has_told: AtomicBool,
    /// The last connection for renewals tells of no changes.
    refuses_changes: AtomicBool,
    /// Whether a server refuses to tell was reported.
    reports_refusal: AtomicBool,
    /// Counts how often the connections to a single server had to be made anew.
    generation: AtomicU64,
    /// The generation of the latest connection for commands.
    pub(crate) reached: Watched,
    /// The run of the server that the connections of the latest generation reached, and this generation.
    run: Mutex<Option<(u64, RunId)>>,
}

/// What the connections for renewals need: the runtime that drives them, and where they put what servers push.
pub(crate) struct Upkeep {
    pub(crate) runtime: Handle,
    pub(crate) changes: UnboundedSender<PushInfo>,
}

#[cfg(test)]
impl Upkeep {
    /// For tests that open no connection for renewals.
    pub(crate) fn unused() -> Self {
        Self { runtime: Handle::current(), changes: tokio::sync::mpsc::unbounded_channel().0 }
    }
}

/// What tells servers apart: the id of a server's run, which ends with its process.
pub(crate) type RunId = Box<str>;

impl TopologyLink {
    pub(crate) fn new(can_switch: bool, has_slots: bool, name: &Arc<ClientName>, upkeep: Upkeep) -> Self {
        Self {
            reports: Notify::new(),
            connections: AtomicU64::new(0),
            is_sharded: AtomicBool::new(false),
            can_switch,
            has_slots,
            name: Arc::clone(name),
            upkeep,
            commands: Commands::new(),
            has_told: AtomicBool::new(false),
            refuses_changes: AtomicBool::new(false),
            reports_refusal: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            reached: Watched::default(),
            run: Mutex::default(),
        }
    }

    /// Whether a server tells which keys others change, as far as is known: the first renewal or look connects.
    pub(crate) fn tells_changes(&self) -> bool {
        !self.refuses_changes.load(Ordering::Relaxed)
    }

    /// A new connection for renewals tells which keys others change. Nobody told while there was none.
    pub(crate) fn told_of_changes(&self) {
        self.refuses_changes.store(false, Ordering::Relaxed);
        if self.has_told.swap(true, Ordering::Relaxed) {
            let _ = self.upkeep.changes.send(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        }
    }

    /// A server refuses to tell which keys others change. Returns whether this is the first time.
    pub(crate) fn refuses_changes(&self) -> bool {
        self.refuses_changes.store(true, Ordering::Relaxed);
        !self.reports_refusal.swap(true, Ordering::Relaxed)
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

    /// The generation of a connection that is made now. Connections of earlier generations are no longer used.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Ends a generation: one of its connections was lost, or leads to a replica. If nobody tells which server is the
    /// master, the name of the server perhaps leads to another one by now. So all connections of the generation are
    /// made anew, with a new look-up of the name.
    pub(crate) fn ends(&self, generation: u64) {
        if !self.can_switch {
            let next = generation + 1;
            let _ = self.generation.compare_exchange(generation, next, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Records a new connection for commands. It leads to a master, whose run has this id if it is known. Returns the
    /// generation of the connection: if the other connections lead to another server, a new generation begins.
    pub(crate) fn reaches(&self, mut generation: u64, run: Option<RunId>) -> u64 {
        let mut known = lock(&self.run);
        if let Some(run) = run {
            if known.as_ref().is_some_and(|(at, other)| *at == generation && *other != run) {
                self.ends(generation);
                generation += 1;
            }
            if known.as_ref().is_none_or(|(at, _)| *at <= generation) {
                *known = Some((generation, run));
            }
        }
        drop(known);
        if generation > self.reached.get() {
            // `max`: another connection can have reached a later generation since the comparison.
            self.reached.modify(|reached| generation.max(reached));
        }
        generation
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_move_of_a_name_begins_a_generation() {
        let link = TopologyLink::new(false, false, &Arc::default(), Upkeep::unused());
        for (before, run, after) in [(0, "a", 0), (0, "b", 1), (1, "b", 1), (1, "c", 2), (1, "c", 1)] {
            assert_eq!(link.reaches(before, Some(run.into())), after);
        }
        assert_eq!((link.generation(), link.reached.get()), (2, 2));
    }
}
