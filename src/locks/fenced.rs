//! The fenced lock: Redisson's `RFencedLock`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::BaseLock;
use super::sealed::Lock;
use crate::engine::{Engine, Handle, Holds, Kind, Patience, Whose, millis};
use crate::error::Result;
use crate::guard::LockGuard;
use crate::names::{self, Keys};
use crate::script::{self, Batch, Call, Row};

/// A reentrant lock that numbers its holders: Redisson's `RFencedLock`.
///
/// A process that is stopped for longer than its lease does not know that it lost the lock before it looks, and may write
/// before it looks. So give what is written the token of the guard, and let who stores it refuse a token that is smaller
/// than the last one: [`LockGuard::fencing_token`] is greater for each new holder. Entering again does not change it.
///
/// All who take the lock have to take it as a fenced lock: an [`RLock`](crate::RLock) of the same name excludes it, and does
/// not count.
///
/// A counter that the server lost goes on from the server's clock, so the tokens of this crate do not repeat; unless a
/// Java client is the first to count after that, which begins at 1.
///
/// # Examples
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.fenced_lock("orders:42").lock().await?;
/// let token = guard.fencing_token().expect("a fenced lock has one");
/// // update orders set … , token = $token where id = 42 and token <= $token
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct FencedLock(Handle);

impl FencedLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, holds: Arc<Holds>) -> Self {
        Self(Handle::single(engine, &Fenced, name, holds))
    }
}

lock_type!(FencedLock);
member_type!(FencedLock);

#[derive(Debug)]
struct Fenced;

impl Kind for Fenced {
    fn family(&self) -> &'static str {
        "a fenced lock"
    }

    fn keys(&self, lock: Arc<str>) -> Keys {
        Keys::new(lock, names::lock_channel, [names::fencing_counter as fn(&str) -> Arc<str>])
    }

    fn attempt(&self, whose: Whose<'_>, want: u32, lease: Duration, _queue: bool) -> Call {
        let Whose { keys, owner, .. } = whose;
        match want {
            1 => script::fenced_acquire(&keys.lock, &keys.more[0], owner, millis(lease)),
            _ => script::rlock_reenter(&keys.lock, owner, want, millis(lease)),
        }
    }

    fn release(&self, whose: Whose<'_>, keep: u32) -> Call {
        script::rlock_release(&whose.keys.lock, &whose.keys.channel, whose.owner, keep)
    }

    fn renewal(&self) -> &'static Batch {
        &script::RLOCK_RENEW
    }

    fn keep_alive(&self, whose: Whose<'_>, _left: Duration) -> Row {
        Row { keys: smallvec![Arc::clone(&whose.keys.lock)], args: smallvec![whose.owner.into()] }
    }
}
