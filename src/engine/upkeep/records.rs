//! The records of what this client holds, and of what it waits for, for those who look at locks.
//!
//! A hold is recorded with its first renewal, in the same write. A wait is recorded after a second. A record is removed when its hold or
//! wait ends. No lock depends on a record: without the right to write it, or after a fault, everything else works.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use smallvec::smallvec;

use crate::base::clock::{self, Moment};
use crate::base::fault::{Fault, FaultKind};
use crate::base::sync::lock;
use crate::base::timer::{Instant, sleep_until};
use crate::engine::grant::Grant;
use crate::engine::retry::Pauses;
use crate::engine::upkeep::background::{Background, Job, Refused};
use crate::protocol::{Arg, Call, RECORD_WRITE, Reply, Row, millis, record_remove};
use crate::store::{Route, Store};

/// The records of a client that recorded nothing for so many hours are removed.
const EXPIRY_HOURS: u64 = 24;

/// A hold that lasts for longer is recorded again.
pub(crate) const RECORD_LASTS: Duration = Duration::from_secs(12 * 3_600);

/// How many records are written or removed with one command.
const TOGETHER: usize = 500;

/// The least time between two commands: waits that end one after the other must not cost a command each.
const PAUSE: Duration = Duration::from_millis(200);

/// The records of a client under one key.
pub(crate) struct Records {
    store: Arc<Store>,
    key: Arc<str>,
    route: Route,
    queue: Mutex<Queue>,
    is_refused: AtomicBool,
}

/// The changes that are still to be sent.
struct Queue {
    /// By the owners, without the id of the client.
    changes: BTreeMap<Arc<str>, Change>,
    /// When they can be sent.
    next_at: Instant,
    is_sending: bool,
}

#[derive(Clone)]
enum Change {
    Write {
        since: Moment,
        what: Arc<str>,
        /// It was sent, and perhaps the server has it.
        was_sent: bool,
    },
    Remove,
}

/// What is recorded together with renewals.
pub(crate) struct Recording {
    grants: Vec<Arc<Grant>>,
    pub(crate) call: Call,
    at: Moment,
}

impl Records {
    pub(crate) fn new(store: &Arc<Store>, key: Arc<str>) -> Self {
        Self {
            route: store.route(&key),
            store: Arc::clone(store),
            key,
            queue: Mutex::new(Queue { changes: BTreeMap::new(), next_at: Instant::now(), is_sending: false }),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Begins to record those of these holds that are not recorded. `None`: there are none.
    pub(crate) fn begin<'a>(&self, grants: impl Iterator<Item = &'a Arc<Grant>>) -> Option<Recording> {
        if self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        let at = clock::now();
        let new = grants.filter_map(|grant| {
            let (owner, since) = grant.begin_record(at)?;
            Some((Arc::clone(grant), self.row(owner, at.since(since), Arc::clone(&grant.lock.keys.lock))))
        });
        let (grants, rows): (Vec<_>, Vec<_>) = new.unzip();
        (!rows.is_empty()).then(|| Recording { grants, call: RECORD_WRITE.call(EXPIRY_HOURS, rows), at })
    }

    fn row(&self, owner: Arc<str>, age: Duration, what: Arc<str>) -> Row {
        let args = smallvec![Arg::Text(owner), Arg::Number(millis(age)), Arg::Text(what)];
        Row { keys: smallvec![Arc::clone(&self.key)], args }
    }

    /// Sends the call where the key is.
    pub(crate) async fn send(&self, recording: &Recording) {
        let reply = self.run(&recording.call).await;
        self.answered(recording, &reply);
    }

    /// Takes the reply to the call. After a fault, the next renewal tries again.
    pub(crate) fn answered(&self, Recording { grants, at, .. }: &Recording, reply: &Result<Reply, Fault>) {
        match reply {
            Ok(_) => grants.iter().for_each(|grant| grant.is_recorded(*at)),
            Err(fault) => _ = self.takes(fault),
        }
    }

    /// Takes a fault. Returns whether this user has no right to the key, which is reported once.
    fn takes(&self, fault: &Fault) -> bool {
        let is_refusal = fault.kind == FaultKind::Permission;
        if is_refusal && !self.is_refused.swap(true, Ordering::Relaxed) {
            tracing::info!(
                %fault, key = &*self.key, server = &*self.store.address(self.route),
                "the server refuses a record of this client: others cannot see since when it holds locks, or for which it waits"
            );
        }
        is_refusal
    }

    /// Records something in the background.
    pub(crate) fn write(
        self: &Arc<Self>,
        owner: Arc<str>,
        since: Moment,
        what: Arc<str>,
        background: &Background,
    ) {
        if !self.is_refused.load(Ordering::Relaxed) {
            self.changes(owner, Change::Write { since, what, was_sent: false }, background);
        }
    }

    /// Removes a record in the background.
    pub(crate) fn remove(self: &Arc<Self>, owner: Arc<str>, background: &Background) {
        if !self.is_refused.load(Ordering::Relaxed) {
            self.changes(owner, Change::Remove, background);
        }
    }

    fn changes(self: &Arc<Self>, owner: Arc<str>, change: Change, background: &Background) {
        let mut queue = lock(&self.queue);
        match (queue.changes.get(&owner), &change) {
            (Some(Change::Write { was_sent: false, .. }), Change::Remove) => _ = queue.changes.remove(&owner),
            _ => _ = queue.changes.insert(owner, change),
        }
        if !queue.changes.is_empty() && !std::mem::replace(&mut queue.is_sending, true) {
            drop(queue);
            background.run(self.sending(Pauses::START));
        }
    }

    /// Sends the changes, and those that come meanwhile.
    fn sending(self: &Arc<Self>, mut pauses: Pauses) -> Job {
        let records = Arc::clone(self);
        async move {
            while let Some(next_at) = records.next_at() {
                sleep_until(next_at).await;
                let changes = std::mem::take(&mut lock(&records.queue).changes);
                let sent = records.send_all(&changes).await;
                lock(&records.queue).next_at = Instant::now() + PAUSE;
                match sent {
                    Err(fault) if !records.takes(&fault) => {
                        records.put_back(changes);
                        let pause = pauses.after(&fault);
                        // No lock depends on it, so a shutdown does not report the fault.
                        let ends = Instant::now();
                        return Err(Refused { fault, ends, pause, again: records.sending(pauses) });
                    }
                    _ => pauses = Pauses::START,
                }
            }
            Ok(())
        }
        .boxed()
    }

    /// When the next changes are to be sent. `None`: there are none.
    fn next_at(&self) -> Option<Instant> {
        let mut queue = lock(&self.queue);
        queue.is_sending = !queue.changes.is_empty();
        queue.is_sending.then_some(queue.next_at)
    }

    async fn send_all(&self, changes: &BTreeMap<Arc<str>, Change>) -> Result<(), Fault> {
        let (now, mut rows, mut ended) = (clock::now(), Vec::new(), Vec::new());
        for (owner, change) in changes {
            match change {
                Change::Write { since, what, .. } => {
                    rows.push(self.row(Arc::clone(owner), now.since(*since), Arc::clone(what)));
                }
                Change::Remove => ended.push(&**owner),
            }
        }
        for rows in rows.chunks(TOGETHER) {
            self.run(&RECORD_WRITE.call(EXPIRY_HOURS, rows.iter().cloned())).await?;
        }
        for ended in ended.chunks(TOGETHER) {
            self.run(&record_remove(&self.key, ended.join(" "))).await?;
        }
        Ok(())
    }

    /// What changed meanwhile counts.
    fn put_back(&self, changes: BTreeMap<Arc<str>, Change>) {
        let mut queue = lock(&self.queue);
        for (owner, mut change) in changes {
            if let Change::Write { was_sent, .. } = &mut change {
                *was_sent = true;
            }
            queue.changes.entry(owner).or_insert(change);
        }
    }

    async fn run(&self, call: &Call) -> Result<Reply, Fault> {
        self.store.run(&self.store.connection(self.route).await?, call).await
    }
}
