//! The read-write lock: one owner with two locks.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::base::BaseLock;
use super::owner_lock::OwnerLock;
use super::sides::{ReadLock, WriteLock};
use crate::base::error::Result;
use crate::engine::{Engine, Handle, OwnerGrants};
use crate::protocol::{Read, Write};

/// A lock that many owners can hold to read, or one owner to write. Redisson's `RReadWriteLock`.
///
/// A `ReadWriteLock` is one owner with two locks. An owner that holds the write lock can acquire the read lock, too. If it then
/// releases the write lock first, waiting readers are admitted at once. An owner that holds the read lock cannot acquire the
/// write lock, because it would wait for itself: the call returns
/// [`Error::UpgradeWouldDeadlock`](crate::Error::UpgradeWouldDeadlock).
///
/// A writer that has waited for [`writer_patience`](crate::LockConfigBuilder::writer_patience) stops new readers for a turn, so
/// continuous readers do not starve it. A reader's `try_lock` can return `None` meanwhile.
///
/// [`lease`](Self::lease) and [`max_hold`](Self::max_hold) apply to both sides. To set them for one side, take that side alone:
/// `locks.read_write_lock("lock:cache").into_read().lease(d)?`.
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
pub struct ReadWriteLock<R = ReadLock, W = WriteLock> {
    read: R,
    write: W,
}

impl ReadWriteLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, owner: Arc<OwnerGrants>) -> Self {
        let write = WriteLock(Handle::single(engine, &Write, name, Arc::clone(&owner)));
        Self { read: ReadLock(Handle::single(engine, &Read, name, owner)), write }
    }

    pub(crate) fn of_owner<'a>(self) -> ReadWriteLock<OwnerLock<'a, ReadLock>, OwnerLock<'a, WriteLock>> {
        ReadWriteLock { read: OwnerLock::new(self.read), write: OwnerLock::new(self.write) }
    }
}

impl<R: BaseLock, W: BaseLock> ReadWriteLock<R, W> {
    /// Returns the name, as it was given. Asks no server.
    ///
    /// ```no_run
    /// # fn demo(locks: lockkeeper::LockClient) {
    /// assert_eq!(locks.read_write_lock("lock:cache").name(), "lock:cache");
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.read.handle().name()
    }

    /// Returns the side to read. Asks no server.
    ///
    /// ```no_run
    /// # async fn demo(mut cache: lockkeeper::ReadWriteLock) -> lockkeeper::Result<()> {
    /// let guard = cache.read().lock().await?;
    /// # Ok(()) }
    /// ```
    pub const fn read(&mut self) -> &mut R {
        &mut self.read
    }

    /// Returns the side to write. Asks no server.
    ///
    /// ```no_run
    /// # async fn demo(mut cache: lockkeeper::ReadWriteLock) -> lockkeeper::Result<()> {
    /// let guard = cache.write().lock().await?;
    /// # Ok(()) }
    /// ```
    pub const fn write(&mut self) -> &mut W {
        &mut self.write
    }

    /// Returns the side to read, alone. Asks no server.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, ReadLock};
    /// fn reader(locks: &LockClient) -> ReadLock {
    ///     locks.read_write_lock("lock:cache").into_read()
    /// }
    /// ```
    pub fn into_read(self) -> R {
        self.read
    }

    /// Returns the side to write, alone. Asks no server.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, WriteLock};
    /// fn writer(locks: &LockClient) -> WriteLock {
    ///     locks.read_write_lock("lock:cache").into_write()
    /// }
    /// ```
    pub fn into_write(self) -> W {
        self.write
    }

    /// Sets a fixed lease for both sides, see [`ReadLock::lease`]. Asks no server.
    ///
    /// # Errors
    ///
    /// [`InvalidDuration`](crate::Error::InvalidDuration), as for [`ReadLock::lease`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let cache = locks.read_write_lock("lock:cache").lease(Duration::from_secs(60))?;
    /// # Ok(()) }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Result<Self> {
        self.read.handle_mut().set_lease(lease)?;
        self.write.handle_mut().set_lease(lease)?;
        Ok(self)
    }

    /// Sets the longest hold for both sides, see [`ReadLock::max_hold`]. Asks no server.
    ///
    /// # Errors
    ///
    /// [`InvalidDuration`](crate::Error::InvalidDuration), as for [`ReadLock::lease`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let cache = locks.read_write_lock("lock:cache").max_hold(Duration::from_secs(60))?;
    /// # Ok(()) }
    /// ```
    pub fn max_hold(mut self, most: Duration) -> Result<Self> {
        self.read.handle_mut().set_max_hold(most)?;
        self.write.handle_mut().set_max_hold(most)?;
        Ok(self)
    }

    /// Sets the minimum hold time of both sides, see [`ReadLock::hold_at_least`]. Asks no server.
    ///
    /// # Errors
    ///
    /// [`InvalidDuration`](crate::Error::InvalidDuration), as for [`ReadLock::hold_at_least`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let cache = locks.read_write_lock("lock:cache").hold_at_least(Duration::from_secs(20))?;
    /// # Ok(()) }
    /// ```
    pub fn hold_at_least(mut self, least: Duration) -> Result<Self> {
        self.read.handle_mut().set_least_hold(least)?;
        self.write.handle_mut().set_least_hold(least)?;
        Ok(self)
    }

    /// Sets the group of both sides, see [`ReadLock::group`]. Asks no server.
    ///
    /// # Errors
    ///
    /// [`InvalidGroup`](crate::Error::InvalidGroup), as for [`ReadLock::group`].
    ///
    /// ```no_run
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let cache = locks.read_write_lock("lock:cache").group("caches")?;
    /// # Ok(()) }
    /// ```
    pub fn group(mut self, group: impl Into<Cow<'static, str>>) -> Result<Self> {
        let group = group.into();
        self.read.handle_mut().set_group(group.clone())?;
        self.write.handle_mut().set_group(group)?;
        Ok(self)
    }
}
