//! The fair lock.

use super::lock::Lock;
use crate::protocol;

/// A lock that is granted in request order, across all processes. Redisson's fair lock.
///
/// Waiters stand in a queue on the server. A process sends heartbeats for its waiters, after each third of `fair_allowance`. The waiters of
/// a process that died are skipped 4/3 of `fair_allowance` after its last heartbeat. Otherwise a
/// fair lock is like an [`RLock`](crate::RLock).
///
/// # Names with braces
///
/// Redisson derives the same queue from the names `x` and `{x}`, so use only one of them: the two locks would delay each other.
///
/// A field of a struct has the type `FairLock<'static>`, and an argument of a function `&mut FairLock<'_>`, see [`Lock`](crate::Lock#a-handle-is-an-owner).
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.fair_lock("lock:jobs").lock().await?; // after all earlier requests
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
pub type FairLock<'a> = Lock<'a, protocol::Fair>;
