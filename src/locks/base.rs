//! What every type of lock runs on: the watchdog, which renews, and the wake-ups, which end a wait.
//!
//! The keys and channels of a kind are in its [`Protocol`](crate::protocol::Protocol).

use crate::base::token::FencingToken;
use crate::locks::guard::Extra;
use crate::locks::{Multi, Red};
use crate::protocol::{Fair, Fenced, Read, Reentrant, Write};

/// A [`kind`](crate::kind) of locks, for code that is generic over the kinds: its argument is a [`Lock<'_, impl BaseLock>`](crate::Lock).
///
/// All kinds share what renews a hold, what wakes a waiter, and what releases a guard that was dropped. There are no locks of other
/// kinds, so there are no mocks.
///
/// | kind | wakes a waiter | watched by |
/// |---|---|---|
/// | `RLock`, `FencedLock` | a message on `redisson_lock__channel:{name}` | the watchdog: an `EVALSHA` of `rlock/renew.lua` for a hundred holds |
/// | `FairLock` | a message on the waiter's own channel, or the heartbeat of its place in `redisson_lock_queue:{name}` | the same |
/// | `ReadLock` | a message on `redisson_rwlock:{name}`: READ_UNLOCK or UNLOCK, both mean "perhaps free" | the same with `read/renew.lua`, which also renews the key `{name}:OWNER:rwlock_timeout:1` of each hold |
/// | `WriteLock` | the same | the same as an `RLock` |
/// | `MultiLock`, `RedLock` | what wakes the one of its locks for which the call waits | what watches each of its locks |
///
/// ```no_run
/// # use lockkeeper::{BaseLock, Lock, LockGuard, Result};
/// async fn wait_for<K: BaseLock>(lock: &mut Lock<'_, K>) -> Result<LockGuard<K::Extra>> {
///     lock.lock().await
/// }
/// ```
pub trait BaseLock: Send + Sync + 'static {
    /// What a [`LockGuard`](crate::LockGuard) of this kind has beside the hold: a [`FencingToken`], or nothing.
    type Extra: Extra;
}

impl BaseLock for Reentrant {
    type Extra = ();
}

impl BaseLock for Fair {
    type Extra = ();
}

impl BaseLock for Fenced {
    type Extra = FencingToken;
}

impl BaseLock for Read {
    type Extra = ();
}

impl BaseLock for Write {
    type Extra = ();
}

/// A kind of locks that can be a [`Member`](crate::Member) of a lock of several.
pub trait Single: BaseLock {}

impl Single for Reentrant {}
impl Single for Fair {}
impl Single for Fenced {}
impl Single for Read {}
impl Single for Write {}

impl BaseLock for Multi {
    type Extra = ();
}

impl BaseLock for Red {
    type Extra = ();
}
