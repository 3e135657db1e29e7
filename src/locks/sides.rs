//! The two sides of a read-write lock.

use crate::engine::Handle;
use crate::locks::guard::LockGuard;

/// The side of a [`ReadWriteLock`](super::ReadWriteLock) that many owners can hold together.
///
/// Each hold has its own lease. A dead reader counts until its lease ends, however long others read.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.read_write_lock("lock:cache").read().lock().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct ReadLock(pub(super) Handle);

/// The side of a [`ReadWriteLock`](super::ReadWriteLock) that excludes all other owners.
///
/// A writer waits until nobody reads. Meanwhile, more readers can be admitted.
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.read_write_lock("lock:cache").write().lock().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct WriteLock(pub(super) Handle);

lock_type!(ReadLock, LockGuard);
lock_type!(WriteLock, LockGuard);
