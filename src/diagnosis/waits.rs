//! What the client and the server know of waits.

use std::panic::Location;
use std::time::{Duration, SystemTime};

use crate::diagnosis::clients::Clients;
use crate::diagnosis::info::Holder;
use crate::diagnosis::why::Chain;

/// Why a lock is not free: who holds it, for what the holder waits, who holds that, and so on.
///
/// A link is certain: the one who holds and the one who waits are one [`Owner`](crate::Owner). For other handles, nobody can know
/// that, so the chain ends there.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// for chain in locks.why("lock:orders:42").await? {
///     for link in &chain.links {
///         println!("{} is held by {}, which waits for {:?}", link.lock, link.holder.owner, link.waits_for);
///     }
///     println!("a deadlock: {}", chain.is_deadlock);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitChain {
    /// The locks and their holders. Each holder waits for the lock of the next link.
    pub links: Vec<ChainLink>,
    /// The last holder waits for a lock of this chain, so these owners wait for each other. False if one of them is
    /// [not connected](crate::HolderIdentity::NotConnected): its process has perhaps ended, and then its lease ends soon.
    pub is_deadlock: bool,
}

/// A link of a [`WaitChain`].
///
/// ```no_run
/// # fn demo(link: lockkeeper::ChainLink) {
/// println!("{} is held by {}", link.lock, link.holder.owner);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainLink {
    /// The name of the lock: its key, without the `name_prefix` of the configuration.
    pub lock: String,
    /// One of its holders.
    pub holder: Holder,
    /// The lock for which the holder waits, and for how long it has waited. `None`: it does not wait, or that is not known.
    pub waits_for: Option<(String, Duration)>,
    /// Where in its program the holder waits: file and line. `None`: it does not wait, or that is not known.
    pub waits_at: Option<String>,
    /// If it is not known that the holder waits: what calls of its client wait for, at most eight. One of these calls is perhaps the holder's, with
    /// another handle.
    pub client_waits: Vec<ClientWait>,
}

/// A call of the client of a holder. It waits with a handle that is not of an [`Owner`](crate::Owner), so nobody can know whether the
/// holder is the one who waits.
///
/// ```no_run
/// # fn demo(link: lockkeeper::ChainLink) {
/// for wait in link.client_waits {
///     println!("a call at {} has waited for {} for {:?}", wait.waits_at, wait.lock, wait.age);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientWait {
    /// The name of the lock for which it waits.
    pub lock: String,
    /// For how long it has waited.
    pub age: Duration,
    /// Where in its program it waits: file and line.
    pub waits_at: String,
}

/// A call of this client that waited for another owner, see [`LockClient::recent_waits`](crate::LockClient::recent_waits).
///
/// ```no_run
/// # fn demo(locks: lockkeeper::LockClient) {
/// for wait in locks.recent_waits() {
///     println!("{} at {}: {:?}", wait.lock, wait.waited_at, wait.to.duration_since(wait.from));
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecentWait {
    /// The name of the lock. Of a name with more than 1,000 bytes, the beginning.
    pub lock: String,
    /// Where in the program the call is.
    pub waited_at: &'static Location<'static>,
    /// When the wait began.
    pub from: SystemTime,
    /// When the wait ended.
    pub to: SystemTime,
    /// How the wait ended.
    pub outcome: WaitOutcome,
    /// Who held the lock: their identities and owners, eight at most. Empty: the client did not look, or found nobody. It looks when a wait has
    /// lasted for a lease, but only for one of its waits in ten seconds.
    pub holders_seen: Vec<String>,
}

/// How a [`RecentWait`] ended.
///
/// ```no_run
/// # fn demo(locks: lockkeeper::LockClient) {
/// use lockkeeper::WaitOutcome;
///
/// let in_vain = locks.recent_waits().iter().filter(|wait| wait.outcome != WaitOutcome::Granted).count();
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitOutcome {
    /// The lock was acquired.
    Granted,
    /// The time limit of the call was up.
    TimedOut,
    /// The call failed, or its future was dropped.
    GivenUp,
}

impl WaitChain {
    /// `prefix`: the `name_prefix` of the configuration.
    pub(crate) fn from_server(chain: &Chain, clients: &Clients, prefix: &str) -> Self {
        let name = |key: &str| key.strip_prefix(prefix).unwrap_or(key).to_owned();
        let links = chain.links.iter().map(|link| ChainLink {
            lock: name(&link.lock),
            holder: Holder::from_server(link.holding.clone(), clients),
            waits_for: link.waits_for.as_ref().map(|awaited| (name(&awaited.lock), awaited.age)),
            waits_at: link.waits_for.as_ref().map(|awaited| awaited.at.to_string()),
            client_waits: link
                .client_waits
                .iter()
                .map(|wait| ClientWait {
                    lock: name(&wait.lock),
                    age: wait.age,
                    waits_at: wait.at.to_string(),
                })
                .collect(),
        });
        Self { links: links.collect(), is_deadlock: chain.is_cycle && !chain.has_ended(clients) }
    }
}
