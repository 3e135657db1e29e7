//! What every type of lock can do.

use std::pin::pin;

use crate::base::error::Result;
use crate::engine::{self, AcquireSpan, Caller, Handle, HeldLock, WaitLimit};
use crate::locks::guard::{LockGuard, OfHeld};
use crate::locks::info::RemainingLease;
use crate::telemetry::inside;

/// The methods that every type of lock has.
///
/// Each type also has these methods itself, so only code that is generic over the types needs this trait:
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
/// What all types share works for each implementer: renewal by the watchdog, wake-ups by messages, and the release of guards that
/// were dropped. Other crates cannot implement this trait, so there are no mocks. Its `lock`, `try_lock` and `try_lock_for`
/// return a [`LockGuard`] for every type: for the token of a `FencedLock`, call the type's own methods.
///
/// AcquireSpan takes `&mut self`, because a handle is an owner, which can acquire again what it holds. So two branches of a program
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
pub trait BaseLock: Lock {
    acquire_methods!(LockGuard,);
    query_methods!();
}

/// Gives [`BaseLock`] its data, and prevents other implementations.
#[allow(unnameable_types, reason = "it seals the trait")]
pub trait Lock: Send + Sync {
    #[doc(hidden)]
    fn handle(&self) -> &Handle;
    #[doc(hidden)]
    fn handle_mut(&mut self) -> &mut Handle;
}

pub(crate) fn lock<G: OfHeld>(handle: &mut Handle, caller: Caller) -> impl Future<Output = Result<G>> + Send {
    acquire(handle, WaitLimit::Forever, caller, |held| {
        G::of(held.expect("BUG: an acquire without a time limit ends with a guard or an error"))
    })
}

/// Acquires the lock for a guard, `None` if another owner holds it.
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
    let held = inside(acquiring.span(), pin!(engine::acquire(handle, limit, caller))).await;
    acquiring.ends(handle, limit, &held);
    held.map(guard)
}

pub(crate) async fn remaining_lease(handle: &Handle) -> Result<Option<RemainingLease>> {
    Ok(engine::remaining_lease(handle).await?.map(RemainingLease::from_server))
}
