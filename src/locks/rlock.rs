//! The reentrant lock.

use super::lock::Lock;
use crate::protocol;

/// A reentrant lock: its owner can acquire the lock again while it holds the lock. Redisson's `RLock`.
///
/// Within one client, waiters are granted the lock in the order of their calls. Between clients there is no order; a
/// [`FairLock`](crate::FairLock) has one.
///
/// In Redis the lock is one hash, from the owner to its hold count. The expiry of the hash is the lease.
///
/// A field of a struct has the type `RLock<'static>`, and an argument of a function `&mut RLock<'_>`, see [`Lock`](crate::Lock#a-handle-is-an-owner).
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut lock = locks.rlock("lock:orders:42");
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?; // the same handle is the same owner: two holds
/// inner.unlock().await?;
/// outer.unlock().await?; // now the lock is free
/// # Ok(()) }
/// ```
pub type RLock<'a> = Lock<'a, protocol::Reentrant>;
