//! Several locks as one: Redisson's `RedissonMultiLock` and `RedissonRedLock`.

use std::future::Future;
use std::time::Duration;

use super::BaseLock;
use super::sealed::Lock;
use crate::engine::{Handle, Patience, Quorum};
use crate::error::Result;
use crate::guard::LockGuard;

/// A handle that becomes part of a [`MultiLock`] or a [`RedLock`]. Every type of lock is one `into`.
#[derive(Debug)]
pub struct Member(pub(super) Handle);

/// Several locks that are had together or not at all: Redisson's `RedissonMultiLock`.
///
/// They can be of any types, on any servers. Those that are had while another is not are given back before it waits, so
/// nobody waits with a lock in hand; and they are taken in an order that all clients share, by their names, so opposite
/// orders do not come into each other's way. For the same reason a fair lock among them loses its place when another
/// can not be had.
///
/// It is held as long as all of them are. [`is_locked`](Self::is_locked) says whether all are held by anybody,
/// [`remaining_lease`](Self::remaining_lease) when the first ends, [`hold_count`](Self::hold_count) the least of their
/// counts; [`force_unlock`](Self::force_unlock) ends all holds there are; [`name`](Self::name) is all their names.
///
/// How long a call goes on through faults is what the client of one of them says, so give their clients the same settings.
/// When one of these clients is shut down, the whole is closed. Those who wait in one process are served in no particular
/// order. What an [`Owner`](crate::Owner) lends can not be a member.
///
/// # Examples
///
/// ```no_run
/// # use lockkeeper::{LockClient, Member, MultiLock};
/// # async fn demo(locks: LockClient) -> lockkeeper::Result<()> {
/// let mut both = MultiLock::new([locks.rlock("account:1"), locks.rlock("account:2")])?;
/// let guard = both.lock().await?;
/// guard.unlock().await?;
///
/// let mut mixed = MultiLock::new([Member::from(locks.rlock("a")), locks.fair_lock("b").into()])?;
/// # drop(mixed.try_lock().await?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct MultiLock(Handle);

/// A lock on several independent servers, of which a majority is enough: Redisson's `RedissonRedLock`, after the
/// [algorithm](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/) of Redis's author.
///
/// With three servers one may fail, with five two: acquiring, renewing and releasing go on at the pace of the others. The
/// guard is lost when less than a majority can be proven to be held. Of the answers of the trait's questions, a majority
/// counts: whether so many are held by anybody, and until when. The rest is as for a [`MultiLock`]; and each client has to
/// find its server when it is made, also for a lock that could do without it later.
///
/// # What it does not promise
///
/// A server that restarts without its data grants again what it had granted. If a member was not had from the beginning,
/// because its server was away, one more that forgets is enough for a second majority: until the first holder renews,
/// both have it. So give the servers persistence, or start one that lost its data only after the longest lease has ended.
/// Where two at work would be a disaster, a majority does not replace a [fencing token](crate::FencedLock).
///
/// # Examples
///
/// ```no_run
/// # use lockkeeper::{LockClient, RedLock};
/// # async fn demo() -> lockkeeper::Result<()> {
/// let mut members = Vec::new();
/// for url in ["redis://one/", "redis://two/", "redis://three/"] {
///     members.push(LockClient::connect(url).await?.rlock("orders:42"));
/// }
/// let guard = RedLock::new(members)?.lock().await?;
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct RedLock(Handle);

impl MultiLock {
    /// Of these handles, which it takes with what they hold. A `lease` or `max_hold` that all of them have becomes its own.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidMembers`](crate::Error::InvalidMembers): there are none, one is among them twice, or they have
    /// different leases.
    pub fn new<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> Result<Self> {
        join(members, Quorum::All).map(Self)
    }
}

impl RedLock {
    /// Of these handles, which it takes with what they hold. A `lease` or `max_hold` that all of them have becomes its own.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidMembers`](crate::Error::InvalidMembers): there are none, or two; two of them are on one server, by
    /// whatever address; a server does not say which it is, as the user may not call `INFO`; or they have different
    /// leases.
    pub fn new<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> Result<Self> {
        join(members, Quorum::Majority).map(Self)
    }
}

fn join<M: Into<Member>>(members: impl IntoIterator<Item = M>, quorum: Quorum) -> Result<Handle> {
    Handle::joined(members.into_iter().map(|member| member.into().0).collect(), quorum)
}

lock_type!(MultiLock);
lock_type!(RedLock);
