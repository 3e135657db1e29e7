//! The read-write lock: Redisson's `RReadWriteLock`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::sealed::Lock;
use super::{BaseLock, Lent};
use crate::engine::{Engine, Handle, Holds, Kind, Patience, Whose, millis};
use crate::error::Result;
use crate::guard::LockGuard;
use crate::names::{self, Keys};
use crate::script::{self, Arg, Batch, Call, Row};

/// A lock that many can have to read, or one to write: Redisson's `RReadWriteLock`.
///
/// It is one owner with two locks. Who has the write lock can take the read lock as well, and keep it when it gives the
/// write lock back: then those who wait to read enter at once. The other way, from reading to writing, would be waiting
/// for oneself, and is [`Error::Upgrade`](crate::Error::Upgrade).
///
/// Who wants to read enters whenever nobody writes, also past those who wait to write. So where somebody always reads,
/// nobody ever writes.
///
/// [`lease`](Self::lease) and [`max_hold`](Self::max_hold) are for both. For one, take it alone, or from an
/// [`Owner`](crate::Owner): `me.read_write_lock("cache").lease(d).into_read()`.
///
/// # Examples
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut cache = locks.read_write_lock("cache");
/// let writing = cache.write().lock().await?; // alone
/// let reading = cache.read().lock().await?; // the same owner
/// writing.unlock().await?; // from here on others can read, too
/// reading.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct ReadWriteLock<R = ReadLock, W = WriteLock> {
    read: R,
    write: W,
}

/// The side of a [`ReadWriteLock`] that many can have together.
///
/// Each hold has a lease of its own. A reader that died counts until that ends, however long others read.
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct ReadLock(Handle);

/// The side of a [`ReadWriteLock`] that excludes all others.
///
/// It waits for all who read, and more may come meanwhile: it is had when nobody reads.
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct WriteLock(Handle);

impl ReadWriteLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, holds: Arc<Holds>) -> Self {
        let write = WriteLock(Handle::single(engine, &Write, name, Arc::clone(&holds)));
        Self { read: ReadLock(Handle::single(engine, &Read, name, holds)), write }
    }

    pub(crate) fn lent<'a>(self) -> ReadWriteLock<Lent<'a, ReadLock>, Lent<'a, WriteLock>> {
        ReadWriteLock { read: Lent::new(self.read), write: Lent::new(self.write) }
    }
}

impl<R: BaseLock, W: BaseLock> ReadWriteLock<R, W> {
    /// The name, as it was given.
    pub fn name(&self) -> &str {
        self.read.name()
    }

    /// The lock to read.
    pub const fn read(&mut self) -> &mut R {
        &mut self.read
    }

    /// The lock to write.
    pub const fn write(&mut self) -> &mut W {
        &mut self.write
    }

    /// The lock to read, alone.
    pub fn into_read(self) -> R {
        self.read
    }

    /// The lock to write, alone.
    pub fn into_write(self) -> W {
        self.write
    }

    /// Takes either lock for a fixed time, see [`ReadLock::lease`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.read.handle_mut().terms.lease = Some(lease);
        self.write.handle_mut().terms.lease = Some(lease);
        self
    }

    /// Takes either lock for no longer than this, see [`ReadLock::max_hold`].
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.read.handle_mut().terms.max_hold = Some(most);
        self.write.handle_mut().terms.max_hold = Some(most);
        self
    }
}

lock_type!(ReadLock);
member_type!(ReadLock);
lock_type!(WriteLock);
member_type!(WriteLock);

#[derive(Debug)]
struct Read;

#[derive(Debug)]
struct Write;

/// What stands behind the owner's id in the field of a write hold.
const WRITER: &str = ":write";

const FAMILY: &str = "a read-write lock";

fn writer(whose: Whose<'_>) -> Arg {
    Arg::Text(format!("{}{WRITER}", whose.owner).into())
}

impl Kind for Read {
    fn family(&self) -> &'static str {
        FAMILY
    }

    fn keys(&self, lock: Arc<str>) -> Keys {
        Keys::new(lock, names::read_write_channel, [])
    }

    fn attempt(&self, whose: Whose<'_>, want: u32, lease: Duration, _queue: bool) -> Call {
        let Whose { keys, owner, grant, .. } = whose;
        match want {
            1 => script::read_acquire(&keys.lock, owner, grant, millis(lease)),
            _ => script::read_reenter(&keys.lock, owner, grant, want, millis(lease)),
        }
    }

    fn release(&self, whose: Whose<'_>, keep: u32) -> Call {
        let Whose { keys, owner, grant, config } = whose;
        script::read_release(&keys.lock, &keys.channel, owner, grant, keep, millis(config.watchdog_lease))
    }

    fn renewal(&self) -> &'static Batch {
        &script::READ_RENEW
    }

    fn keep_alive(&self, whose: Whose<'_>, left: Duration) -> Row {
        let Whose { keys, owner, grant, .. } = whose;
        Row {
            keys: smallvec![Arc::clone(&keys.lock)],
            args: smallvec![owner.into(), grant.into(), millis(left).into()],
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn is_read_write(&self) -> bool {
        true
    }

    fn owner<'a>(&self, field: &'a str) -> Option<&'a str> {
        Some(field).filter(|field| !field.ends_with(WRITER))
    }
}

impl Kind for Write {
    fn family(&self) -> &'static str {
        FAMILY
    }

    fn keys(&self, lock: Arc<str>) -> Keys {
        Keys::new(lock, names::read_write_channel, [])
    }

    fn attempt(&self, whose: Whose<'_>, want: u32, lease: Duration, _queue: bool) -> Call {
        match want {
            1 => script::write_acquire(&whose.keys.lock, writer(whose), millis(lease)),
            _ => script::rlock_reenter(&whose.keys.lock, writer(whose), want, millis(lease)),
        }
    }

    fn release(&self, whose: Whose<'_>, keep: u32) -> Call {
        script::write_release(&whose.keys.lock, &whose.keys.channel, writer(whose), keep)
    }

    fn renewal(&self) -> &'static Batch {
        &script::RLOCK_RENEW
    }

    fn keep_alive(&self, whose: Whose<'_>, _left: Duration) -> Row {
        Row { keys: smallvec![Arc::clone(&whose.keys.lock)], args: smallvec![writer(whose)] }
    }

    fn is_read_write(&self) -> bool {
        true
    }

    fn owner<'a>(&self, field: &'a str) -> Option<&'a str> {
        field.strip_suffix(WRITER)
    }
}
