//! What the server knows of a lock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::diagnosis::clients::Clients;
use crate::diagnosis::snapshot::Hold;
use crate::protocol::{Found, FoundKind, Holding, LeaseLeft, Listing};

/// A lock that is held, or a semaphore, as the server knows it.
///
/// [`inspect`](crate::LockClient::inspect) returns one, [`list`](crate::LockClient::list) returns many. Its text is one line. With serde, it
/// is what `lockkeeper ls --json` prints: times are in milliseconds.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// if let Some(info) = locks.inspect("lock:orders:42").await? {
///     println!("{info}"); // lock:orders:42: rlock, held by worker@web-1:4711 (…:7), ends in 27.4 s
///     for holder in &info.holders {
///         println!("{holder} holds it {} times", holder.holds);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LockInfo {
    /// The name: its key, without the `name_prefix` of the configuration.
    pub name: String,
    /// The type, as far as the server knows it.
    pub kind: LockKind,
    /// The holders: one owner, except for a read lock and for a semaphore. Those whose lease has ended are left out.
    pub holders: Vec<Holder>,
    /// How many permits a semaphore has: those of the `holders`, and those that are available. `None`: it is not a semaphore.
    pub permits: Option<u32>,
    /// How long the lock stays held if nobody renews or releases it: the longest lease of the holders. Zero: there are none.
    #[serde(rename = "expires_in_ms")]
    pub remaining_lease: RemainingLease,
    /// The waiters in the queue of a fair lock. 0 for other types. `None`: `inspect` does not ask.
    pub queued: Option<u64>,
    /// The connections that listen for its release: one for each client that has waiters. 0 for fair locks. In a cluster without
    /// sharded messages, only the connections to the server of the lock are counted. `None`: `inspect` does not ask.
    pub listeners: Option<u64>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LockList {
    /// The locks that somebody holds, sorted by name. Each has at least one holder.
    pub locks: Vec<LockInfo>,
    /// The names of locks that perhaps somebody holds:
    ///
    /// - Their slots of a cluster move, and for [`retry_timeout`](crate::LockConfigBuilder::retry_timeout) no server had all keys of the
    ///   lock. List them again later. A semaphore whose keys are at two servers is not among them.
    /// - Among the permits of a semaphore is something that is no permit. [`inspect`](crate::LockClient::inspect) says so.
    pub skipped: Vec<String>,
}

/// The type of a lock, as far as the server knows it. Its text is the name that `lockkeeper run --kind` has for it.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// use lockkeeper::LockKind;
///
/// let all = locks.list("*").await?;
/// let readers = all.locks.iter().filter(|lock| lock.kind == LockKind::Read).count();
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "lowercase")]
pub enum LockKind {
    /// A fair lock for which somebody waits. Without waiters it looks like an `RLock`, and to `inspect` also with them.
    Fair,
    /// A fenced lock. To `inspect` it looks like an `RLock`.
    Fenced,
    /// A read-write lock that no writer holds.
    Read,
    /// An `RLock`, or what looks like one.
    #[serde(rename = "rlock")]
    Reentrant,
    /// A semaphore.
    Semaphore,
    /// A read-write lock that a writer holds, perhaps also as a reader.
    Write,
}

/// One owner of a lock, or one permit of a semaphore. Its text is its process, if that is known, and its id.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// for lock in locks.list("*").await?.locks {
///     if lock.holders.iter().any(|holder| holder.is_connected == Some(false)) {
///         println!("{}: its process has perhaps ended", lock.name);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Holder {
    /// The id of the client, a colon, and the number of the owner (in Java, of the thread). For a writer, `:write` follows.
    ///
    /// Of a permit, its id: 32 hexadecimal digits.
    ///
    /// Compare it with [`LockGuard::owner_id`](crate::LockGuard::owner_id) and [`LockClient::id`](crate::LockClient::id).
    pub owner: String,
    /// The id of the holder's client, see [`LockClient::id`](crate::LockClient::id). Of a permit, the server knows only the first 18
    /// characters of that id. `None`: Java acquired the permit, and its id tells nothing.
    pub client: Option<String>,
    /// How many holds the owner has. Of a permit: 1.
    pub holds: u64,
    /// How long the owner stays a holder if nobody renews or releases it.
    #[serde(rename = "expires_in_ms")]
    pub remaining_lease: RemainingLease,
    /// The [`identity`](crate::LockConfigBuilder::identity) of the holder's client, or `program@host:pid`. `None`: the client is not
    /// connected, or its identity is unknown.
    pub identity: Option<String>,
    /// Whether the holder's client has a connection to any master. If it has none, its process has perhaps ended, or is cut off.
    ///
    /// `None`: it cannot be known. It is Redisson or an older version of lockkeeper, the server refused to name its connections, or this
    /// user has no right to `CLIENT LIST`.
    pub is_connected: Option<bool>,
    /// For how long the owner has held the lock. `None`: its client does not tell that. A client of lockkeeper tells it of a hold that is
    /// older than a second, within two seconds. It tells of about 500 holds and calls that wait, the oldest first. It does not tell of a permit,
    /// of a hold with a fixed lease without `+client|tracking`, or of anything with [`diagnosis`](crate::LockConfigBuilder::diagnosis) switched
    /// off. Redisson never does.
    /// Only clients with the same [`name_prefix`](crate::LockConfigBuilder::name_prefix) are asked.
    #[serde(rename = "held_for_ms", with = "millis")]
    pub held_for: Option<Duration>,
    /// Where in its program the owner acquired the lock: file and line. `None`: as for `held_for`.
    pub acquired_at: Option<String>,
}

/// A hold that its client tells, see [`LockClient::list_holds`](crate::LockClient::list_holds).
///
/// ```no_run
/// # fn demo(hold: lockkeeper::HoldInfo) {
/// println!("{} is held by {} since {:?}, at {}", hold.lock, hold.identity, hold.held_for, hold.acquired_at);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HoldInfo {
    /// The name of the lock: its key, without the `name_prefix` of the configuration.
    pub lock: String,
    /// The type of the lock, as metrics name it.
    pub kind: String,
    /// The id of the owner, as in [`Holder::owner`].
    pub owner: String,
    /// The client, as in [`Holder::identity`].
    pub identity: String,
    /// For how long the owner has held the lock.
    #[serde(rename = "held_for_ms", serialize_with = "age_in_millis")]
    pub held_for: Duration,
    /// Where in its program the owner acquired the lock: file and line.
    pub acquired_at: String,
}

/// The first half of the id of the client that made a permit id. A random id of Java looks like one of ours once in 2³⁶ times: this
/// library counts from 1, and its clients have UUIDs of version 8 or 4.
fn client_of(permit: &str) -> Option<String> {
    let id = permit.to_ascii_lowercase();
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_ours = is_id && matches!(id.get(12..13), Some("4" | "8")) && id.get(16..24) == Some("00000000");
    is_ours.then(|| [&id[..8], &id[8..12], &id[12..16]].join("-"))
}

/// How long a lock stays held if nobody renews or releases it. With serde, it is the number of milliseconds, or null for `Endless`.
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::RemainingLease;
/// assert_eq!(RemainingLease::For(Duration::from_millis(7_040)).to_string(), "ends in 7.0 s");
/// assert_eq!(RemainingLease::Endless.to_string(), "never ends");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(into = "Option<u64>", from = "Option<u64>")]
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
    /// `found`: what a scan found, and `None` for a name that was asked for. `None`: the lock is free.
    pub(crate) fn from_server(
        name: &str,
        found: Option<&Found>,
        listing: Listing,
        clients: &Clients,
    ) -> Option<Self> {
        let Listing { is_read_write, permits, .. } = listing;
        let lease = listing.lease().or_else(|| permits.map(|_| LeaseLeft::Ended))?;
        let alive = listing.holders.into_iter().filter(|holding| holding.lease != LeaseLeft::Ended);
        let holders: Vec<_> = alive.map(|holding| Holder::from_server(holding, clients)).collect();
        let kind = match found {
            _ if is_read_write && holders.iter().any(|holder| holder.owner.ends_with(":write")) => {
                LockKind::Write
            }
            _ if is_read_write => LockKind::Read,
            _ if permits.is_some() => LockKind::Semaphore,
            Some(Found { kind: FoundKind::Semaphore, .. }) => LockKind::Semaphore,
            Some(Found { queued: 1.., .. }) => LockKind::Fair,
            Some(Found { has_counter: true, .. }) => LockKind::Fenced,
            _ => LockKind::Reentrant,
        };
        Some(Self {
            name: name.to_owned(),
            kind,
            holders,
            permits,
            remaining_lease: RemainingLease::from_server(lease),
            queued: found.map(|found| found.queued),
            listeners: found.map(|found| found.listeners),
        })
    }
}

impl Holder {
    pub(crate) fn from_server(holding: Holding, clients: &Clients) -> Self {
        let Holding { field: owner, holds, lease, .. } = holding;
        let client = match owner.split_once(':') {
            Some((client, _)) => Some(client.to_owned()),
            None => client_of(&owner),
        };
        let known = client.as_deref().and_then(|client| clients.of(client));
        let hold = clients.hold(&owner);
        Self {
            holds,
            remaining_lease: RemainingLease::from_server(lease),
            identity: known.flatten().map(str::to_owned),
            is_connected: known.map(|identity| identity.is_some()),
            held_for: hold.map(Hold::age),
            acquired_at: hold.map(|hold| hold.at.to_string()),
            owner,
            client,
        }
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

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_connected, &self.identity) {
            (Some(false), _) => write!(f, "not connected ({})", self.owner),
            (_, Some(identity)) => write!(f, "{identity} ({})", self.owner),
            (_, None) => f.write_str(&self.owner),
        }
    }
}

impl fmt::Display for RemainingLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => {
                let tenths = time.as_millis() / 100; // rounded down: never more than what is left
                write!(f, "ends in {}.{} s", tenths / 10, tenths % 10)
            }
            Self::Endless => f.write_str("never ends"),
        }
    }
}

impl fmt::Display for LockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.kind)?;
        if let Some(permits) = self.permits {
            write!(f, ", {} of {permits} permits in use", self.holders.len())?;
        }
        for (index, holder) in self.holders.iter().enumerate() {
            write!(f, "{}{holder}", if index == 0 { ", held by " } else { ", " })?;
        }
        if self.holders.is_empty() { Ok(()) } else { write!(f, ", {}", self.remaining_lease) }
    }
}

impl From<RemainingLease> for Option<u64> {
    fn from(left: RemainingLease) -> Self {
        left.duration().map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Option<u64>> for RemainingLease {
    fn from(left: Option<u64>) -> Self {
        left.map_or(Self::Endless, |ms| Self::For(Duration::from_millis(ms)))
    }
}

/// A time in milliseconds, for serde.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option)] // serde passes a reference to the option
    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}

pub(crate) fn age_in_millis<S: Serializer>(age: &Duration, to: S) -> Result<S::Ok, S::Error> {
    millis::serialize(&Some(*age), to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> Holder {
        Holder {
            owner: "uuid:7".to_owned(),
            client: Some("uuid".to_owned()),
            holds: 2,
            remaining_lease: RemainingLease::For(Duration::from_millis(27_450)),
            identity: Some("worker@web-1:4711".to_owned()),
            is_connected: Some(true),
            held_for: Some(Duration::from_secs(12)),
            acquired_at: Some("src/main.rs:7".to_owned()),
        }
    }

    fn info() -> LockInfo {
        LockInfo {
            name: "lock:a".to_owned(),
            kind: LockKind::Fair,
            holders: vec![holder()],
            permits: None,
            remaining_lease: RemainingLease::For(Duration::from_millis(27_450)),
            queued: Some(3),
            listeners: Some(0),
        }
    }

    #[test]
    fn each_text_stands_alone() {
        assert_eq!(holder().to_string(), "worker@web-1:4711 (uuid:7)");
        let unknown = Holder { identity: None, is_connected: None, ..holder() };
        assert_eq!(unknown.to_string(), "uuid:7");
        let gone = Holder { is_connected: Some(false), ..unknown };
        assert_eq!(gone.to_string(), "not connected (uuid:7)");
        assert_eq!(info().to_string(), "lock:a: fair, held by worker@web-1:4711 (uuid:7), ends in 27.4 s");
        let endless = LockInfo { remaining_lease: RemainingLease::Endless, kind: LockKind::Write, ..info() };
        assert_eq!(endless.to_string(), "lock:a: write, held by worker@web-1:4711 (uuid:7), never ends");
        let semaphore =
            LockInfo { kind: LockKind::Semaphore, holders: Vec::new(), permits: Some(3), ..info() };
        assert_eq!(semaphore.to_string(), "lock:a: semaphore, 0 of 3 permits in use");
    }

    #[test]
    fn what_is_written_as_json_is_read_back() {
        let endless = Holder { remaining_lease: RemainingLease::Endless, held_for: None, ..holder() };
        let info = LockInfo { holders: vec![holder(), endless], kind: LockKind::Reentrant, ..info() };
        let json = serde_json::to_value(&info).expect("plain data");
        assert_eq!(
            json,
            serde_json::json!({
                "name": "lock:a", "kind": "rlock", "permits": null, "expires_in_ms": 27_450, "queued": 3, "listeners": 0,
                "holders": [
                    {"owner": "uuid:7", "client": "uuid", "holds": 2, "expires_in_ms": 27_450,
                     "identity": "worker@web-1:4711", "is_connected": true, "held_for_ms": 12_000,
                     "acquired_at": "src/main.rs:7"},
                    {"owner": "uuid:7", "client": "uuid", "holds": 2, "expires_in_ms": null,
                     "identity": "worker@web-1:4711", "is_connected": true, "held_for_ms": null,
                     "acquired_at": "src/main.rs:7"},
                ],
            })
        );
        assert_eq!(serde_json::from_value::<LockInfo>(json).expect("the same"), info);
    }
}
