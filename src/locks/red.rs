//! Several locks as one: a majority of them.

use super::lock::Lock;
use super::multi::{Member, join};
use crate::base::error::ConfigError;
use crate::protocol::LockType;

/// A lock on several independent servers that needs a majority of them. Redisson's `RedissonRedLock`.
///
/// The algorithm is [Redlock](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), by the author of Redis.
///
/// A call tries all servers at once. If fewer than a majority grant the lock, it releases those, pauses for a random time, and waits
/// for the first server that refused.
///
/// One of three servers can fail, or two of five: acquiring, renewing and releasing continue at the pace of the others. The guard
/// is lost when it can no longer be proven that a majority is held. [`is_locked`](Lock::is_locked) and
/// [`remaining_lease`](Lock::remaining_lease) say what is true of a majority. [`force_unlock`](Lock::force_unlock) releases the members that answer
/// in time, and fails if these are no majority. Otherwise a `RedLock` is like a
/// [`MultiLock`](crate::MultiLock). Each client has to reach its server when the client is made.
///
/// # A majority does not survive data loss
///
/// A server that restarts without its data grants again what it had granted before. Suppose that one member was never acquired,
/// because its server was down, and that the server of another member loses its data. Then a second client can acquire a
/// majority. Until the first holder renews, both have the lock. Give the servers persistence, or start a server that lost its
/// data only after the longest lease has ended. Where two holders would be a disaster, use a [fencing token](crate::FencedLock).
///
/// ```no_run
/// # use lockkeeper::{LockClient, RedLock};
/// # async fn demo() -> lockkeeper::Result<()> {
/// let mut members = Vec::new();
/// for url in ["redis://one/", "redis://two/", "redis://three/"] {
///     members.push(LockClient::connect(url).await?.rlock("lock:orders:42"));
/// }
/// let guard = RedLock::new(members)?.lock().await?;
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
pub type RedLock = Lock<'static, Red>;

/// The kind of a [`RedLock`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Red {}

impl Lock<'static, Red> {
    /// Combines these handles, including their current holds. Their [options](Lock::with) apply to the whole lock, the group only
    /// if all have the same. No network call.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]:
    ///
    /// - There are no members, or only two.
    /// - Two members are on one server or in one cluster, by any address.
    /// - A server did not tell who it is, because the user has no right to call `INFO`.
    /// - The options of the members differ.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, RedLock};
    /// # fn demo(clients: Vec<LockClient>) -> lockkeeper::Result<()> {
    /// let lock = RedLock::new(clients.iter().map(|client| client.rlock("lock:orders:42")))?;
    /// # Ok(()) }
    /// ```
    pub fn new<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> Result<Self, ConfigError> {
        join(members, LockType::Red)
    }
}
