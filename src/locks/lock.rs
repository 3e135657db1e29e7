//! The handle of every type of lock.

use std::convert::identity;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::base::BaseLock;
use super::guard::{LockGuard, finish, granted};
use super::several::Locks;
use super::votes::{of_quorum, vote};
use crate::base::error::Result;
use crate::base::options::LockOptions;
use crate::diagnosis::check_rights;
use crate::diagnosis::info::RemainingLease;
use crate::engine::{self, Engine, Handle, LockRef, OwnerGrants, WaitLimit};
use crate::protocol::{Listing, Protocol};

/// A lock of one [`kind`](crate::kind). [`RLock`](crate::RLock), [`FairLock`](crate::FairLock), [`FencedLock`](crate::FencedLock),
/// [`ReadLock`](crate::ReadLock), [`WriteLock`](crate::WriteLock), [`MultiLock`](crate::MultiLock) and [`RedLock`](crate::RedLock) are names for it.
///
/// All kinds have these methods. Code that is generic over the kinds says so:
///
/// ```no_run
/// # use lockkeeper::{BaseLock, Lock, Result};
/// async fn count_up(lock: &mut Lock<'_, impl BaseLock>) -> Result<()> {
///     let guard = lock.lock().await?;
///     // … the work …
///     guard.unlock().await
/// }
/// ```
///
/// # A handle is an owner
///
/// An owner can acquire again what it holds. A handle that a [`LockClient`](crate::LockClient) makes is an owner of its own, and its type has the
/// lifetime `'static`: a struct can keep an `RLock<'static>`. A handle that an [`Owner`](crate::Owner) lends belongs to that owner and borrows it.
/// A function that takes `&mut RLock<'_>` works with both:
///
/// ```no_run
/// # use lockkeeper::{LockClient, RLock, Result};
/// async fn write_entry(ledger: &mut RLock<'_>) -> Result<()> {
///     let guard = ledger.lock().await?;
///     guard.unlock().await
/// }
/// # async fn demo(locks: LockClient) -> Result<()> {
/// write_entry(&mut locks.rlock("lock:ledger")).await?;
/// write_entry(&mut locks.owner().rlock("lock:ledger")).await
/// # }
/// ```
///
/// Acquiring takes `&mut self`. So two branches of a program cannot share a handle:
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
///
/// # Names
///
/// Making a handle asks no server and never fails. If the name cannot be used, each call that would ask the server returns
/// [`InvalidName`](crate::Error::InvalidName), and sends nothing.
#[must_use = "a handle does nothing until it locks"]
pub struct Lock<'a, K>(pub(crate) Locks, PhantomData<(&'a mut (), K)>);

impl<K> Lock<'_, K> {
    pub(super) const fn of(locks: Locks) -> Self {
        Self(locks, PhantomData)
    }
}

#[allow(private_bounds, reason = "a kind of single locks has a protocol")]
impl<K: BaseLock + Protocol> Lock<'_, K> {
    pub(crate) fn single(
        kind: &'static K,
        engine: &Arc<Engine>,
        name: &str,
        owner: Arc<OwnerGrants>,
    ) -> Self {
        Self::of(Locks::one(Handle::of(LockRef::new(engine, kind, name), owner)))
    }
}

impl<K: BaseLock> Lock<'_, K> {
    /// Sets how the lock is held from the next acquire on: its lease, its longest and shortest hold, its group in metrics. No network call.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let minute = LockOptions::builder().fixed(Duration::from_secs(60)).build()?;
    /// let guard = locks.rlock("lock:orders:42").with(&minute).lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn with(mut self, options: &LockOptions) -> Self {
        self.0.set_options(options);
        self
    }

    /// Acquires the lock. If another owner holds it, waits as long as it takes. A free lock costs one round trip.
    ///
    /// An owner that holds the lock already gets one more hold without waiting.
    ///
    /// A `lock()` on a name that the *same client* holds through another handle waits for that handle. If the task with that
    /// handle waits for this call, neither continues. After one lease, a `tracing` warning says so.
    ///
    /// # Errors
    ///
    /// - [`InvalidName`](crate::Error::InvalidName) or [`WrongKind`](crate::Error::WrongKind): the name or the key cannot
    ///   be used.
    /// - [`UpgradeWouldDeadlock`](crate::Error::UpgradeWouldDeadlock): an owner that holds the read lock wants the write
    ///   lock.
    /// - [`OutOfMemory`](crate::Error::OutOfMemory): the server had no memory for a new lock for `retry_timeout`.
    /// - [`TooFewReplicas`](crate::Error::TooFewReplicas), with the setting `sync_replicas`.
    /// - [`Closed`](crate::Error::Closed): the client was shut down before the call or during it.
    /// - A [fault of server or network](crate::Error#faults-of-server-and-network).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: no hold, no subscription, no entry in a queue. If the call acquired the
    /// lock, it is released in the background.
    ///
    /// ```no_run
    /// # async fn demo(mut lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
    /// let guard = lock.lock().await?;
    /// // … the work …
    /// guard.unlock().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
    pub fn lock(&mut self) -> impl Future<Output = Result<LockGuard<K::Extra>>> + Send {
        self.0.acquire(WaitLimit::Forever, Location::caller(), granted)
    }

    /// Acquires the lock if it is free now, or held by this owner. `None`: another owner holds it. One round trip.
    ///
    /// The call waits for the server's answer, but not for the lock.
    ///
    /// A guard that was *dropped* holds the lock until its release has reached the server, a moment later. Until then the
    /// `try_lock` of another handle is refused. Await [`unlock`](crate::LockGuard::unlock) where that matters.
    ///
    /// The statement `lock.try_lock().await?;` drops the guard, and so releases the lock at once. The compiler does not warn,
    /// because it allows an unused `Option`. Always bind the guard.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock).
    ///
    /// ```no_run
    /// # async fn demo(mut lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
    /// if let Some(guard) = lock.try_lock().await? {
    ///     // … the work …
    ///     guard.unlock().await?;
    /// } else {
    ///     println!("busy");
    /// }
    /// # Ok(()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
    pub fn try_lock(&mut self) -> impl Future<Output = Result<Option<LockGuard<K::Extra>>>> + Send {
        self.0.acquire(WaitLimit::None, Location::caller(), identity)
    }

    /// Acquires the lock. If another owner holds it, waits, but no longer than `wait`. `None`: another owner held it all
    /// that time. A free lock costs one round trip.
    ///
    /// This call, or a call in front of it in the client's wait queue, asks the server at least once. If there is no answer,
    /// this call takes up to `command_timeout`, even if `wait` is shorter, and the time for which
    /// [`sync_replicas`](crate::LockConfigBuilder::sync_replicas) waits. Leaving the wait queue can take half a
    /// `command_timeout` more.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock). At the end of `wait`, the fault that prevented an answer.
    /// [`InvalidDuration`](crate::Error::InvalidDuration) for a `wait` that is too long for the clock.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn demo(mut lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<bool> {
    /// let Some(guard) = lock.try_lock_for(Duration::from_secs(2)).await? else {
    ///     return Ok(false); // busy for two seconds
    /// };
    /// // … the work …
    /// guard.unlock().await?;
    /// # Ok(true) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the guard to a name: a guard that is dropped releases the lock at once"]
    pub fn try_lock_for(
        &mut self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<LockGuard<K::Extra>>>> + Send {
        self.0.acquire(WaitLimit::For(wait), Location::caller(), identity)
    }

    /// Returns the name of the lock, as it was given. For a lock of several members, all their names. No network call.
    ///
    /// ```no_run
    /// # fn demo(locks: lockkeeper::LockClient) {
    /// assert_eq!(locks.rlock("lock:orders:42").name(), "lock:orders:42");
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Checks whether this user of the server has the right to run every command that the lock needs, with its options. Asks the
    /// server and changes nothing.
    ///
    /// Call it once when a program starts. Then a missing right is an error at the start, and not a lock that cannot be
    /// released.
    ///
    /// # Errors
    ///
    /// [`Permission`](crate::Error::Permission) names every key that the user has no right to use, and the commands. Of a lock of several
    /// members, it names those of the first that fails. Otherwise as
    /// for [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// locks.fair_lock("lock:jobs").check().await?;
    /// # Ok(()) }
    /// ```
    pub async fn check(&self) -> Result<()> {
        for one in &self.0.each {
            check_rights(one, false).await?;
        }
        Ok(())
    }

    /// Returns whether anybody holds the lock. For a side of a read-write lock: whether anybody holds this side. Asks the
    /// server.
    ///
    /// The answer can be outdated when it arrives. To act on a free lock, use [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// [`InvalidName`](crate::Error::InvalidName), [`WrongKind`](crate::Error::WrongKind), or a
    /// [fault of server or network](crate::Error#faults-of-server-and-network).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
    /// println!("held: {}", lock.is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_locked(&self) -> Result<bool> {
        let asked = self.0.each.iter().map(engine::is_locked);
        let (verdict, answers) = vote(asked, self.0.needed(), |answer| answer.as_ref().ok().copied()).await;
        let fault = answers.into_iter().find_map(Result::err).filter(|_| verdict.is_none());
        fault.map_or(Ok(verdict == Some(true)), Err)
    }

    /// Returns whether this owner holds the lock, as far as this client knows. No network call.
    ///
    /// ```no_run
    /// # async fn demo(mut lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
    /// let guard = lock.lock().await?;
    /// assert!(lock.is_held());
    /// guard.unlock().await?;
    /// assert!(!lock.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.hold_count() > 0
    }

    /// Returns how many holds of this owner are not lost, as far as this client knows. No network call.
    ///
    /// ```no_run
    /// # async fn demo(mut lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
    /// let (_outer, _inner) = (lock.lock().await?, lock.lock().await?);
    /// assert_eq!(lock.hold_count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn hold_count(&self) -> u32 {
        of_quorum(self.0.each.iter().map(Handle::hold_count), self.0.needed())
    }

    /// Returns how long the lock stays held if nobody renews or releases it. For a side of a read-write lock: how long this
    /// side stays held. `None`: it is free. One round trip.
    ///
    /// # Errors
    ///
    /// As for [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
    /// match lock.remaining_lease().await?.and_then(|lease| lease.duration()) {
    ///     Some(left) => println!("held for {left:?} if nobody renews it"),
    ///     None => println!("free, or held without an end"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn remaining_lease(&self) -> Result<Option<RemainingLease>> {
        let listings = self.holders().await?;
        let lease = of_quorum(listings.iter().map(|(_, listing)| listing.lease()), self.0.needed());
        Ok(lease.map(RemainingLease::from_server))
    }

    /// Releases the lock, whoever holds it, and wakes a waiter. For a side of a read-write lock: releases all holds of this
    /// side. Returns whether the lock was held: of several members, whether any was. At least two round trips,
    /// or one if the lock is free.
    ///
    /// This is for repairs by hand. The former holder can work on until it notices: mostly at once, and at the latest at its next
    /// renewal or release, or when a [`fixed`](crate::LockOptionsBuilder::fixed) lease ends.
    ///
    /// # Errors
    ///
    /// As for [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the call releases the holds that it found, now or later. It never
    /// releases a hold that began afterwards.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let was_held = locks.rlock("lock:orders:42").force_unlock().await?;
    /// # Ok(()) }
    /// ```
    pub async fn force_unlock(&self) -> Result<bool> {
        let listings = self.holders().await?;
        let forcing = listings.iter().map(|(one, listing)| async move {
            engine::force_all(&one.lock, listing).await.map_err(|fault| one.lock.error(fault))
        });
        try_join_all(forcing).await?;
        Ok(listings.iter().any(|(_, listing)| listing.lease().is_some()))
    }

    /// Lists the holders of as many of the locks as are needed, at least.
    async fn holders(&self) -> Result<Vec<(&Handle, Listing)>> {
        let asked = self.0.each.iter().map(async |one| Ok((one, engine::holders(one).await?)));
        let is_answer = |answer: &Result<_>| answer.is_ok().then_some(true);
        let (verdict, mut answers) = vote(asked, self.0.needed(), is_answer).await;
        answers.retain(|answer| verdict.is_none() || answer.is_ok());
        answers.into_iter().collect()
    }

    /// Acquires the lock, runs `work`, and releases the lock. Returns what `work` returns.
    ///
    /// `work` is dropped when the lock is lost, as in [`LockGuard::finish`](crate::LockGuard::finish). `work` can use neither this handle nor
    /// the [`Owner`](crate::Owner) that lent it. For nested work of an
    /// [`Owner`](crate::Owner), acquire a guard and call [`LockGuard::finish`](crate::LockGuard::finish).
    ///
    /// # Errors
    ///
    /// [`work_was_unprotected`](crate::Error::work_was_unprotected) tells two cases apart:
    ///
    /// - True: `work` ran, and the lock did not protect it until its end. [`Lost`](crate::Error::Lost): `work` was stopped.
    ///   [`NotHeld`](crate::Error::NotHeld): `work` came to its end.
    /// - False: `work` did not begin. The error is that of [`lock`](Self::lock).
    ///
    /// If only the release fails, the result of `work` is returned, and the release goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and releases the lock in the background.
    ///
    /// ```no_run
    /// # async fn report() -> String { String::new() }
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let report = locks.rlock("lock:report").run(report()).await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn run<W: Future>(&mut self, work: W) -> impl Future<Output = Result<W::Output>> {
        let acquired = self.lock();
        async move { acquired.await?.finish(work).await }
    }

    /// Does the same as [`run`](Self::run), but only if the lock is free now, or held by this owner. `None`: another owner holds it, and `work` did not run.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    ///
    /// ```no_run
    /// # async fn report() {}
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// if locks.rlock("lock:report").try_run(report()).await?.is_none() {
    ///     println!("another process makes the report");
    /// }
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_run<W: Future>(&mut self, work: W) -> impl Future<Output = Result<Option<W::Output>>> {
        finish(self.try_lock(), work)
    }

    /// Does the same as [`run`](Self::run), but only if the lock is acquired within `wait`. `None`: another owner held it for so long, and `work` did not run.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run), and [`InvalidDuration`](crate::Error::InvalidDuration) as for
    /// [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn report() {}
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let done = locks.rlock("lock:report").try_run_for(Duration::from_secs(2), report()).await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_run_for<W: Future>(
        &mut self,
        wait: Duration,
        work: W,
    ) -> impl Future<Output = Result<Option<W::Output>>> {
        finish(self.try_lock_for(wait), work)
    }
}

/// Shows the name, and takes no mutex.
impl<K> fmt::Debug for Lock<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.0).field("type", &self.0.lock_type().name()).finish()
    }
}
