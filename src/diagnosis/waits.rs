//! What the client and the server know of waits.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::diagnosis::clients::Clients;
use crate::diagnosis::info::{Holder, age_in_millis};
use crate::diagnosis::snapshot::Wait;
use crate::diagnosis::why::Chain;

/// Why a lock is not free: who holds it, for what the holder waits, who holds that, and so on.
///
/// A link is certain: the one who holds and the one who waits are one [`Owner`](crate::Owner). For other handles, nobody can know
/// that, so the chain ends there.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// for chain in locks.why("lock:orders:42").await? {
///     println!("{chain}"); // a line for each lock, and one that says whether it is a deadlock
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitChain {
    /// The locks and their holders. Each holder waits for the lock of the next link.
    pub links: Vec<ChainLink>,
    /// The last holder waits for a lock of this chain, so these owners wait for each other. False if one of them is
    /// [not connected](Holder::is_connected): its process has perhaps ended, and then its lease ends soon.
    pub is_deadlock: bool,
}

/// A link of a [`WaitChain`]. Its text is one line.
///
/// ```no_run
/// # fn demo(link: lockkeeper::ChainLink) {
/// println!("{} is held by {}", link.lock, link.holder);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ChainLink {
    /// The name of the lock: its key, without the `name_prefix` of the configuration.
    pub lock: String,
    /// One of its holders.
    pub holder: Holder,
    /// What the holder waits for. `None`: it does not wait, or that is not known.
    pub waits_for: Option<LockWait>,
    /// If it is not known that the holder waits: what calls of its client wait for, at most eight. These calls use handles that are not of an
    /// [`Owner`](crate::Owner), so nobody can know whether one of them is the holder's.
    pub client_waits: Vec<LockWait>,
}

/// A call that waits for a lock.
///
/// ```no_run
/// # fn demo(wait: lockkeeper::LockWait) {
/// println!("a call at {} has waited for {} for {:?}", wait.at, wait.lock, wait.age);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockWait {
    /// The name of the lock for which it waits.
    pub lock: String,
    /// For how long it has waited.
    #[serde(rename = "age_ms", serialize_with = "age_in_millis")]
    pub age: Duration,
    /// Where in its program it waits: file and line.
    pub at: String,
}

impl WaitChain {
    /// `prefix`: the `name_prefix` of the configuration.
    pub(crate) fn from_server(chain: &Chain, clients: &Clients, prefix: &str) -> Self {
        let name = |key: &str| key.strip_prefix(prefix).unwrap_or(key).to_owned();
        let waits =
            |wait: &Wait| LockWait { lock: name(&wait.lock), age: wait.age(), at: wait.at.to_string() };
        let links = chain.links.iter().map(|link| ChainLink {
            lock: name(&link.lock),
            holder: Holder::from_server(link.holding.clone(), clients),
            waits_for: link.waits_for.as_ref().map(waits),
            client_waits: link.client_waits.iter().map(waits).collect(),
        });
        Self { links: links.collect(), is_deadlock: chain.is_cycle && !chain.has_ended(clients) }
    }
}

impl fmt::Display for WaitChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, link) in self.links.iter().enumerate() {
            write!(f, "{}{link}", if index == 0 { "" } else { "\n" })?;
        }
        if self.is_deadlock { f.write_str("\na deadlock: these owners wait for each other") } else { Ok(()) }
    }
}

impl fmt::Display for ChainLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: held by {}", self.lock, self.holder)?;
        if let Some(wait) = &self.waits_for {
            write!(f, ", which {}", waited(wait))?;
        }
        let perhaps = |wait| write!(f, "; perhaps it waits: a call of its client {}", waited(wait));
        self.client_waits.iter().try_for_each(perhaps)
    }
}

/// Continues a sentence about the one who waits.
fn waited(wait: &LockWait) -> impl fmt::Display {
    let LockWait { lock, age, at } = wait;
    format!("has waited for {lock} for {} s, at {at}", age.as_secs())
}
