//! The records of what this client holds, and of what it waits for, for those who look at locks.
//!
//! A hold is recorded after its first renewal, and a wait after a second. A record is removed when its hold or wait ends. The task collects changes for 200 ms, and sends up to 500 of them with one command. While there are records under a key,
//! one command every 30 s sets the expiry of the key anew. So the records of a process that was killed last for two minutes.
//!
//! No lock depends on a record: without the right to write it, or after a fault, everything else works. A shutdown removes all records, and
//! reports no fault of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::smallvec;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::base::clock::{self, Moment};
use crate::base::fault::{Fault, FaultKind};
use crate::base::jitter::Backoff;
use crate::base::limits::limits;
use crate::base::timer::{Instant, elapsed};
use crate::protocol::{
    Arg, Call, RECORD_WRITE, Reply, Row, holds_key, millis, record_keep, record_remove, waits_key,
};
use crate::store::{Route, Store};

/// The server keeps records for so long after their client wrote or kept them last.
const EXPIRY: Duration = Duration::from_secs(120);

/// How often a client keeps its records: some of these commands can fail.
const KEEP: Duration = Duration::from_secs(30);

/// The least time between a change and the command that sends it: changes that follow each other must not cost a command each.
const PAUSE: Duration = Duration::from_millis(200);

/// The most time between two tries. A record that outlives its wait shows a chain that is not there.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// What a record is about: an index of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    Hold,
    Wait,
}

/// The records of a client. Its methods hand changes over to the task.
#[derive(Clone)]
pub(crate) struct Records(UnboundedSender<Order>);

/// What is handed over to the task.
pub(crate) type Orders = UnboundedReceiver<Order>;

pub(crate) enum Order {
    Write {
        about: About,
        owner: Arc<str>,
        since: Moment,
        what: Arc<str>,
    },
    Remove {
        about: About,
        owner: Arc<str>,
    },
    /// Remove all records, and reply.
    End(oneshot::Sender<()>),
}

impl Records {
    pub(crate) fn new() -> (Self, Orders) {
        let (sender, orders) = unbounded_channel();
        (Self(sender), orders)
    }

    /// Records since when an owner holds or waits. `owner`: without the id of the client.
    pub(crate) fn write(&self, about: About, owner: Arc<str>, since: Moment, what: Arc<str>) {
        self.hand_over(Order::Write { about, owner, since, what });
    }

    pub(crate) fn remove(&self, about: About, owner: Arc<str>) {
        self.hand_over(Order::Remove { about, owner });
    }

    /// Removes all records. From here on, nothing is recorded.
    pub(crate) async fn end(&self) {
        let (done, ended) = oneshot::channel();
        self.hand_over(Order::End(done));
        let _ = ended.await;
    }

    /// The task has ended after a shutdown, or with its runtime. Then nothing is recorded.
    fn hand_over(&self, order: Order) {
        let _ = self.0.send(order);
    }
}

/// Keeps the records of a client at these servers. Ends at the shutdown, or after the client was dropped.
pub(crate) fn run(
    orders: Orders,
    store: &Arc<Store>,
    name_prefix: &str,
    client: &str,
) -> impl Future<Output = ()> + Send + use<> {
    let keys = [holds_key(name_prefix, client), waits_key(name_prefix, client)];
    keep(orders, keys.map(|key| Table::new(store, key)))
}

async fn keep(mut orders: Orders, mut tables: [Table; 2]) {
    loop {
        let next = tables.iter().filter_map(Table::next_at).min();
        let order = tokio::select! {
            biased;
            () = elapsed(next) => {
                join_all(tables.iter_mut().map(Table::act)).await;
                continue;
            }
            order = orders.recv() => order,
        };
        match order {
            Some(Order::Write { about, owner, since, what }) => {
                tables[about as usize].write(owner, since, what)
            }
            Some(Order::Remove { about, owner }) => tables[about as usize].remove(&owner),
            Some(Order::End(done)) => {
                join_all(tables.iter_mut().map(Table::clear)).await;
                let _ = done.send(());
                return;
            }
            // All senders are gone: the client was dropped.
            None => {
                join_all(tables.iter_mut().map(Table::clear)).await;
                return;
            }
        }
    }
}

/// The records under one key.
struct Table {
    store: Arc<Store>,
    key: Arc<str>,
    route: Route,
    /// What is to be there, by owners without the id of the client.
    records: BTreeMap<Arc<str>, Record>,
    /// The owners whose records are to be written, or removed if they are not among `records`.
    changed: BTreeSet<Arc<str>>,
    /// When the changes can be sent.
    send_at: Instant,
    keep_at: Instant,
    pauses: Backoff,
    /// The server perhaps has the key.
    may_exist: bool,
    /// This user has no right to the key.
    is_refused: bool,
}

struct Record {
    since: Moment,
    what: Arc<str>,
    /// The server perhaps has it.
    may_exist: bool,
}

impl Table {
    fn new(store: &Arc<Store>, key: Arc<str>) -> Self {
        Self {
            route: store.route(&key),
            store: Arc::clone(store),
            key,
            records: BTreeMap::new(),
            changed: BTreeSet::new(),
            send_at: Instant::now(),
            keep_at: Instant::now(),
            pauses: PAUSES,
            may_exist: false,
            is_refused: false,
        }
    }

    fn write(&mut self, owner: Arc<str>, since: Moment, what: Arc<str>) {
        if !self.is_refused {
            // The server may have an earlier record of this owner: `remove` deleted the entry here, but its removal
            // still waits in `changed`. Then the next `remove` must also be sent.
            let before = self.records.get(&owner).map(|record| record.may_exist);
            let may_exist = before.unwrap_or_else(|| self.changed.contains(&owner));
            self.changes(Arc::clone(&owner));
            self.records.insert(owner, Record { since, what, may_exist });
        }
    }

    fn remove(&mut self, owner: &Arc<str>) {
        match self.records.remove(owner) {
            Some(Record { may_exist: true, .. }) => self.changes(Arc::clone(owner)),
            _ => _ = self.changed.remove(owner),
        }
    }

    fn changes(&mut self, owner: Arc<str>) {
        if self.changed.is_empty() {
            self.send_at = self.send_at.max(Instant::now() + PAUSE);
        }
        self.changed.insert(owner);
    }

    /// When something is to be sent.
    fn next_at(&self) -> Option<Instant> {
        let send_at = (!self.changed.is_empty()).then_some(self.send_at);
        let keep_at = (!self.records.is_empty()).then_some(self.keep_at.max(self.send_at));
        send_at.into_iter().chain(keep_at).min()
    }

    /// Sends what is due.
    async fn act(&mut self) {
        let now = Instant::now();
        if self.next_at().is_none_or(|at| at > now) {
            return;
        }
        let sent = if self.changed.is_empty() { self.keep().await } else { self.send().await };
        match sent {
            Ok(()) => self.pauses = PAUSES,
            Err(fault) if fault.kind == FaultKind::Permission => self.is_refused(&fault),
            Err(_) => self.send_at = Instant::now() + self.pauses.pause(),
        }
    }

    /// Sends the changes. Removals come first: a server without memory refuses only what is new.
    async fn send(&mut self) -> Result<(), Fault> {
        let is_there = |owner: &Arc<str>| self.records.contains_key(owner);
        let (new, ended): (Vec<_>, Vec<_>) = self.changed.iter().cloned().partition(is_there);
        for owners in ended.chunks(limits().records) {
            self.run(&record_remove(&self.key, owners.join(" "))).await?;
            owners.iter().for_each(|owner| _ = self.changed.remove(owner));
        }
        for owners in new.chunks(limits().records) {
            let rows: Vec<Row> = owners.iter().filter_map(|owner| self.row(owner)).collect();
            self.may_exist = true;
            self.run(&RECORD_WRITE.call(millis(EXPIRY), rows)).await?;
            owners.iter().for_each(|owner| _ = self.changed.remove(owner));
            self.keep_at = Instant::now() + KEEP;
        }
        Ok(())
    }

    fn row(&mut self, owner: &Arc<str>) -> Option<Row> {
        let record = self.records.get_mut(owner)?;
        record.may_exist = true;
        let age = millis(clock::now().since(record.since));
        let args =
            smallvec![Arg::Text(Arc::clone(owner)), Arg::Number(age), Arg::Text(Arc::clone(&record.what))];
        Some(Row { keys: smallvec![Arc::clone(&self.key)], args })
    }

    /// Keeps the records. If the server lost them, they are written again.
    async fn keep(&mut self) -> Result<(), Fault> {
        let reply = self.run(&record_keep(&self.key, millis(EXPIRY))).await?;
        self.keep_at = Instant::now() + KEEP;
        if reply == Reply::Int(0) {
            self.changed.extend(self.records.keys().cloned());
        }
        Ok(())
    }

    /// Removes all records. Tries a second time: a connection that broke is noticed by the first.
    async fn clear(&mut self) {
        if !self.may_exist || self.is_refused {
            return;
        }
        let call = record_keep(&self.key, 0_u64);
        if self.run(&call).await.is_err_and(|fault| fault.is_transient()) {
            let _ = self.run(&call).await;
        }
    }

    fn is_refused(&mut self, fault: &Fault) {
        tracing::info!(
            %fault, key = &*self.key, server = &*self.store.address(self.route),
            "the server refuses a record of this client: others cannot see since when it holds locks, or for which it waits"
        );
        self.is_refused = true;
        self.records.clear();
        self.changed.clear();
    }

    async fn run(&self, call: &Call) -> Result<Reply, Fault> {
        self.store.run(&self.store.connection(self.route).await?, call).await
    }
}

const PAUSES: Backoff = Backoff::new(PAUSE, LONGEST_PAUSE);
