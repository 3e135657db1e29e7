//! The read-write lock: one owner with two locks.

use std::sync::Arc;

use super::lock::Lock;
use super::several::Locks;
use crate::base::options::LockOptions;
use crate::engine::{Engine, Handle, LockRef, OwnerGrants};
use crate::protocol;

/// The side of a [`ReadWriteLock`] that many owners can hold together.
///
/// Each hold has its own lease. A dead reader counts until its lease ends, however long others read.
///
/// A field of a struct has the type `ReadLock<'static>`, and an argument of a function `&mut ReadLock<'_>`, see [`Lock`](crate::Lock#a-handle-is-an-owner).
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.read_write_lock("lock:cache").read().lock().await?;
/// # Ok(()) }
/// ```
pub type ReadLock<'a> = Lock<'a, protocol::Read>;

/// The side of a [`ReadWriteLock`] that excludes all other owners.
///
/// A writer waits until nobody reads. When it has waited for 20 ms, it stops new readers, see [`ReadWriteLock`].
///
/// A field of a struct has the type `WriteLock<'static>`, and an argument of a function `&mut WriteLock<'_>`, see [`Lock`](crate::Lock#a-handle-is-an-owner).
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.read_write_lock("lock:cache").write().lock().await?;
/// # Ok(()) }
/// ```
pub type WriteLock<'a> = Lock<'a, protocol::Write>;

/// A lock that many owners can hold to read, or one owner to write. Redisson's `RReadWriteLock`.
///
/// A `ReadWriteLock` is one owner with two locks. An owner that holds the write lock can acquire the read lock, too. If it then
/// releases the write lock first, waiting readers are admitted at once. An owner that holds the read lock cannot acquire the
/// write lock, because it would wait for itself: the call returns
/// [`Error::UpgradeWouldDeadlock`](crate::Error::UpgradeWouldDeadlock).
///
/// A writer that has waited for 20 ms stops new readers for at most [`writer_turn`](crate::LockConfigBuilder::writer_turn), so
/// continuous readers do not starve it. A reader's `try_lock` can return `None` meanwhile.
///
/// [`with`](ReadWriteLock::with) applies to both sides. To set options of one side, take that side alone:
/// `locks.read_write_lock("lock:cache").into_read().with(&options)`.
///
/// A field of a struct has the type `ReadWriteLock<'static>`, and an argument of a function `&mut ReadWriteLock<'_>`, see [`Lock`](crate::Lock#a-handle-is-an-owner).
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut cache = locks.read_write_lock("lock:cache");
/// let writing = cache.write().lock().await?; // alone
/// let reading = cache.read().lock().await?; // the same owner
/// writing.unlock().await?; // from here on others can read, too
/// reading.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct ReadWriteLock<'a> {
    read: ReadLock<'a>,
    write: WriteLock<'a>,
}

impl<'a> ReadWriteLock<'a> {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, owner: Arc<OwnerGrants>) -> Self {
        let write = Handle::of(LockRef::new(engine, &protocol::Write, name), owner);
        let read = write.other_side(&protocol::Read);
        Self { read: Lock::of(Locks::one(read)), write: Lock::of(Locks::one(write)) }
    }

    /// Returns the name, as it was given. No network call.
    ///
    /// ```no_run
    /// # fn demo(locks: lockkeeper::LockClient) {
    /// assert_eq!(locks.read_write_lock("lock:cache").name(), "lock:cache");
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.read.name()
    }

    /// Returns the side to read. No network call.
    ///
    /// ```no_run
    /// # async fn demo(mut cache: lockkeeper::ReadWriteLock<'_>) -> lockkeeper::Result<()> {
    /// let guard = cache.read().lock().await?;
    /// # Ok(()) }
    /// ```
    pub const fn read(&mut self) -> &mut ReadLock<'a> {
        &mut self.read
    }

    /// Returns the side to write. No network call.
    ///
    /// ```no_run
    /// # async fn demo(mut cache: lockkeeper::ReadWriteLock<'_>) -> lockkeeper::Result<()> {
    /// let guard = cache.write().lock().await?;
    /// # Ok(()) }
    /// ```
    pub const fn write(&mut self) -> &mut WriteLock<'a> {
        &mut self.write
    }

    /// Returns the side to read, alone. No network call.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, ReadLock};
    /// fn reader(locks: &LockClient) -> ReadLock<'static> {
    ///     locks.read_write_lock("lock:cache").into_read()
    /// }
    /// ```
    pub fn into_read(self) -> ReadLock<'a> {
        self.read
    }

    /// Returns the side to write, alone. No network call.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, WriteLock};
    /// fn writer(locks: &LockClient) -> WriteLock<'static> {
    ///     locks.read_write_lock("lock:cache").into_write()
    /// }
    /// ```
    pub fn into_write(self) -> WriteLock<'a> {
        self.write
    }

    /// Sets the options of both sides, see [`Lock::with`](crate::Lock::with). No network call.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let minute = LockOptions::builder().fixed(Duration::from_secs(60)).build()?;
    /// let cache = locks.read_write_lock("lock:cache").with(&minute);
    /// # Ok(()) }
    /// ```
    pub fn with(self, options: &LockOptions) -> Self {
        Self { read: self.read.with(options), write: self.write.with(options) }
    }
}
