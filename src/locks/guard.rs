//! Guards: the proof that a lock is held.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{FutureExt, select_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::{SmallVec, smallvec};
use tracing::Span;

use super::several::Whole;
use super::votes::of_quorum;
use crate::base::error::{Error, Lost, Result};
use crate::base::token::FencingToken;
use crate::engine::{Grant, HeldLock, HoldTimes};
use crate::locks::semaphore::PermitId;
use crate::protocol::PermitIds;

/// One hold on a lock, or permits of a semaphore.
///
/// `T` is what the guard has beside the hold:
///
/// | guard | returned by | has |
/// |---|---|---|
/// | `LockGuard` | [`RLock`](crate::RLock), [`FairLock`](crate::FairLock), [`ReadLock`](crate::ReadLock), [`WriteLock`](crate::WriteLock), [`MultiLock`](crate::MultiLock), [`RedLock`](crate::RedLock) | nothing more |
/// | `LockGuard<FencingToken>` | [`FencedLock`](crate::FencedLock), [`Claims`](crate::Claims) | [`token`](Self::token) |
/// | `LockGuard<PermitId>` | [`Semaphore`](crate::Semaphore) | [`id`](Self::id), [`ids`](Self::ids), [`num_permits`](Self::num_permits) |
///
/// A guard borrows nothing, so it can be kept, sent and returned. It gives no access to data: the data that a lock in Redis
/// protects is elsewhere.
///
/// # Dropping a guard
///
/// Dropping a guard releases the lock in the background, a moment later. Until then another handle's `try_lock` is refused. A
/// drop never waits and never fails, even without a runtime; a release that fails is a `tracing` event. Use
/// [`unlock`](Self::unlock) to know when the hold has ended, and whether it is known to have been lost.
///
/// `let _ = lock.lock().await?;` drops the guard at once. Bind the guard to a name.
///
/// # Losing a lock
///
/// A lock in Redis is a lease. It is lost when the lease was not renewed in time, when somebody removed it, or when the server
/// lost its data. The guard has a deadline: the end of the lease, minus a margin. The lease counts from *before* the client sent
/// the command that acquired or last renewed the lock. From the deadline on, [`is_lost`](Self::is_lost) returns true,
/// [`ended`](Self::ended) completes, and [`run`](Self::run) stops its work, whether or not the server can be reached. Lost is
/// final.
///
/// ```no_run
/// # async fn demo(mut lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
/// let guard = lock.lock().await?;
/// for chunk in 0..1_000 {
///     if guard.is_lost() {
///         break; // another owner may be in the section
///     }
///     // … work on the chunk …
/// }
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct LockGuard<T = ()> {
    /// In the order of the locks. Each of several holds is watched and reported by itself.
    holds: SmallVec<[HeldLock; 1]>,
    /// `None`: there is only one.
    whole: Option<Arc<Whole>>,
    extra: T,
}

/// What a guard has beside its holds. No other crate implements it.
pub trait Extra: Send + Sync + 'static {
    #[doc(hidden)]
    fn of(held: &HeldLock) -> Self;
}

impl Extra for () {
    fn of(_: &HeldLock) {}
}

impl Extra for FencingToken {
    fn of(held: &HeldLock) -> Self {
        // An attempt that is granted without a token fails, so every held fenced lock has a token.
        held.grant.token().expect("BUG: an acquire of a fenced lock ended without a token").into()
    }
}

impl Extra for PermitId {
    fn of(held: &HeldLock) -> Self {
        Self::first(held.grant.permits().expect("BUG: an acquire of a semaphore ended without permits"))
    }
}

impl<T: Extra> LockGuard<T> {
    pub(crate) fn one(held: HeldLock) -> Self {
        Self { extra: T::of(&held), holds: smallvec![held], whole: None }
    }

    pub(super) fn several(holds: SmallVec<[HeldLock; 1]>, whole: Arc<Whole>) -> Self {
        Self { extra: T::of(&holds[0]), holds, whole: Some(whole) }
    }
}

impl<T> LockGuard<T> {
    /// How many of the holds the guard needs.
    fn needed(&self) -> usize {
        self.whole.as_ref().map_or(1, |whole| whole.needed)
    }

    /// Puts later events about the holds into this span.
    pub(super) fn begins(&self, span: &Span) {
        self.holds.iter().for_each(|held| held.hold.begins(span.clone()));
    }

    /// Returns the name of the lock, as it was given. No network call.
    ///
    /// ```no_run
    /// # fn demo(guard: lockkeeper::LockGuard) {
    /// println!("holding {}", guard.name());
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.whole.as_ref().map_or_else(|| &*self.holds[0].grant.lock.name, |whole| &whole.id.name)
    }

    /// Returns the owner of this hold, as the server knows it and as [`inspect`](crate::LockClient::inspect) shows it. No network
    /// call. If owners of this client [share a hold](crate::guide::guarantees#19-owners-of-one-client-share-holds), it has the id of the first.
    ///
    /// An owner is the [id of the client](crate::LockClient::id), a colon and a number, and then `:write` for a write lock. For a
    /// lock of several members, this returns the owner of each, with commas between them.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let guard = locks.rlock("lock:orders:42").lock().await?;
    /// let info = locks.inspect("lock:orders:42").await?.expect("it is held");
    /// assert_eq!(info.holders[0].owner, guard.owner_id());
    /// # Ok(()) }
    /// ```
    pub fn owner_id(&self) -> String {
        self.holds.iter().map(|held| held.grant.field()).collect::<Vec<_>>().join(", ")
    }

    /// Releases the hold. After the last hold of its owner, the lock is free and a waiter is woken, or another owner of this client holds it.
    ///
    /// One round trip, except if another owner of this client takes over the `RLock`, `WriteLock` or permit, or shares the read hold: see
    /// [guarantee 19](crate::guide::guarantees#19-owners-of-one-client-share-holds). Then `Ok` says that no loss is known. Before the end of
    /// [`min_hold`](crate::LockOptionsBuilder::min_hold), it makes no network call, either. A release whose
    /// answer was lost is sent again, which does no harm.
    ///
    /// # Errors
    ///
    /// [`NotHeld`](crate::Error::NotHeld): the hold was gone. The time of the loss may be unknown.
    /// Check what the work did. Also check earlier work of this client with the same [`owner_id`](Self::owner_id). If the guard
    /// [is lost](Self::is_lost) already, the call returns this at once, without a network call.
    ///
    /// Otherwise a [fault of server or network](crate::Error#faults-of-server-and-network). The release is repeated in the background until it succeeds or the lease has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future also releases the lock, in the background. While a future exists that was never polled, it keeps the lock. One that
    /// is not polled to its end notices no fault: then a shutdown releases the lock, or its lease ends.
    ///
    /// ```no_run
    /// # async fn demo(guard: lockkeeper::LockGuard) -> lockkeeper::Result<()> {
    /// match guard.unlock().await {
    ///     Err(lockkeeper::Error::NotHeld(lost)) => eprintln!("check what was done under `{}`", lost.lock.name),
    ///     other => other?,
    /// }
    /// # Ok(()) }
    /// ```
    pub fn unlock(self) -> impl Future<Output = Result<()>> + Send {
        let Self { mut holds, whole, .. } = self;
        async move {
            match whole {
                // Pinned where it is made, as it is large.
                None => pin!(holds.remove(0).unlock()).await,
                // Boxed: its size would burden the guards of one lock.
                Some(whole) => Box::pin(whole.ask(holds.into_iter().map(HeldLock::unlock))).await,
            }
        }
    }

    /// Returns a view of this hold for tasks and threads that the section starts. The view does not keep the lock. No network call.
    ///
    /// ```no_run
    /// # fn demo(guard: lockkeeper::LockGuard) {
    /// let hold = guard.watch();
    /// std::thread::spawn(move || {
    ///     while !hold.is_lost() {
    ///         // … one more step …
    ///     }
    /// });
    /// # }
    /// ```
    pub fn watch(&self) -> HoldWatch {
        HoldWatch { times: self.holds.iter().map(HeldLock::times).collect(), needed: self.needed() }
    }

    /// Waits until the hold has ended, and returns how: `Ok` if the guard was released, dropped or [leaked](Self::leak), and [`Lost`] if
    /// the hold was lost before. No network call.
    ///
    /// The future needs no reference to the guard. When the guard is released, it completes at once, and not when the lease would have ended.
    /// `Ok` says that no loss was known at that moment: a [`NotHeld`](crate::Error::NotHeld) of the [`unlock`](Self::unlock) comes later.
    ///
    /// A timer completes the future a moment before the deadline, because timers can fire late. It does not wait for the server.
    /// An answer of the server can complete it earlier.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped and made again at any time.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn demo(guard: lockkeeper::LockGuard) {
    /// tokio::select! {
    ///     Err(lost) = guard.ended() => eprintln!("stop, another owner may enter: {lost}"),
    ///     () = work() => {}
    /// }
    /// # }
    /// ```
    ///
    /// In a task of its own:
    ///
    /// ```no_run
    /// # async fn demo(guard: lockkeeper::LockGuard, work: tokio::task::JoinHandle<()>) {
    /// let ended = guard.ended();
    /// tokio::spawn(async move {
    ///     if ended.await.is_err() {
    ///         work.abort(); // not after a release
    ///     }
    /// });
    /// # }
    /// ```
    pub fn ended(&self) -> impl Future<Output = Result<(), Lost>> + Send + 'static {
        let Some(whole) = self.whole.clone() else { return self.holds[0].ended().left_future() };
        let mut ends: FuturesUnordered<_> = self.holds.iter().map(HeldLock::ended).collect();
        let ended = async move {
            let mut first = None;
            // All are released together, so the first release is the end.
            while let Some(Err(lost)) = ends.next().await {
                let first = first.get_or_insert(lost);
                if ends.len() < whole.needed {
                    return Err(whole.loss(first));
                }
            }
            Ok(())
        };
        ended.right_future()
    }

    /// Waits until another owner waits for the lock, so that long work can end early. The owner can be in another process, also one of
    /// Redisson. The future also completes when the hold has ended.
    ///
    /// This is a hint: nothing happens to the hold. From its first poll until it is dropped, it sends one command for each lock
    /// four times a second. Waiting owners send nothing more because of it. Owners that only try, such as those of
    /// [`Claims`](crate::Claims), do not wait. If the server does not answer, or its user has no right to `PUBSUB NUMSUB`, nobody is seen.
    /// A fair lock needs only the rights that it has anyway.
    ///
    /// A candidate for a leadership stands by for as long as it runs, so every leadership is wanted.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped and made again at any time.
    ///
    /// ```no_run
    /// # async fn next_part() -> bool { true }
    /// # async fn demo(guard: lockkeeper::LockGuard) -> lockkeeper::Result<()> {
    /// let wanted = tokio::spawn(guard.wanted());
    /// while !next_part().await {
    ///     if wanted.is_finished() {
    ///         break; // the rest is done later
    ///     }
    /// }
    /// guard.unlock().await
    /// # }
    /// ```
    pub fn wanted(&self) -> impl Future<Output = ()> + Send + 'static {
        let wanted = select_all(self.holds.iter().map(|held| Box::pin(held.wanted())));
        let ended = self.ended();
        async move {
            tokio::select! {
                biased;
                _ = ended => {}
                _ = wanted => {}
            }
        }
    }

    /// Returns whether the hold is lost: its lease has ended by this host's clock, or the client knows that the lock is gone. No network call.
    ///
    /// ```no_run
    /// # fn demo(guard: &lockkeeper::LockGuard) {
    /// assert!(!guard.is_lost());
    /// # }
    /// ```
    pub fn is_lost(&self) -> bool {
        self.holds.iter().filter(|held| !held.is_lost()).count() < self.needed()
    }

    /// Returns how long the hold can be relied on if nothing renews it. Zero: the hold is lost. No network call.
    ///
    /// ```no_run
    /// # fn demo(guard: &lockkeeper::LockGuard) {
    /// println!("valid for {:?}, and longer if it is renewed", guard.remaining());
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        of_quorum(self.holds.iter().map(HeldLock::remaining), self.needed())
    }

    /// Runs `work`, and drops it when the lock is lost. **Releases nothing**: the guard still holds the lock afterwards. No network call.
    ///
    /// To release the lock as well, use [`finish`](Self::finish). `run` is for several works under one guard, and for re-entry.
    ///
    /// The hold is checked before each step of `work`, that is, each time `work` is polled. `Ok` says that no loss was known at
    /// the last step. It does not say that the lock was held until the end: if somebody deletes the key meanwhile, only
    /// [`finish`](Self::finish) or [`unlock`](Self::unlock) returns an error.
    ///
    /// If `work` itself can fail, write `guard.run(work).await??`: the first `?` is for [`Lost`], the second for the error of
    /// the work. The work can also re-enter the lock with the same owner: `guard.run(inner(&mut owner))`.
    ///
    /// `run` can only stop work that returns to the runtime at an `.await`. It cannot stop a closure in `spawn_blocking`, a task
    /// that `work` spawned, or code that blocks its thread: check [`is_lost`](Self::is_lost) there, between the steps. An
    /// `Arc<LockGuard>` can be shared for that.
    ///
    /// # Errors
    ///
    /// [`Lost`]: the hold was lost before `work` completed. Drop the guard then: `unlock` would only report `NotHeld`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`. The guard stays.
    ///
    /// ```no_run
    /// # async fn report() -> String { String::new() }
    /// # async fn demo(guard: lockkeeper::LockGuard) -> lockkeeper::Result<()> {
    /// let report = guard.run(report()).await?;
    /// guard.unlock().await?;
    /// # Ok(()) }
    /// ```
    pub fn run<W: Future>(&self, work: W) -> impl Future<Output = Result<W::Output, Lost>> {
        let (holds, whole, ended) = (&self.holds, self.whole.as_deref(), self.ended());
        async move {
            let (mut ended, mut work) = (pin!(ended), pin!(work));
            poll_fn(|context| {
                // The check reads the clock and does not rely on the timer alone: after a pause of this process, the
                // timer and `work` can be ready together.
                if let Some(lost) = loss(holds, whole) {
                    return Poll::Ready(Err(lost));
                }
                if let Poll::Ready(Err(lost)) = ended.as_mut().poll(context) {
                    return Poll::Ready(Err(lost));
                }
                work.as_mut().poll(context).map(Ok)
            })
            .await
        }
    }

    /// Runs `work` and releases the lock. Returns what `work` returns, if the lock was held until then. One round trip.
    ///
    /// This is what the `run` of a lock does after it has acquired the lock. It takes the guard, so copy what `work` needs of it before,
    /// such as the name and the token of a claim.
    ///
    /// # Errors
    ///
    /// [`work_was_unprotected`](crate::Error::work_was_unprotected) is true for both errors, and [`loss_cause`](crate::Error::loss_cause) has
    /// the cause:
    ///
    /// - [`Lost`](crate::Error::Lost): the lock was lost, and `work` was stopped, as in [`run`](Self::run).
    /// - [`NotHeld`](crate::Error::NotHeld): `work` came to its end, but the lock was gone when it was released. The result of `work` is dropped.
    ///
    /// If only the release fails, the result of `work` is returned, and the release goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and releases the lock in the background.
    ///
    /// ```no_run
    /// # async fn do_job(job: &str, token: lockkeeper::FencingToken) {}
    /// # async fn demo(jobs: lockkeeper::Claims) -> lockkeeper::Result<()> {
    /// if let Some(claim) = jobs.claim([17, 18, 19]).await? {
    ///     let (job, token) = (claim.name().to_owned(), claim.token());
    ///     claim.finish(do_job(&job, token)).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn finish<W: Future>(self, work: W) -> Result<W::Output> {
        let done = self.run(work).await?;
        self.unlock_after(done).await
    }

    /// Releases the hold after work that it protected until now, and returns what the work returned. Fails only if the hold was gone.
    pub(crate) async fn unlock_after<D>(self, done: D) -> Result<D> {
        match self.unlock().await {
            Err(unprotected @ Error::NotHeld(_)) => Err(unprotected),
            // If the release failed, the background continues it.
            Ok(()) | Err(_) => Ok(done),
        }
    }

    /// Makes the lease last at least this long from now. The lease never becomes shorter. One round trip.
    ///
    /// This also makes a fixed lease longer. It does not move the end that `max_hold` sets.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::Error::Lost) if the hold is lost, [`InvalidDuration`](crate::Error::InvalidDuration) for a lease that
    /// cannot be held, or a [fault of server or network](crate::Error#faults-of-server-and-network).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the lease became longer.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn demo(guard: lockkeeper::LockGuard) -> lockkeeper::Result<()> {
    /// guard.extend(Duration::from_secs(60)).await?;
    /// # Ok(()) }
    /// ```
    pub fn extend(&self, lease: Duration) -> impl Future<Output = Result<()>> + Send {
        let holds = &self.holds;
        match &self.whole {
            None => holds[0].extend(lease).left_future(),
            Some(whole) => {
                let extended = async move { whole.ask(holds.iter().map(|held| held.extend(lease))).await };
                extended.boxed().right_future()
            }
        }
    }

    /// Returns how many holds the owner of this guard has on the lock, as far as this client knows. No network call.
    ///
    /// ```no_run
    /// # async fn demo(mut lock: lockkeeper::RLock<'_>) -> lockkeeper::Result<()> {
    /// let (outer, inner) = (lock.lock().await?, lock.lock().await?);
    /// assert_eq!(outer.hold_count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn hold_count(&self) -> u32 {
        of_quorum(self.holds.iter().map(HeldLock::holds), self.needed())
    }

    /// Leaves the lock held until its lease ends by itself: nothing renews or releases it any more, unless
    /// this owner has another guard on it. No network call.
    ///
    /// Use `leak` and not [`std::mem::forget`]: a forgotten guard keeps its lock renewed as long as the process lives.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let hour = LockOptions::builder().fixed(Duration::from_secs(3600)).build()?;
    /// let mut lock = locks.rlock("lock:nightly").with(&hour);
    /// if let Some(guard) = lock.try_lock().await? {
    ///     // … the job …
    ///     guard.leak(); // nobody runs the job again within the hour
    /// }
    /// # Ok(()) }
    /// ```
    pub fn leak(self) {
        self.holds.into_iter().for_each(HeldLock::leak);
    }

    /// Returns the guard without its token or ids, for code that keeps guards of several types together. No network call.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let mut guards = vec![locks.rlock("lock:orders:42").lock().await?];
    /// guards.push(locks.fenced_lock("lock:ledger").lock().await?.into_plain());
    /// # Ok(()) }
    /// ```
    pub fn into_plain(self) -> LockGuard {
        LockGuard { holds: self.holds, whole: self.whole, extra: () }
    }

    pub(crate) fn grant(&self) -> &Arc<Grant> {
        &self.holds[0].grant
    }
}

impl LockGuard<FencingToken> {
    /// Returns the number of this holder. It is greater than the numbers of all earlier holders; for a claim, of all earlier claims of its
    /// group. [`FencedLock`](crate::FencedLock) says when a server that loses data breaks that. No network call.
    ///
    /// ```no_run
    /// # async fn demo(mut lock: lockkeeper::FencedLock<'_>) -> lockkeeper::Result<()> {
    /// let (outer, inner) = (lock.lock().await?, lock.lock().await?);
    /// assert_eq!(outer.token(), inner.token()); // a re-entry is the same holder
    /// # Ok(()) }
    /// ```
    ///
    /// Guards of other locks have no token:
    ///
    /// ```compile_fail,E0599
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let token = locks.rlock("lock:orders:42").lock().await?.token();
    /// # Ok(()) }
    /// ```
    pub const fn token(&self) -> FencingToken {
        self.extra
    }
}

impl LockGuard<PermitId> {
    /// Returns how many permits these are. No network call.
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// assert_eq!(api.acquire_many(3).await?.num_permits(), 3);
    /// # Ok(()) }
    /// ```
    pub fn num_permits(&self) -> u32 {
        self.permit_ids().count
    }

    /// Returns the id of the permit; of several, that of the first. Java's `release(permitId)` takes it. No network call.
    ///
    /// A permit keeps its id when the client hands it to the next of its waiters, within 5 ms of the grant.
    ///
    /// ```no_run
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let permit = locks.semaphore("sem:api", 10).acquire().await?;
    /// let info = locks.inspect("sem:api").await?.expect("a permit is in use");
    /// assert!(info.holders.iter().any(|holder| holder.owner == permit.id().to_string()));
    /// # Ok(()) }
    /// ```
    pub const fn id(&self) -> PermitId {
        self.extra
    }

    /// Returns the ids of all these permits. No network call.
    ///
    /// ```no_run
    /// # async fn demo(api: lockkeeper::Semaphore) -> lockkeeper::Result<()> {
    /// let batch = api.acquire_many(3).await?;
    /// assert_eq!(batch.ids().count(), 3);
    /// # Ok(()) }
    /// ```
    pub fn ids(&self) -> impl Iterator<Item = PermitId> + use<> {
        PermitId::each(self.permit_ids())
    }

    fn permit_ids(&self) -> PermitIds {
        self.holds[0].grant.permits().expect("BUG: an acquire of a semaphore ended without permits")
    }
}

/// Returns the error of a lost guard, with the cause of the first lost hold. `None`: enough of the holds can be relied on.
fn loss(holds: &[HeldLock], whole: Option<&Whole>) -> Option<Lost> {
    let mut lost = holds.iter().filter(|held| held.is_lost());
    let first = lost.next()?;
    let Some(whole) = whole else { return Some(first.hold.loss()) };
    (holds.len() - 1 - lost.count() < whole.needed).then(|| whole.loss(&first.hold.loss()))
}

/// Returns the guard of an acquire without a time limit.
pub(super) fn granted<T>(guard: Option<LockGuard<T>>) -> LockGuard<T> {
    guard.expect("BUG: an acquire without a time limit ends with a guard or an error")
}

/// Runs work if the lock is acquired, and releases the lock. `None`: another owner holds it, and the work did not run.
pub(super) async fn finish<T, W: Future>(
    acquired: impl Future<Output = Result<Option<LockGuard<T>>>>,
    work: W,
) -> Result<Option<W::Output>> {
    match acquired.await? {
        Some(guard) => guard.finish(work).await.map(Some),
        None => Ok(None),
    }
}

/// Tells whether a hold is lost, wherever its [`LockGuard`] is. When the guard was released or dropped, the hold counts as lost.
///
/// ```no_run
/// # async fn demo(guard: lockkeeper::LockGuard) {
/// let hold = guard.watch();
/// tokio::task::spawn_blocking(move || println!("valid for {:?}", hold.remaining()));
/// # }
/// ```
#[derive(Clone)]
pub struct HoldWatch {
    times: SmallVec<[HoldTimes; 1]>,
    needed: usize,
}

impl HoldWatch {
    /// Returns whether the hold is lost, as [`LockGuard::is_lost`] does, or has ended: it is true after a release, too. No network call.
    ///
    /// ```no_run
    /// # fn demo(hold: &lockkeeper::HoldWatch) {
    /// assert!(!hold.is_lost());
    /// # }
    /// ```
    pub fn is_lost(&self) -> bool {
        self.times.iter().filter(|hold| !hold.is_lost()).count() < self.needed
    }

    /// Returns how long the hold can be relied on if nothing renews it. Zero: it is lost or ended. No network call.
    ///
    /// ```no_run
    /// # fn demo(hold: &lockkeeper::HoldWatch) {
    /// println!("valid for {:?}, and longer if it is renewed", hold.remaining());
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        of_quorum(self.times.iter().map(HoldTimes::remaining), self.needed)
    }
}

impl fmt::Debug for HoldWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldWatch").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

/// Takes no mutex.
impl<T> fmt::Debug for LockGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", &self.name())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
