//! Several locks as one: all of them.

use super::base::Single;
use super::lock::Lock;
use super::several::Locks;
use crate::base::error::ConfigError;
use crate::protocol::LockType;

/// A handle that becomes part of a [`MultiLock`] or a [`RedLock`](crate::RedLock). A handle of every type converts into it.
///
/// ```no_run
/// # use lockkeeper::{LockClient, Member, MultiLock};
/// # fn demo(locks: LockClient) -> lockkeeper::Result<()> {
/// let mixed = MultiLock::new([Member::from(locks.rlock("lock:a")), locks.fair_lock("lock:b").into()])?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Member(pub(super) Locks);

/// Several locks that are acquired together or not at all. Redisson's `RedissonMultiLock`.
///
/// The members can be of all types, on all servers. A call waits for one member, and then tries all others at once. If one of them is
/// not granted, the call releases all, and waits for that one. So a waiter holds nothing, and clients that name the members in opposite
/// orders do not block each other. A fair lock among the members has an order only for the calls that wait for it: a call that waited
/// for another member acquires the fair lock only if nobody waits for it.
///
/// The lock is held while all members are held. [`is_locked`](Lock::is_locked) returns whether every member is held by somebody.
/// [`remaining_lease`](Lock::remaining_lease) is the shortest lease of the members, and [`hold_count`](Lock::hold_count) the
/// least of their counts. [`force_unlock`](Lock::force_unlock) releases all members, and
/// returns whether any was held. [`name`](Lock::name) returns all their
/// names.
///
/// - Each member is watched and reported by itself: a `tracing` event of a loss names the member, and in
///   [metrics](crate::guide::operate) each member is a hold. When one is lost, the others stay held until the guard ends.
/// - The time of [`try_lock_for`](Lock::try_lock_for) is one limit for all members together. A member that does not answer can add a
///   `command_timeout`.
/// - An error of one member, such as a server that does not answer, names that member. `NotHeld` and `Lost` name all, with the cause of the first
///   member that was lost. A `WARN` about a long wait, and [`recent_waits`](crate::LockClient::recent_waits), name the member for which the call waits.
/// - Give all clients the same settings: the client of a member decides how long the call continues through its faults.
/// - When the client of one member is shut down, no call acquires the lock any more.
/// - Waiters in one process are granted the lock in no particular order.
/// - A handle that an [`Owner`](crate::Owner) lends cannot be a member, because a member lives as long as the lock. Nested
///   work that needs several locks can share the `MultiLock` itself, by `&mut`: a `MultiLock` is an owner, so its second
///   `lock()` re-enters.
///
/// ```no_run
/// # use lockkeeper::{LockClient, MultiLock};
/// # async fn demo(locks: LockClient) -> lockkeeper::Result<()> {
/// let mut both = MultiLock::new([locks.rlock("lock:account:1"), locks.rlock("lock:account:2")])?;
/// let guard = both.lock().await?;
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
pub type MultiLock = Lock<'static, Multi>;

/// The kind of a [`MultiLock`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Multi {}

impl Lock<'static, Multi> {
    /// Combines these handles, including their current holds. Their [options](Lock::with) apply to the whole lock, the group only
    /// if all have the same. No network call.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: there are no members, one lock is among them twice, or their options differ.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, MultiLock};
    /// # fn demo(locks: LockClient) -> lockkeeper::Result<()> {
    /// let names = ["lock:a", "lock:b", "lock:c"];
    /// let all = MultiLock::new(names.map(|name| locks.rlock(name)))?;
    /// # Ok(()) }
    /// ```
    pub fn new<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> Result<Self, ConfigError> {
        join(members, LockType::Multi)
    }
}

impl<K: Single> From<Lock<'static, K>> for Member {
    fn from(lock: Lock<'static, K>) -> Self {
        Self(lock.0)
    }
}

pub(super) fn join<M: Into<Member>, K>(
    members: impl IntoIterator<Item = M>,
    lock_type: LockType,
) -> Result<Lock<'static, K>, ConfigError> {
    Locks::join(members.into_iter().map(|member| member.into().0), lock_type).map(Lock::of)
}
