//! What the server knows of a lock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::diagnosis::clients::Clients;
use crate::protocol::{Found, FoundKind, Holding, LeaseLeft, Listing};

/// A lock that is held, or a semaphore, as the server knows it.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// if let Some(info) = locks.inspect("lock:orders:42").await? {
///     for holder in &info.holders {
///         println!("{} holds it {} times", holder.owner, holder.holds);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The holders: one owner, except for a read-write lock and for a semaphore. Those whose lease has ended are left out.
    pub holders: Vec<Holder>,
    /// How long the lock stays held if nobody renews or releases it: the longest lease of the holders. Zero: there are none.
    pub remaining_lease: RemainingLease,
    /// Whether it is a read-write lock.
    pub is_read_write: bool,
    /// How many permits a semaphore has: those of the `holders`, and those that are available. `None`: it is not a semaphore.
    pub permits: Option<u32>,
}

/// What [`LockClient::list`](crate::LockClient::list) found.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let all = locks.list("lock:orders:*").await?;
/// if all.skipped.is_empty() {
///     println!("{} locks are held", all.locks.len());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockList {
    /// The locks that somebody holds, sorted by name.
    pub locks: Vec<ListedLock>,
    /// The names of locks that perhaps somebody holds:
    ///
    /// - Their slots of a cluster move, and for [`retry_timeout`](crate::LockConfigBuilder::retry_timeout) no server had all keys of the
    ///   lock. List them again later. A semaphore whose keys are at two servers is not among them.
    /// - Among the permits of a semaphore is something that is no permit. [`inspect`](crate::LockClient::inspect) says so.
    pub skipped: Vec<String>,
}

/// A lock that [`LockClient::list`](crate::LockClient::list) found.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// for lock in locks.list("lock:orders:*").await?.locks {
///     println!("{} has {} holders, and {} clients wait", lock.name, lock.info.holders.len(), lock.listeners);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedLock {
    /// The name: its key, without the `name_prefix` of the configuration.
    pub name: String,
    /// The type, as far as the server knows it.
    pub kind: LockKind,
    /// Who holds it. There is at least one holder.
    pub info: LockInfo,
    /// The waiters in the queue of a fair lock. 0 for other types.
    pub queued: u64,
    /// The connections that listen for its release: one for each client that has waiters. 0 for fair locks. In a cluster without
    /// sharded messages, only the connections to the server of the lock are counted.
    pub listeners: u64,
}

/// What a master tells of itself, see [`LockClient::servers`](crate::LockClient::servers).
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// for server in locks.servers().await? {
///     println!("{}: {:?}", server.address, server.fact("maxmemory_policy"));
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The address, as errors and events name it.
    pub address: String,
    /// The facts of the command `INFO`, by their names there.
    pub facts: BTreeMap<String, String>,
}

impl ServerInfo {
    /// Returns a fact by its name in `INFO`, such as `maxmemory_policy`. `None`: the server does not tell it. Asks no server.
    ///
    /// ```no_run
    /// # fn demo(server: lockkeeper::ServerInfo) {
    /// let version = server.fact("redis_version");
    /// # }
    /// ```
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    pub(crate) fn from_server(address: &str, info: &str) -> Self {
        let facts = info.lines().filter_map(|line| line.split_once(':'));
        let facts = facts.map(|(name, fact)| (name.to_owned(), fact.trim().to_owned()));
        Self { address: address.to_owned(), facts: facts.collect() }
    }
}

/// The type of a lock, as far as the server knows it.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// use lockkeeper::LockKind;
///
/// let all = locks.list("*").await?;
/// let read_write = all.locks.iter().filter(|lock| lock.kind == LockKind::ReadWrite).count();
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockKind {
    /// A fair lock for which somebody waits. Without waiters it looks like an `RLock`.
    Fair,
    /// A fenced lock.
    Fenced,
    /// A read-write lock.
    ReadWrite,
    /// An `RLock`, or a fair lock without waiters.
    Reentrant,
    /// A semaphore.
    Semaphore,
}

/// One owner of a lock, or one permit of a semaphore.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let id = locks.id();
/// let info = locks.inspect("lock:orders:42").await?;
/// let clients = info.iter().flat_map(|info| &info.holders).filter_map(|holder| holder.client());
/// let is_ours = clients.into_iter().any(|client| id.starts_with(&client));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The id of the client, a colon, and the number of the owner (in Java, of the thread). For a writer, `:write` follows.
    ///
    /// Of a permit, its id: 32 hexadecimal digits.
    ///
    /// Compare it with [`LockGuard::owner_id`](crate::LockGuard::owner_id) and [`LockClient::id`](crate::LockClient::id).
    pub owner: String,
    /// How many holds the owner has. Of a permit: 1.
    pub holds: u64,
    /// How long the owner stays a holder if nobody renews or releases it.
    pub remaining_lease: RemainingLease,
    /// The process of the holder's client.
    pub identity: HolderIdentity,
    /// For how long the owner has held the lock. `None`: that is not recorded. A client of lockkeeper records a hold after its first
    /// renewal, at the latest after a third of its lease (10 s by default). A hold that nobody renews is not recorded, and none of Redisson.
    /// Only the records of clients with the same [`name_prefix`](crate::LockConfigBuilder::name_prefix) are read.
    pub held_for: Option<Duration>,
}

impl Holder {
    /// Returns the id of the holder's client, see [`LockClient::id`](crate::LockClient::id). Asks no server.
    ///
    /// Of a permit, the server knows only the first 18 characters of that id. `None`: Java acquired the permit, and its id tells nothing.
    ///
    /// ```no_run
    /// # fn demo(holder: &lockkeeper::Holder) {
    /// println!("held by {}", holder.client().as_deref().unwrap_or("an unknown client"));
    /// # }
    /// ```
    pub fn client(&self) -> Option<String> {
        match self.owner.split_once(':') {
            Some((client, _)) => Some(client.to_owned()),
            None => client_of(&self.owner),
        }
    }
}

/// The first half of the id of the client that made a permit id. A random id of Java looks like one of ours once in 2³⁶ times: this
/// library counts from 1, and its clients have UUIDs of version 8 or 4.
fn client_of(permit: &str) -> Option<String> {
    let id = permit.to_ascii_lowercase();
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_ours = is_id && matches!(id.get(12..13), Some("4" | "8")) && id.get(16..24) == Some("00000000");
    is_ours.then(|| [&id[..8], &id[8..12], &id[12..16]].join("-"))
}

/// What the server knows of the client of a [`Holder`], by the names of its connections.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// use lockkeeper::HolderIdentity;
///
/// for lock in locks.list("*").await?.locks {
///     if lock.info.holders.iter().any(|holder| holder.identity == HolderIdentity::NotConnected) {
///         println!("{}: its process has perhaps ended", lock.name);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderIdentity {
    /// It is connected. This is its [`identity`](crate::LockConfigBuilder::identity), or `program@host:pid`.
    Connected(String),
    /// It is of lockkeeper, and has no connection to any master: its process has perhaps ended, or is cut off.
    NotConnected,
    /// It cannot be known: it is Redisson or an older version of lockkeeper, the server refused to name its connections, or this user has no right to
    /// `CLIENT LIST`.
    Unknown,
}

impl HolderIdentity {
    /// Returns the identity of a client that is connected. Asks no server.
    ///
    /// ```
    /// # use lockkeeper::HolderIdentity;
    /// let identity = HolderIdentity::Connected("billing-7".to_owned());
    /// assert_eq!(identity.name(), Some("billing-7"));
    /// ```
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Connected(identity) => Some(identity),
            _ => None,
        }
    }

    fn from_server(clients: &Clients, client: Option<&str>) -> Self {
        match client.and_then(|client| clients.of(client)) {
            Some(Some(identity)) => Self::Connected(identity.to_owned()),
            Some(None) => Self::NotConnected,
            None => Self::Unknown,
        }
    }
}

/// How long a lock stays held if nobody renews or releases it.
///
/// ```
/// # use lockkeeper::RemainingLease;
/// fn describe(left: RemainingLease) -> String {
///     match left.duration() {
///         Some(time) => format!("held for {time:?} more"),
///         None => "held for ever: somebody removed the expiry of the key".to_owned(),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RemainingLease {
    /// For this time.
    For(Duration),
    /// For ever: the key has no expiry. Only a command of another program can cause that.
    Endless,
}

impl RemainingLease {
    /// Returns the time. `None`: the lease does not end.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::RemainingLease;
    /// let left = RemainingLease::For(Duration::from_secs(7));
    /// assert_eq!(left.duration(), Some(Duration::from_secs(7)));
    /// assert_eq!(RemainingLease::Endless.duration(), None);
    /// ```
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Self::For(time) => Some(time),
            Self::Endless => None,
        }
    }
}

impl LockInfo {
    /// `None`: the lock is free.
    pub(crate) fn from_server(listing: Listing, clients: &Clients) -> Option<Self> {
        let Listing { is_read_write, permits, .. } = listing;
        let lease = listing.lease().or_else(|| permits.map(|_| LeaseLeft::Ended))?;
        let alive = listing.holders.into_iter().filter(|holding| holding.lease != LeaseLeft::Ended);
        let remaining_lease = RemainingLease::from_server(lease);
        let holders = alive.map(|holding| Holder::from_server(holding, clients)).collect();
        Some(Self { holders, remaining_lease, is_read_write, permits })
    }
}

impl Holder {
    pub(crate) fn from_server(holding: Holding, clients: &Clients) -> Self {
        let Holding { field: owner, holds, lease, .. } = holding;
        let (remaining_lease, held_for) = (RemainingLease::from_server(lease), clients.held_for(&owner));
        let holder = Self { owner, holds, remaining_lease, identity: HolderIdentity::Unknown, held_for };
        Self { identity: HolderIdentity::from_server(clients, holder.client().as_deref()), ..holder }
    }
}

impl ListedLock {
    /// `prefix`: the `name_prefix` of the configuration. `None`: the lock is free by now.
    pub(crate) fn from_server(
        found: &Found,
        listing: Listing,
        prefix: &str,
        clients: &Clients,
    ) -> Option<Self> {
        let kind = match found {
            _ if listing.is_read_write => LockKind::ReadWrite,
            Found { kind: FoundKind::Semaphore, .. } => LockKind::Semaphore,
            Found { queued: 1.., .. } => LockKind::Fair,
            Found { has_counter: true, .. } => LockKind::Fenced,
            _ => LockKind::Reentrant,
        };
        let name = found.key.strip_prefix(prefix)?.to_owned();
        let info = LockInfo::from_server(listing, clients)?;
        Some(Self { name, kind, info, queued: found.queued, listeners: found.listeners })
    }
}

impl RemainingLease {
    pub(crate) const fn from_server(left: LeaseLeft) -> Self {
        match left {
            LeaseLeft::Ended => Self::For(Duration::ZERO),
            LeaseLeft::For(time) => Self::For(time),
            LeaseLeft::Endless => Self::Endless,
        }
    }
}
