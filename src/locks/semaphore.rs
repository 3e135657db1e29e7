//! The semaphore: a number of holders at a time.

use std::convert::identity;
use std::fmt;
use std::panic::Location;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;

use super::guard::{LockGuard, granted};
use crate::base::Caller;
use crate::base::error::{ConfigError, Error, MOST_PERMITS, Result};
use crate::base::options::LockOptions;
use crate::diagnosis::check_rights;
use crate::engine::{Engine, Handle, LockRef, WaitLimit, permits};
use crate::locks::several::Locks;
use crate::protocol::PermitIds;

/// A number of permits that all processes share: a limit on holders at a time. Redisson's `RPermitExpirableSemaphore`.
///
/// A semaphore is no owner, so it is shared by `&self` and is cheap to clone, and **each permit is independent of all others**. A task
/// that has a permit and acquires another one takes two, and can wait for itself if there is only one.
///
/// A permit has a lease, as a lock has. The client renews it while the [guard](LockGuard) lives. The permits of a process that died come back
/// when their leases end. A permit whose lease ended is *lost*, and its holder learns of it before another one can get it, unless the
/// clock of a Java client is more than 500 ms ahead of the server's.
///
/// The waiters of one client are served in the order in which they came, also those that want several permits at once. So a call for many
/// permits is not starved by calls for one, and the calls behind it wait for it. Between clients there is no order.
///
/// ```no_run
/// # async fn call_api() {}
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let api = locks.semaphore("sem:api", 10); // at most 10 calls at a time, over all processes
/// let permit = api.acquire().await?;
/// permit.finish(call_api()).await?; // calls and releases the permit
/// # Ok(()) }
/// ```
///
/// A semaphore is not a member of a [`MultiLock`](crate::MultiLock) or of a [`RedLock`](crate::RedLock):
///
/// ```compile_fail,E0277
/// # fn demo(locks: lockkeeper::LockClient) {
/// let both = lockkeeper::MultiLock::new([locks.semaphore("sem:api", 10)]);
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a semaphore does nothing until a permit is acquired"]
pub struct Semaphore(Arc<Handle>);

impl Semaphore {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, total: u32) -> Self {
        Self(Arc::new(Handle::of(LockRef::semaphore(engine, name, total), Arc::default())))
    }

    /// Sets how permits are held from the next acquire on: the lease, the longest and shortest hold, the group in metrics. No network call.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let minute = LockOptions::builder().fixed(Duration::from_secs(60)).build()?;
    /// let api = locks.semaphore("sem:api", 10).with(&minute);
    /// # Ok(()) }
    /// ```
    pub fn with(self, options: &LockOptions) -> Self {
        let mut handle = self.0.for_lock(self.0.lock.with_permits(1));
        handle.set_options(options);
        Self(Arc::new(handle))
    }

    /// Returns the name of the semaphore, as it was given. No network call.
    ///
    /// ```no_run
    /// # fn demo(locks: lockkeeper::LockClient) {
    /// assert_eq!(locks.semaphore("sem:api", 10).name(), "sem:api");
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Acquires a permit. If all are in use, waits as long as it takes. A free permit costs one round trip.
    ///
    /// # Errors
    ///
    /// - [`InvalidPermits`](crate::Error::InvalidPermits): the semaphore has no permits.
    /// - [`InvalidName`](crate::Error::InvalidName) or [`WrongKind`](crate::Error::WrongKind): the name or the key cannot be used.
    /// - [`Permission`](crate::Error::Permission): the server refuses, and another try now would not change that.
    /// - [`OutOfMemory`](crate::Error::OutOfMemory): the server had no memory for a permit for `retry_timeout`.
    /// - A fault of server or network that lasted for `retry_timeout`.
    /// - [`Closed`](crate::Error::Closed) or [`RuntimeGone`](crate::Error::RuntimeGone): the client ended before the call or
    ///   during it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind. If the call acquired the permit, it is released in the background.
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// let permit = api.acquire().await?;
    /// // … the call …
    /// permit.unlock().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the permit to a name: a permit that is dropped is released at once"]
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard<PermitId>>> + Send + use<> {
        self.acquire_many(1)
    }

    /// Acquires several permits together: all or none. Waits as long as it takes. One round trip.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire), and [`InvalidPermits`](crate::Error::InvalidPermits) for no permit, for more than there are, or for
    /// more than 10,000.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// let batch = api.acquire_many(3).await?; // one guard for three permits
    /// # Ok(()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the permit to a name: a permit that is dropped is released at once"]
    pub fn acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<LockGuard<PermitId>>> + Send + use<> {
        self.within(permits, WaitLimit::Forever, Location::caller(), granted)
    }

    /// Acquires a permit if one is available now. `None`: all are in use. One round trip.
    ///
    /// The call does not stand in line: it can get a permit before calls of this client that wait for several.
    ///
    /// The statement `api.try_acquire().await?;` drops the permit, and so releases it at once. Always bind the permit.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// let Some(permit) = api.try_acquire().await? else {
    ///     return Ok(()); // busy
    /// };
    /// # Ok(()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the permit to a name: a permit that is dropped is released at once"]
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<LockGuard<PermitId>>>> + Send + use<> {
        self.try_acquire_many(1)
    }

    /// Acquires several permits together if so many are available now. `None`: fewer are. One round trip.
    ///
    /// # Errors
    ///
    /// As for [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// let Some(batch) = api.try_acquire_many(3).await? else { return Ok(()) }; // all three or none
    /// # Ok(()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the permit to a name: a permit that is dropped is released at once"]
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Option<LockGuard<PermitId>>>> + Send + use<> {
        self.within(permits, WaitLimit::None, Location::caller(), identity)
    }

    /// Acquires a permit, and waits no longer than `wait`. `None`: no permit came back for it in that time. One round trip.
    ///
    /// If there is no answer, this call takes up to `command_timeout`, even if `wait` is shorter.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire). At the end of `wait`, the fault of server or network that prevented an answer.
    /// [`InvalidDuration`](crate::Error::InvalidDuration) for a `wait` that is too long for the clock.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<bool> {
    /// let permit = api.try_acquire_for(Duration::from_secs(2)).await?;
    /// # Ok(permit.is_some()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the permit to a name: a permit that is dropped is released at once"]
    pub fn try_acquire_for(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<LockGuard<PermitId>>>> + Send + use<> {
        self.try_acquire_many_for(1, wait)
    }

    /// Acquires several permits together, and waits no longer than `wait`. `None`: there were too few in that time. One round trip.
    ///
    /// # Errors
    ///
    /// As for [`acquire_many`](Self::acquire_many) and [`try_acquire_for`](Self::try_acquire_for).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// let batch = api.try_acquire_many_for(3, Duration::from_secs(2)).await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    #[must_use = "await this and bind the permit to a name: a permit that is dropped is released at once"]
    pub fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<LockGuard<PermitId>>>> + Send + use<> {
        self.within(permits, WaitLimit::For(wait), Location::caller(), identity)
    }

    /// Acquires a permit, runs `work`, and releases the permit. Returns what `work` returns. Two round trips, if a permit is free.
    ///
    /// `work` is dropped when the permit is lost, as in [`LockGuard::finish`].
    ///
    /// # Errors
    ///
    /// [`work_was_unprotected`](crate::Error::work_was_unprotected) tells two cases apart, as for [`Lock::run`](crate::Lock::run).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and releases the permit in the background.
    ///
    /// ```no_run
    /// # async fn call() -> String { String::new() }
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// let answer = api.run(call()).await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn run<W: Future>(&self, work: W) -> impl Future<Output = Result<W::Output>> + use<W> {
        let acquired = self.acquire();
        async move { acquired.await?.finish(work).await }
    }

    /// Returns how many permits are available, with those whose leases have ended. One round trip.
    ///
    /// The answer can be outdated when it arrives. To act on it, use [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// An unusable name or key, or a fault of server or network that lasted for `retry_timeout`.
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// println!("{} permits are available", api.available_permits().await?);
    /// # Ok(()) }
    /// ```
    pub fn available_permits(&self) -> impl Future<Output = Result<u32>> + Send {
        permits::state(&self.0).map_ok(|(available, _)| available)
    }

    /// Returns how many permits there are: those that are available and those in use. This is the server's number, and
    /// [`resize`](Self::resize) sets it. One round trip.
    ///
    /// # Errors
    ///
    /// As for [`available_permits`](Self::available_permits).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// if locks.semaphore("sem:api", 10).total().await? != 10 {
    ///     eprintln!("somebody set another number of permits");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn total(&self) -> impl Future<Output = Result<u32>> + Send {
        permits::state(&self.0).map_ok(|(_, total)| total)
    }

    /// Releases a permit, whoever has it, and wakes a waiter. [`inspect`](crate::LockClient::inspect) lists the permits in use. Returns whether the
    /// permit was in use. If an answer was lost and the call was repeated, false can be wrong. If it was acquired together with others,
    /// its holder loses all of them at its next renewal, or earlier, and they come back, too. One round trip.
    ///
    /// This is for repairs by hand. The former holder can work on until it notices: at the latest at its next renewal or release, or when a
    /// [`fixed`](crate::LockOptionsBuilder::fixed) lease ends.
    ///
    /// # Errors
    ///
    /// As for [`available_permits`](Self::available_permits).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the call releases the permit, now or later. It never releases another permit, but
    /// perhaps from its next holder: a permit that is handed over keeps its id.
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// let was_in_use = api.force_unlock("000102030405060708090a0b0c0d0e0f".parse()?).await?;
    /// # Ok(()) }
    /// ```
    pub async fn force_unlock(&self, id: PermitId) -> Result<bool> {
        permits::force_release(&self.0, id.0).await
    }

    /// Sets how many permits there are. One round trip.
    ///
    /// More permits wake waiters. Fewer take effect as permits come back: nobody loses a permit. This also repairs the number after the
    /// set of permits was deleted by hand.
    ///
    /// This handle and its clones know the number from then on. Other handles were told another number: a `tracing` event says so, once for
    /// each client.
    ///
    /// # Errors
    ///
    /// As for [`available_permits`](Self::available_permits), and [`InvalidPermits`](crate::Error::InvalidPermits) for zero.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the call takes effect, now or later.
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// api.resize(20).await?;
    /// # Ok(()) }
    /// ```
    pub fn resize(&self, permits: u32) -> impl Future<Output = Result<()>> + Send {
        permits::resize(&self.0, permits)
    }

    /// Deletes the semaphore with all its permits. Returns whether there was one. If an answer was lost and the call was repeated, false can be
    /// wrong. One round trip.
    ///
    /// A holder notices at the latest at its next renewal or release, and can work on until then, at the same time as the holders of new permits. The
    /// number of permits stays on the server after the last release, and this removes it.
    ///
    /// # Errors
    ///
    /// As for [`available_permits`](Self::available_permits).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the call takes effect, now or later.
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// api.delete().await?;
    /// # Ok(()) }
    /// ```
    pub fn delete(&self) -> impl Future<Output = Result<bool>> + Send {
        permits::delete(&self.0)
    }

    /// Checks whether this user of the server has the right to run every command that the semaphore needs. Asks the server and changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Permission`](crate::Error::Permission) names every command and key that the user has no right to use. Otherwise as for
    /// [`available_permits`](Self::available_permits).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// api.check().await?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> impl Future<Output = Result<()>> + Send {
        check_rights(&self.0, false)
    }

    fn within<G>(
        &self,
        permits: u32,
        limit: WaitLimit,
        caller: Caller,
        end: fn(Option<LockGuard<PermitId>>) -> G,
    ) -> impl Future<Output = Result<G>> + Send + use<G> {
        let handle = self.for_permits(permits);
        async move { handle?.acquire(limit, caller, end).await }
    }

    /// The handle of one call. Zero permits are refused, and more than [`MOST_PERMITS`].
    fn for_permits(&self, permits: u32) -> Result<Locks> {
        let lock = &self.0.lock;
        let total = lock.permits.total();
        if permits == 0 || total == 0 {
            return Err(Error::InvalidPermits { lock: lock.id(), wanted: 0, total });
        }
        if permits > MOST_PERMITS {
            return Err(Error::InvalidPermits { lock: lock.id(), wanted: permits, total });
        }
        Ok(Locks::one(self.0.for_lock(lock.with_permits(permits))))
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Semaphore").field(&self.name()).finish()
    }
}

/// The id of a permit, as the server knows it: 16 bytes. Its text has 32 hexadecimal digits, as the permit ids of Redisson.
///
/// ```
/// # use lockkeeper::PermitId;
/// let id: PermitId = "000102030405060708090A0B0C0D0E0F".parse()?;
/// assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
/// # Ok::<(), lockkeeper::ConfigError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId([u8; 16]);

impl PermitId {
    /// The id of the first of these permits.
    pub(crate) fn first(ids: PermitIds) -> Self {
        Self(PermitIds { count: 1, ..ids }.each().next().unwrap_or_default())
    }

    pub(crate) fn each(ids: PermitIds) -> impl Iterator<Item = Self> {
        ids.each().map(Self)
    }
}

impl FromStr for PermitId {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        let invalid = || ConfigError::new("permit", "is no id of a permit: an id has 32 hexadecimal digits");
        id.map(|id| Self(id.to_be_bytes())).ok_or_else(invalid)
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({self})")
    }
}
