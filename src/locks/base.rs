//! What every type of lock runs on: the watchdog, which renews, and the wake-ups, which end a wait.
//!
//! | kind | wakes a waiter | watched by |
//! |---|---|---|
//! | `RLock`, `FencedLock` | a message on `redisson_lock__channel:{name}` | the watchdog: an `EVALSHA` of `rlock/renew.lua` for a hundred holds |
//! | `FairLock` | a message on the waiter's own channel, or the heartbeat of its place in `redisson_lock_queue:{name}` | the same |
//! | `ReadLock` | a message on `redisson_rwlock:{name}`: READ_UNLOCK or UNLOCK, both mean "perhaps free" | the same with `read/renew.lua`, which also renews the key `{name}:OWNER:rwlock_timeout:N` of each hold |
//! | `WriteLock` | the same | the same as an `RLock` |
//! | `Claims` | nothing: a claim does not wait | the same as an `RLock` |
//! | `Semaphore` | a message on `redisson_sc:{name}`, or the end of the first lease | the watchdog: an `EVALSHA` of `semaphore/renew.lua` for a hundred holds |
//! | `MultiLock`, `RedLock` | what wakes the member that refused | what watches each member |
//!
//! The keys and channels of a kind are in its [`Protocol`](crate::protocol::Protocol).

use std::panic::Location;
use std::pin::pin;
use std::time::Duration;

use crate::base::Caller;
use crate::base::error::{Error, Result};
use crate::diagnosis::check_rights;
use crate::diagnosis::info::RemainingLease;
use crate::engine::{self, Handle, HeldLock, LockRef, Offer, WaitLimit, WakeUps};
use crate::locks::guard::{LockGuard, OfHeld};
use crate::locks::span::AcquireSpan;
use crate::protocol::Protocol;
use crate::telemetry::inside;

/// What every type of lock can do.
///
/// [`Lock`](crate::Lock) has these methods itself, so only code that is generic over the types needs this trait:
///
/// ```no_run
/// # use lockkeeper::{BaseLock, Result};
/// async fn count_up<L: BaseLock>(mut lock: L) -> Result<()> {
///     let guard = lock.lock().await?;
///     // … the section …
///     guard.unlock().await
/// }
/// ```
///
/// All types share what renews a hold, what wakes a waiter, and what releases a guard that was dropped. Other crates cannot implement
/// this trait, so there are no mocks. Its `lock`, `try_lock` and `try_lock_for` return a [`LockGuard`] for every type.
///
/// Acquiring takes `&mut self`, because a handle is an owner, which can acquire again what it holds. So two branches of a program
/// cannot share a handle:
///
/// ```compile_fail,E0499
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut lock = locks.rlock("lock:orders:42");
/// let _both = tokio::join!(lock.lock(), lock.lock()); // both would enter
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0596
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let lock = std::sync::Arc::new(locks.rlock("lock:orders:42"));
/// let _guard = lock.lock().await?; // every owner of the `Arc` would enter
/// # Ok(()) }
/// ```
pub trait BaseLock: Sealed {
    /// As [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Errors
    ///
    /// As there.
    #[track_caller]
    #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
    fn lock(&mut self) -> impl Future<Output = Result<LockGuard>> + Send {
        lock(self.handle_mut(), Location::caller())
    }

    /// As [`Lock::try_lock`](crate::Lock::try_lock).
    ///
    /// # Errors
    ///
    /// As there.
    #[track_caller]
    #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
    fn try_lock(&mut self) -> impl Future<Output = Result<Option<LockGuard>>> + Send {
        try_lock(self.handle_mut(), WaitLimit::None, Location::caller())
    }

    /// As [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    ///
    /// # Errors
    ///
    /// As there.
    #[track_caller]
    #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
    fn try_lock_for(&mut self, wait: Duration) -> impl Future<Output = Result<Option<LockGuard>>> + Send {
        try_lock(self.handle_mut(), WaitLimit::For(wait), Location::caller())
    }

    /// As [`Lock::run`](crate::Lock::run).
    ///
    /// # Errors
    ///
    /// As there.
    #[track_caller]
    fn run<W>(&mut self, work: W) -> impl Future<Output = Result<W::Output>> + Send
    where
        W: Future<Output: Send> + Send,
    {
        let acquired = lock(self.handle_mut(), Location::caller());
        async move { run(acquired.await?, work).await }
    }

    /// As [`Lock::name`](crate::Lock::name).
    fn name(&self) -> &str {
        self.handle().name()
    }

    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Errors
    ///
    /// As there.
    fn is_locked(&self) -> impl Future<Output = Result<bool>> + Send {
        engine::is_locked(self.handle())
    }

    /// As [`Lock::is_held`](crate::Lock::is_held).
    fn is_held(&self) -> bool {
        self.hold_count() > 0
    }

    /// As [`Lock::hold_count`](crate::Lock::hold_count).
    fn hold_count(&self) -> u32 {
        self.handle().hold_count()
    }

    /// As [`Lock::remaining_lease`](crate::Lock::remaining_lease).
    ///
    /// # Errors
    ///
    /// As there.
    fn remaining_lease(&self) -> impl Future<Output = Result<Option<RemainingLease>>> + Send {
        remaining_lease(self.handle())
    }

    /// As [`Lock::check`](crate::Lock::check).
    ///
    /// # Errors
    ///
    /// As there.
    fn check(&self) -> impl Future<Output = Result<()>> + Send {
        check_rights(self.handle())
    }

    /// As [`Lock::force_unlock`](crate::Lock::force_unlock).
    ///
    /// # Errors
    ///
    /// As there.
    fn force_unlock(&self) -> impl Future<Output = Result<bool>> + Send {
        engine::force_unlock(self.handle())
    }
}

/// Gives [`BaseLock`] its data, and prevents other implementations.
#[allow(unnameable_types, reason = "it seals the trait")]
pub trait Sealed: Send + Sync {
    #[doc(hidden)]
    fn handle(&self) -> &Handle;
    #[doc(hidden)]
    fn handle_mut(&mut self) -> &mut Handle;
}

/// A kind of lock: the type parameter of [`Lock`](crate::Lock). Other crates cannot implement it.
///
/// ```no_run
/// # use lockkeeper::kind::Kind;
/// # use lockkeeper::{Lock, Result};
/// async fn lock_twice<K: Kind>(mut lock: Lock<'_, K>) -> Result<(K::Guard, K::Guard)> {
///     Ok((lock.lock().await?, lock.lock().await?))
/// }
/// ```
pub trait Kind: Send + Sync + 'static {
    /// What an acquire returns: a [`LockGuard`], or a [`FencedGuard`](crate::FencedGuard), which always has a token.
    type Guard: OfHeld;
}

/// A kind of lock of one member: its scripts, keys and channels.
pub(crate) trait Single: Kind {
    const PROTOCOL: &'static dyn Protocol;
}

pub(crate) fn lock<G: OfHeld>(handle: &mut Handle, caller: Caller) -> impl Future<Output = Result<G>> + Send {
    wait_for(handle, WaitLimit::Forever, caller)
}

/// Acquires the lock for a candidate, which stands by until then.
pub(crate) fn stand_by<G: OfHeld>(
    handle: &mut Handle,
    caller: Caller,
) -> impl Future<Output = Result<G>> + Send {
    wait_for(handle, WaitLimit::StandBy, caller)
}

fn wait_for<G: OfHeld>(
    handle: &mut Handle,
    limit: WaitLimit,
    caller: Caller,
) -> impl Future<Output = Result<G>> + Send {
    acquire(handle, limit, caller, |held| {
        G::of(held.expect("BUG: an acquire without a time limit ends with a guard or an error"))
    })
}

/// Acquires the lock for a guard. `None`: another owner holds it.
pub(crate) fn try_lock<G: OfHeld>(
    handle: &mut Handle,
    limit: WaitLimit,
    caller: Caller,
) -> impl Future<Output = Result<Option<G>>> + Send {
    acquire(handle, limit, caller, |held| held.map(G::of))
}

async fn acquire<T>(
    handle: &mut Handle,
    limit: WaitLimit,
    caller: Caller,
    guard: fn(Option<HeldLock>) -> T,
) -> Result<T> {
    let acquiring = AcquireSpan::begin(handle, limit);
    let held = inside(acquiring.span(), pin!(engine::acquire(handle, limit, caller, wake_ups))).await;
    match acquired(acquiring, handle, limit, held) {
        Ok(held) => Ok(guard(held)),
        // Boxed: this is rare, and its size would burden every call.
        Err(error) => Err(Box::pin(engine::with_type(handle, error)).await),
    }
}

/// Acquires the first lock of a group of claims that is free, for a guard. `None`: other owners hold all of them.
pub(crate) async fn claim<G: OfHeld>(group: &Handle, names: &[String], caller: Caller) -> Result<Option<G>> {
    let acquiring = AcquireSpan::begin(group, WaitLimit::None);
    let held = inside(acquiring.span(), pin!(engine::claim(group, names, caller))).await;
    acquired(acquiring, group, WaitLimit::None, held).map(|held| held.map(G::of))
}

/// An acquire has ended.
fn acquired(
    acquiring: AcquireSpan,
    handle: &Handle,
    limit: WaitLimit,
    held: Result<Option<HeldLock>>,
) -> Result<Option<HeldLock>> {
    acquiring.ends(handle, limit, &held);
    held
}

/// What wakes the waiters for a member: other waiters of this client, and messages of the server on the channel of the kind.
fn wake_ups(member: &LockRef) -> WakeUps<'_, Offer> {
    WakeUps { queues: &member.engine.wait_queues, messages: &member.engine.store }
}

/// Runs work while the guard protects it, and releases the guard.
pub(crate) async fn run<W: Future>(guard: LockGuard, work: W) -> Result<W::Output> {
    let done = guard.run(work).await?;
    match guard.unlock().await {
        Err(unprotected @ Error::NotHeld(_)) => Err(unprotected),
        // The work was protected until its end. If the release failed, it goes on in the background.
        Ok(()) | Err(_) => Ok(done),
    }
}

pub(crate) async fn remaining_lease(handle: &Handle) -> Result<Option<RemainingLease>> {
    Ok(engine::remaining_lease(handle).await?.map(RemainingLease::from_server))
}
