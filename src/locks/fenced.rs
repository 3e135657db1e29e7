//! The fenced lock.

use super::announcements::Announcements;
use super::base::{self, Kind, Single};
use super::lock::Lock;
use crate::base::Caller;
use crate::base::error::Result;
use crate::locks::guard::FencedGuard;
use crate::protocol::{self, Protocol};

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
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.fenced_lock("lock:orders:42").lock().await?;
/// let token = guard.token();
/// // update orders set …, token = $token where id = 42 and token <= $token
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
pub type FencedLock = Lock<'static, Fenced>;

/// The kind of a [`FencedLock`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Fenced {}

impl FencedLock {
    /// Returns what holders of this lock announce with [`FencedGuard::announce`](crate::FencedGuard::announce). Asks no server.
    ///
    /// ```no_run
    /// # fn demo(locks: lockkeeper::LockClient) {
    /// let announcements = locks.fenced_lock("lock:primary").announcements();
    /// # }
    /// ```
    pub fn announcements(&self) -> Announcements {
        Announcements::new(&self.handle.members[0].lock)
    }

    /// Acquires the lock for a [`Candidate`](crate::leader::Candidate): a long wait is not reported, because standing by is its work.
    pub(crate) fn stand_by(&mut self, caller: Caller) -> impl Future<Output = Result<FencedGuard>> + Send {
        base::stand_by(&mut self.handle, caller)
    }

    /// Waits until calls cannot continue: the client is shut down, or its runtime has ended.
    pub(crate) async fn ended(&self) {
        self.handle.ended().await;
    }
}

impl Kind for Fenced {
    type Guard = FencedGuard;
}

impl Single for Fenced {
    const PROTOCOL: &'static dyn Protocol = &protocol::Fenced;
}
