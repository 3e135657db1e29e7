//! The fenced lock.

use std::sync::Arc;

use super::lock::Lock;
use crate::base::Caller;
use crate::base::error::Result;
use crate::base::token::FencingToken;
use crate::engine::{LockRef, WaitLimit};
use crate::locks::guard::{LockGuard, granted};
use crate::protocol;

/// A reentrant lock that numbers its holders. Redisson's `RFencedLock`.
///
/// A process that is stopped for longer than its lease loses the lock. It notices that only when it next checks the guard, and
/// can write before that check. Against such late writes, store the [token](crate::FencingToken) of the guard with what is
/// written, and refuse a write with a smaller token. The token is greater for each new holder. A re-entry has the same token.
///
/// All users of the lock must use it as a fenced lock: an [`RLock`](crate::RLock) of the same name excludes the fenced lock, but
/// does not increase the token.
///
/// If the server loses the counter, the next token comes from the server's clock, so tokens do not repeat. There are two
/// exceptions: after a failover that loses data, if the clock of the new master is behind; and if a Java client is the first to count
/// after the loss, which begins at 1.
///
/// A field of a struct has the type `FencedLock<'static>`, and an argument of a function `&mut FencedLock<'_>`, see [`Lock`](crate::Lock#a-handle-is-an-owner).
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.fenced_lock("lock:orders:42").lock().await?;
/// let token = guard.token();
/// // update orders set …, token = $token where id = 42 and token <= $token
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
pub type FencedLock<'a> = Lock<'a, protocol::Fenced>;

impl Lock<'_, protocol::Fenced> {
    /// Does the same as [`run`](Self::run), for work that needs its token: calls `work` with the token when the lock is acquired. Two round trips,
    /// if nobody holds it.
    ///
    /// # Errors
    ///
    /// As for [`Lock::run`](crate::Lock::run).
    ///
    /// # Cancel safety
    ///
    /// As for [`Lock::run`](crate::Lock::run).
    ///
    /// ```no_run
    /// # async fn write_page(token: lockkeeper::FencingToken) {}
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// locks.fenced_lock("lock:page:7").run_with_token(|token| write_page(token)).await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn run_with_token<W: Future>(
        &mut self,
        work: impl FnOnce(FencingToken) -> W,
    ) -> impl Future<Output = Result<W::Output>> {
        let acquired = self.lock();
        async move {
            let guard = acquired.await?;
            let work = work(guard.token());
            guard.finish(work).await
        }
    }

    /// Acquires the lock for a [`Candidate`](crate::leader::Candidate): a long wait is not reported, because standing by is its work.
    pub(crate) fn stand_by(
        &mut self,
        caller: Caller,
    ) -> impl Future<Output = Result<LockGuard<FencingToken>>> + Send {
        self.0.acquire(WaitLimit::StandBy, caller, granted)
    }

    /// Waits until calls cannot continue: the client is shut down, or its runtime has ended.
    pub(crate) async fn ended(&self) {
        self.lock_ref().engine.ended().await;
    }

    /// The lock on its server, for announcements.
    pub(crate) fn lock_ref(&self) -> &Arc<LockRef> {
        &self.0.each[0].lock
    }
}
