//! What a client writes to the server for those who look: what it holds and waits for, in one key, written whole.
//!
//! No lock depends on it: without the right to write it, or after a fault, everything else works.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::error::Result;
use crate::base::fault::{Fault, FaultKind};
use crate::engine::{self, Engine, Grant, LONG};
use crate::protocol::{Call, Reply, client_key, client_read, client_write, millis};

/// The server keeps a snapshot for so long after its client wrote it: that of a process that was killed lasts for two minutes.
pub(crate) const EXPIRY: Duration = Duration::from_secs(120);

/// The most entries, and about how many bytes they have together.
const MOST: usize = 500;
const MOST_BYTES: usize = 100_000;

/// How many snapshots are read at a time.
const AT_ONCE: usize = 64;

/// What a client holds and waits for. Owners are without the id of the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) identity: String,
    pub(crate) waits: Vec<Wait>,
    pub(crate) holds: Vec<Hold>,
    /// How many holds and waits are left out.
    pub(crate) more: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wait {
    /// Any hold excludes the call. False: a reader waits.
    pub(crate) is_exclusive: bool,
    /// What the same `Owner` holds. Empty: the handle is of no `Owner`, or that one holds nothing.
    pub(crate) held: Vec<String>,
    /// The key of the lock.
    pub(crate) lock: Arc<str>,
    /// Where in the program: file and line.
    pub(crate) at: Arc<str>,
    #[serde(skip)]
    since: Moment,
    /// Milliseconds, in one that was written or read.
    age: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) owner: String,
    pub(crate) lock: Arc<str>,
    /// The type, as metrics name it.
    pub(crate) kind: String,
    pub(crate) at: Arc<str>,
    #[serde(skip)]
    since: Moment,
    age: u64,
}

impl Snapshot {
    pub(crate) fn new(identity: &str) -> Self {
        Self { identity: identity.to_owned(), ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.holds.is_empty()
    }

    /// Adds a call that waits for long.
    pub(crate) fn add_wait(&mut self, held: &[Arc<Grant>], wait: &engine::Wait) {
        let held = held.iter().filter_map(|grant| Some(grant.short_owner()?.to_string())).collect();
        self.waits.push(Wait {
            is_exclusive: !wait.lock.protocol.is_shared(),
            held,
            lock: Arc::clone(&wait.lock.keys.lock),
            at: place(wait.caller),
            since: wait.since,
            age: 0,
        });
    }

    /// Adds what owners hold for longer than a second: first what those hold who wait, then the oldest.
    pub(crate) fn add_holds<'a>(&mut self, of_waiters: &'a [Arc<Grant>], all: &'a [Arc<Grant>], now: Moment) {
        let is_lasting = |(_, since): &(Caller, Moment)| now.since(*since) >= LONG;
        let lasting = |grant: &'a Arc<Grant>| Some((grant, grant.held_at(now).filter(is_lasting)?));
        let mut others: Vec<_> = all.iter().filter_map(lasting).collect();
        others.sort_by_key(|(_, (_, since))| *since);
        let (mut known, mut left) = (HashSet::new(), MOST_BYTES);
        self.more = self.waits.len().saturating_sub(MOST);
        self.waits.truncate(MOST);
        let first = of_waiters.iter().filter_map(|grant| Some((grant, grant.held_at(now)?)));
        for (grant, (at, since)) in first.chain(others) {
            if !known.insert(grant.number) || grant.permits().is_some() {
                continue;
            }
            let lock = &grant.lock.keys.lock;
            left = left.saturating_sub(lock.len() + at.file().len() + 80);
            let Some(owner) =
                grant.short_owner().filter(|_| left > 0 && self.waits.len() + self.holds.len() < MOST)
            else {
                self.more += 1;
                continue;
            };
            let kind = grant.lock.protocol.lock_type().name().to_owned();
            self.holds.push(Hold {
                owner: owner.to_string(),
                lock: Arc::clone(lock),
                kind,
                at: place(at),
                since,
                age: 0,
            });
        }
    }

    /// The command that writes it, or removes one that is empty. No time of this client's clock reaches the server.
    pub(crate) fn write(&self, key: &Arc<str>) -> Call {
        let (now, mut told) = (clock::now(), self.clone());
        told.ages().for_each(|(since, age)| *age = millis(now.since(since)));
        let text =
            if self.is_empty() { String::new() } else { serde_json::to_string(&told).expect("plain data") };
        client_write([key], millis(EXPIRY), text)
    }

    fn ages(&mut self) -> impl Iterator<Item = (Moment, &mut u64)> {
        let waits = self.waits.iter_mut().map(|wait| (wait.since, &mut wait.age));
        waits.chain(self.holds.iter_mut().map(|hold| (hold.since, &mut hold.age)))
    }
}

impl Wait {
    pub(crate) const fn age(&self) -> Duration {
        Duration::from_millis(self.age)
    }
}

impl Hold {
    pub(crate) const fn age(&self) -> Duration {
        Duration::from_millis(self.age)
    }
}

#[cfg(test)]
impl Wait {
    pub(super) fn new(is_exclusive: bool, held: Vec<String>, lock: Arc<str>) -> Self {
        Self { is_exclusive, held, lock, at: "src/main.rs:7".into(), since: Moment::PAST, age: 0 }
    }
}

fn place(at: Caller) -> Arc<str> {
    format!("{}:{}", at.file(), at.line()).into()
}

/// Reads what a client told, with a fault if the server does not answer. It is empty if the client told nothing, or this user has no right
/// to read it.
async fn read(engine: &Engine, client: &str) -> Result<Snapshot, Fault> {
    let (store, key) = (&engine.store, client_key(engine.name_prefix(), client));
    let reply = match store.run(&store.connection(store.route(&key)).await?, &client_read([&key])).await {
        Err(fault) if matches!(fault.kind, FaultKind::Permission | FaultKind::WrongType) => {
            return Ok(Snapshot::default());
        }
        reply => reply?,
    };
    let Reply::List(list) = &reply else { return Ok(Snapshot::default()) };
    let [Reply::Text(text), Reply::Int(left)] = &list[..] else { return Err(Fault::unexpected(&reply)) };
    let left = Duration::from_millis(u64::try_from(*left).unwrap_or_default());
    let mut told = serde_json::from_str::<Snapshot>(text).unwrap_or_default();
    told.ages().for_each(|(_, age)| *age += millis(EXPIRY.saturating_sub(left)));
    Ok(told)
}

/// Reads what these clients told.
pub(crate) async fn read_all(
    engine: &Engine,
    clients: impl IntoIterator<Item = String>,
) -> Vec<Result<(String, Snapshot), Fault>> {
    let reading =
        clients.into_iter().map(|client| async move { Ok((client.clone(), read(engine, &client).await?)) });
    stream::iter(reading.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await
}

/// Reads what all clients with this name prefix told: those whose connections have names. If this client's has none, or the server does not
/// tell the names, those whose keys a scan finds.
pub(crate) async fn of_all_clients(engine: &Engine) -> Result<Vec<(String, Snapshot)>, Fault> {
    let named: Vec<_> = engine.store.named_clients().await.into_iter().flatten().flatten().collect();
    let clients: HashSet<String> = if named.iter().any(|(client, _)| *client == engine.id()) {
        named.into_iter().map(|(client, _)| client).collect()
    } else {
        let keys = engine.store.keys(&client_key(&engine.key_pattern("*"), "")).await?;
        let prefix = client_key(engine.name_prefix(), "");
        keys.iter().filter_map(|key| Some(key.strip_prefix(&*prefix)?.to_owned())).collect()
    };
    read_all(engine, clients).await.into_iter().collect()
}
