//! The reentrant lock: Redisson's `RLock`.

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

/// A lock that its owner may acquire again while it holds it: Redisson's `RLock`.
///
/// It is one hash in Redis, from the owner to the number of its holds, and its expiry is the lease. Waiters are
/// served in no particular order between processes, and in the order of their calls within one.
///
/// # Examples
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut lock = locks.rlock("orders:42");
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?; // the same handle is the same owner: two holds
/// inner.unlock().await?;
/// outer.unlock().await?; // free
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct RLock(Handle);

impl RLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, holds: Arc<Holds>) -> Self {
        Self(Handle::single(engine, &Reentrant, name, holds))
    }
}

lock_type!(RLock);
member_type!(RLock);

#[derive(Debug)]
struct Reentrant;

impl Kind for Reentrant {
    fn family(&self) -> &'static str {
        "a reentrant lock"
    }

    fn keys(&self, lock: Arc<str>) -> Keys {
        Keys::new(lock, names::lock_channel, [])
    }

    fn attempt(&self, whose: Whose<'_>, want: u32, lease: Duration, _queue: bool) -> Call {
        match want {
            1 => script::rlock_acquire(&whose.keys.lock, whose.owner, millis(lease)),
            _ => script::rlock_reenter(&whose.keys.lock, whose.owner, want, millis(lease)),
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
