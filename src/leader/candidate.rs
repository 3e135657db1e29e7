//! A candidate: it campaigns, leads, and campaigns again.

use std::fmt;
use std::future::pending;
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::announcements::{self, Announcer};
use super::leadership::Leadership;
use crate::{ConfigError, Error, FencedLock, FencingToken, LockClient, LockGuard, LockOptions, Result};

/// For how long a candidate that stepped down leaves the leadership to others. They are woken by a message.
const REST: Duration = Duration::from_secs(1);

/// A leader steps down this long before the end of its longest term would be a loss.
const EARLY: Duration = Duration::from_millis(20);

/// The pauses between two campaigns that failed: each is twice as long as the one before. An acquire retries by itself before it fails.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// A candidate for the leadership: of all candidates with the same name, at most one leads at a time.
///
/// The leadership is a [`FencedLock`] with this name, so it has the guarantees of a lock: a leader that cannot renew it knows that its
/// term is over before the lease ends and another candidate can lead. If somebody deletes the key, or the server loses its data, the
/// leader learns that mostly within milliseconds, and at its next renewal at the latest. If the leader dies, another candidate leads when the lease has
/// ended. The lease is `watchdog_lease`, unless [`with`](Self::with) sets another.
///
/// ```no_run
/// # use lockkeeper::leader::Candidate;
/// # async fn tick() {}
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut candidate = Candidate::new(&locks, "lock:leader:reports");
/// candidate.run(|leadership| async move {
///     println!("leading, term {}", leadership.term());
///     loop {
///         tick().await; // dropped at its `.await` when the leadership is lost
///     }
/// }).await
/// # }
/// ```
#[must_use = "a candidate does nothing until it runs"]
pub struct Candidate {
    lock: FencedLock<'static>,
    shared: Arc<Shared>,
    max_term: Option<Duration>,
    announcement: Vec<u8>,
}

/// Tells whether a [`Candidate`] leads, and lets it step down, while it runs. It is cheap to clone.
///
/// ```no_run
/// # async fn demo(mut candidate: lockkeeper::leader::Candidate) {
/// let handle = candidate.handle();
/// tokio::spawn(async move { candidate.run(|_| std::future::pending::<()>()).await });
/// // … when another process should lead …
/// if handle.is_leading() {
///     handle.step_down();
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct CandidateHandle(Arc<Shared>);

/// What a candidate and its handles share.
#[derive(Default)]
struct Shared {
    step_down: Notify,
    /// The term of this candidate, and then the last one.
    term: Mutex<Option<Leadership>>,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Option<Leadership>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a term ended.
enum End<T> {
    /// The work completed.
    Done(Result<T>),
    /// It was asked to step down, or its longest term ended.
    SteppedDown,
    Lost,
}

impl Candidate {
    /// Makes a candidate for the leadership with this name, which is the key in Redis. No network call.
    ///
    /// ```no_run
    /// # use lockkeeper::leader::Candidate;
    /// # async fn lead() {}
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// Candidate::new(&locks, "lock:leader:reports").run(|leadership| lead()).await?;
    /// # Ok(()) }
    /// ```
    pub fn new(locks: &LockClient, name: impl AsRef<str>) -> Self {
        Self {
            lock: locks.fenced_lock(name),
            shared: Arc::default(),
            max_term: None,
            announcement: Vec::new(),
        }
    }

    /// Campaigns, and runs `work` for as long as this candidate leads. Four commands for each term, more
    /// with an announcement, and its renewals.
    ///
    /// - When the leadership is lost, `work` is dropped, and the candidate campaigns again. If it is elected again, it calls `work`
    ///   for the new term. A candidate that [steps down](CandidateHandle::step_down) does the same.
    /// - When `work` completes, the leadership is released, and `run` returns the result.
    /// - After a fault that can pass ([`is_transient`](Error::is_transient)), the candidate campaigns again, after pauses of up to 5 s.
    /// - To end the candidate, such as at a `SIGTERM`, drop the future.
    /// - After a [`shutdown`](crate::LockClient::shutdown) of the client, `work` continues until the lease ends, and then `run`
    ///   returns [`Closed`](Error::Closed). To free the leadership at once, drop this future before the shutdown.
    ///
    /// `work` is called for each term, and its future borrows nothing from it: make an [`Owner`](crate::Owner) inside, and keep what outlives a
    /// term in an `Arc`.
    ///
    /// As with [`LockGuard::run`](crate::LockGuard::run), only work that returns to the runtime at an `.await` can be stopped. Give
    /// a clone of the [`Leadership`] to tasks and threads that the work starts.
    ///
    /// # Errors
    ///
    /// - [`NotHeld`](Error::NotHeld): `work` completed, but the leadership had been removed before. Perhaps another candidate leads
    ///   since then. The result of `work` is dropped.
    /// - Any error of [`FencedLock::lock`] for which [`is_transient`](Error::is_transient) is false, such as
    ///   [`Permission`](Error::Permission), or [`Closed`](Error::Closed) after a shutdown of the client.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped, and the leadership is released in the background. A
    /// [`shutdown`](crate::LockClient::shutdown) waits for that. The candidate can run again.
    ///
    /// ```no_run
    /// # use lockkeeper::leader::Candidate;
    /// # async fn report() -> u32 { 0 }
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let mut candidate = Candidate::new(&locks, "lock:leader:reports");
    /// let pages = candidate.run(|_| report()).await?; // once, on whichever process leads first
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn run<T, W>(&mut self, work: impl FnMut(Leadership) -> W) -> impl Future<Output = Result<T>>
    where
        W: Future<Output = T>,
    {
        self.campaign(Location::caller(), work)
    }

    async fn campaign<T, W>(
        &mut self,
        caller: &'static Location<'static>,
        mut work: impl FnMut(Leadership) -> W,
    ) -> Result<T>
    where
        W: Future<Output = T>,
    {
        let mut pause = FIRST_PAUSE;
        loop {
            let guard = match self.lock.stand_by(caller).await {
                Ok(guard) => guard,
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, ?pause, "a candidate could not campaign, and tries again");
                    self.pause(pause).await;
                    pause = LAST_PAUSE.min(pause * 2);
                    continue;
                }
                Err(error) => return Err(error),
            };
            pause = FIRST_PAUSE;
            match self.lead(guard, &mut work).await {
                End::Done(result) => return result,
                End::SteppedDown => self.pause(REST).await,
                End::Lost => {}
            }
        }
    }

    /// Returns a handle that tells whether this candidate leads, and lets it step down, also while it runs. No network call.
    ///
    /// ```no_run
    /// # fn demo(candidate: &lockkeeper::leader::Candidate) {
    /// let handle = candidate.handle();
    /// # }
    /// ```
    pub fn handle(&self) -> CandidateHandle {
        CandidateHandle(Arc::clone(&self.shared))
    }

    /// Sets the options of its lock, such as the lease. No network call.
    ///
    /// `max_hold`, or a `fixed` lease, is the longest term: a leader steps down when its term has lasted for this time, at the latest, and does
    /// not campaign for one second. If no other candidate leads by then, it can lead again. With a `fixed` lease nothing is renewed: while it
    /// lasts, nobody notices that the key was deleted, and a leader that died keeps others from leading.
    ///
    /// `min_hold` has no effect: when a term is over, another candidate can lead.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lockkeeper::LockOptions;
    /// # use lockkeeper::leader::Candidate;
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let hourly = LockOptions::builder().renewed(Duration::from_secs(5)).max_hold(Duration::from_secs(3600)).build()?;
    /// let candidate = Candidate::new(&locks, "lock:leader:reports").with(&hourly);
    /// # Ok(()) }
    /// ```
    pub fn with(self, options: &LockOptions) -> Self {
        let max_term = options.max_hold().into_iter().chain(options.fixed()).min();
        Self { lock: self.lock.with(&options.of_leader()), max_term, ..self }
    }

    /// Sets what this candidate announces while it leads, such as its address: at most 4,096 bytes. No network call.
    ///
    /// A [`LeaderWatch`](super::LeaderWatch) returns it, together with who leads. Each term announces it anew, and what an earlier leader
    /// announced is never returned for a later one. The server has it a moment after the election, while the work already begins. It ends
    /// with the term, or, if the process dies, with the lease.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: it is longer.
    ///
    /// ```no_run
    /// # use lockkeeper::leader::Candidate;
    /// # fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let candidate = Candidate::new(&locks, "lock:leader:reports").announce("10.0.0.7:9000")?;
    /// # Ok(()) }
    /// ```
    pub fn announce(self, said: impl Into<Vec<u8>>) -> Result<Self, ConfigError> {
        let announcement = said.into();
        announcements::check(&announcement)?;
        Ok(Self { announcement, ..self })
    }

    /// Checks whether this user of the server has the rights that a candidate needs, and those to announcements. Asks the server and
    /// changes nothing.
    ///
    /// A candidate without the rights to announcements can lead, but others learn late that it leads, and not what it announces.
    ///
    /// # Errors
    ///
    /// As for [`Lock::check`](crate::Lock::check).
    ///
    /// # Cancel safety
    ///
    /// The call changes nothing, so it can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn demo(candidate: lockkeeper::leader::Candidate) -> lockkeeper::Result<()> {
    /// candidate.check().await?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> impl Future<Output = Result<()>> + Send {
        announcements::check_rights(&self.lock)
    }

    /// Runs the work for one term.
    async fn lead<T, W>(
        &self,
        guard: LockGuard<FencingToken>,
        work: &mut impl FnMut(Leadership) -> W,
    ) -> End<T>
    where
        W: Future<Output = T>,
    {
        // Bound in this order, `guard` is dropped before `announcer`: first the lock becomes free, then the removed
        // announcement wakes the watchers.
        let (announcer, guard) = (Announcer::new(&guard), guard);
        let (name, leadership) = (guard.name(), Leadership::begin(&guard));
        let mut asked = pin!(self.shared.step_down.notified());
        // `enable` comes before the term begins: others can ask for a step-down as soon as they learn that this candidate
        // leads. Requests from before the election do not count.
        asked.as_mut().enable();
        // Dropped after the mutex is unlocked: dropping a term can run code of the user, which can ask for the term.
        let before = self.shared.locked().replace(leadership.clone());
        drop(before);
        let ends = leadership.ends_with();
        let term = leadership.term().get();
        tracing::info!(lock = name, term, "a candidate leads");
        let began = Instant::now();
        let done = tokio::select! {
            biased;
            () = asked => Err(STEPPED_DOWN),
            () = self.time_is_up() => Err(TIME_IS_UP),
            () = self.keep_announced(&announcer, &guard) => unreachable!("it never ends"),
            done = guard.run(work(leadership)) => Ok(done),
        };
        // The `select!` has dropped the work. Dropping `ends` tells the tasks that the work started, before the lock is
        // released on the server.
        drop(ends);
        // A loss shortly before the end of the longest term counts as that end: for a short term, the margin of the
        // hold can be longer than the time by which `time_is_up` comes early.
        let is_up = |most: Duration| began.elapsed() >= most - REST.min(most / 4);
        let done = match done {
            Ok(Err(_)) if self.max_term.is_some_and(is_up) => Err(TIME_IS_UP),
            done => done,
        };
        let end = match done {
            Ok(Ok(_)) => "the work is done",
            Ok(Err(_)) => "the lock was lost",
            Err(why) => why,
        };
        tracing::info!(lock = name, term, end, "a candidate no longer leads");
        match done {
            Ok(Err(_)) => End::Lost,
            Ok(Ok(value)) => End::Done(guard.unlock_after(value).await),
            Err(_) => {
                let _ = guard.unlock().await;
                End::SteppedDown
            }
        }
    }

    /// Tells those who watch that this candidate leads, and keeps what it announces on the server. Never ends.
    async fn keep_announced(&self, announcer: &Announcer, guard: &LockGuard<FencingToken>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let next = match announcer.announce(&self.announcement).await {
                Ok(()) if self.announcement.is_empty() => break,
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    // The announcement expires with the lease, so it is written again after half of the time that is
                    // left.
                    FIRST_PAUSE.max(guard.remaining() / 2)
                }
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, ?pause, "a leader could not announce itself, and tries again");
                    let next = LAST_PAUSE.min(2 * pause);
                    std::mem::replace(&mut pause, next)
                }
                // The hold is gone, so `guard.run` ends the term.
                Err(Error::NotHeld(_)) => break,
                Err(error) => {
                    tracing::info!(%error, "a leader cannot announce itself: others learn late that it leads");
                    break;
                }
            };
            sleep(next).await;
        }
        pending().await
    }

    /// Waits until the longest term is almost over, if there is one.
    async fn time_is_up(&self) {
        match self.max_term {
            Some(most) => sleep(most - (most / 10).min(EARLY + most / 100)).await,
            None => pending().await,
        }
    }

    /// Waits for this time, or until the client ends.
    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = self.lock.ended() => {}
            () = sleep(time) => {}
        }
    }
}

const STEPPED_DOWN: &str = "it was asked to step down";
const TIME_IS_UP: &str = "its longest term ended";

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Candidate").field(&self.lock).finish()
    }
}

impl CandidateHandle {
    /// Returns whether the candidate leads now: its work runs, and its [term](Leadership::is_over) is not over. No network call.
    ///
    /// ```no_run
    /// # fn demo(handle: &lockkeeper::leader::CandidateHandle) {
    /// println!("{}", if handle.is_leading() { "leader" } else { "standby" }); // for a status page
    /// # }
    /// ```
    pub fn is_leading(&self) -> bool {
        // The mutex is unlocked before the term is asked: `is_over` reports a loss that it finds, and the report can
        // run code of the user.
        let term = self.0.locked().clone();
        term.is_some_and(|term| !term.is_over())
    }

    /// Lets the candidate step down: its work is dropped, the leadership is released, and for one second the candidate does not
    /// campaign. If no other candidate leads by then, it can lead again. To end a candidate, drop the future of
    /// [`run`](Candidate::run) instead.
    ///
    /// If the candidate does not lead, this does nothing. No network call.
    ///
    /// ```no_run
    /// # fn demo(handle: &lockkeeper::leader::CandidateHandle) {
    /// handle.step_down();
    /// # }
    /// ```
    pub fn step_down(&self) {
        self.0.step_down.notify_waiters();
    }
}

impl fmt::Debug for CandidateHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CandidateHandle").finish_non_exhaustive()
    }
}
