//! A candidate: it campaigns, leads, and campaigns again.

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::leadership::Leadership;
use crate::base::error::{Error, Result};
use crate::base::jitter::Backoff;
use crate::engine::Engine;
use crate::locks::FencedLock;
use crate::locks::guard::FencedGuard;
use crate::telemetry::report::Limit;

/// For how long a candidate that stepped down leaves the leadership to others. They are woken by a message.
const REST: Duration = Duration::from_secs(1);

/// A leader steps down this long before the end of its longest term would be a loss.
const EARLY: Duration = Duration::from_millis(20);

/// The pauses between two campaigns that failed. An acquire retries by itself before it fails.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// A candidate for the leadership: of all candidates with the same name, at most one leads at a time.
///
/// The leadership is a [`FencedLock`] with this name, so it has the guarantees of a lock: a leader knows that its term is over before
/// another candidate can lead. If the leader dies, another candidate leads when the lease has ended, that is, after
/// `watchdog_lease` at the latest.
///
/// ```no_run
/// # async fn tick() {}
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut candidate = locks.candidate("lock:leader:reports");
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
    engine: Arc<Engine>,
    lock: FencedLock,
    resigner: Resigner,
    failures: Limit,
}

/// Asks a [`Candidate`] to step down. It is cheap to clone.
///
/// ```no_run
/// # async fn demo(mut candidate: lockkeeper::Candidate) {
/// let resigner = candidate.resigner();
/// tokio::spawn(async move { candidate.run(|_| std::future::pending::<()>()).await });
/// // … when another process should lead …
/// resigner.step_down();
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Resigner(Arc<Notify>);

/// How a term ended.
enum End<T> {
    /// The work completed.
    Done(Result<T>),
    /// It was asked to step down, or its longest term ended.
    SteppedDown,
    Lost,
}

impl Candidate {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        let lock = FencedLock::new(engine, name, Arc::default());
        Self {
            engine: Arc::clone(engine),
            lock,
            resigner: Resigner(Arc::default()),
            failures: Limit::default(),
        }
    }

    /// Campaigns, and runs `work` for as long as this candidate leads. Asks the server.
    ///
    /// - When the leadership is lost, `work` is dropped, and the candidate campaigns again. If it is elected again, it calls `work`
    ///   for the new term. The same happens after [`step_down`](Resigner::step_down).
    /// - When `work` completes, the leadership is released, and `run` returns the result.
    /// - After a fault of server or network, the candidate campaigns again, after pauses of up to 5 s.
    /// - After a [`shutdown`](crate::LockClient::shutdown) of the client, `work` continues until the lease ends, and then `run`
    ///   returns [`Closed`](Error::Closed). To free the leadership at once, drop this future before the shutdown.
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
    /// If the future is dropped, `work` is dropped, and the leadership is released in the background. The candidate can run again.
    ///
    /// ```no_run
    /// # async fn report() -> u32 { 0 }
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let mut candidate = locks.candidate("lock:leader:reports");
    /// let pages = candidate.run(|_| report()).await?; // once, on whichever process leads first
    /// # Ok(()) }
    /// ```
    pub async fn run<T, W>(&mut self, mut work: impl FnMut(Leadership) -> W) -> Result<T>
    where
        W: Future<Output = T>,
    {
        let mut pauses = PAUSES;
        loop {
            let guard = match self.lock.lock().await {
                Ok(guard) => guard,
                Err(error) if error.is_transient() => {
                    self.report(&error);
                    self.pause(pauses.pause()).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            pauses = PAUSES;
            match self.lead(guard, &mut work).await {
                End::Done(result) => return result,
                End::SteppedDown => self.pause(REST).await,
                End::Lost => {}
            }
        }
    }

    /// Returns what asks this candidate to step down, also while it runs. Asks no server.
    ///
    /// ```no_run
    /// # fn demo(candidate: &lockkeeper::Candidate) {
    /// let resigner = candidate.resigner();
    /// # }
    /// ```
    pub fn resigner(&self) -> Resigner {
        self.resigner.clone()
    }

    /// Sets the longest term. A leader steps down when its term has lasted for this time, at the latest, and does not campaign for one
    /// second. If no other candidate leads by then, it can lead again. Asks no server.
    ///
    /// # Errors
    ///
    /// [`InvalidDuration`](Error::InvalidDuration), as for [`FencedLock::max_hold`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
    /// let candidate = locks.candidate("lock:leader:reports").longest_term(Duration::from_secs(3600))?;
    /// # Ok(()) }
    /// ```
    pub fn longest_term(self, most: Duration) -> Result<Self> {
        Ok(Self { lock: self.lock.max_hold(most)?, ..self })
    }

    /// Runs the work for one term.
    async fn lead<T, W>(&self, guard: FencedGuard, work: &mut impl FnMut(Leadership) -> W) -> End<T>
    where
        W: Future<Output = T>,
    {
        let (name, leadership) = (guard.name(), Leadership::begin(&guard));
        let ends = leadership.ends_with();
        let term = leadership.term().get();
        tracing::info!(lock = name, term, "a candidate leads");
        let mut asked = pin!(self.resigner.0.notified());
        // From here on a request counts, and none from before the election.
        asked.as_mut().enable();
        let time_is_up = self.time_is_up(&leadership);
        let done = tokio::select! {
            biased;
            () = asked => Err(STEPPED_DOWN),
            () = time_is_up => Err(TIME_IS_UP),
            done = guard.run(work(leadership)) => Ok(done),
        };
        // The work was dropped with the end of the `select!`. What it started learns the end before the server does.
        drop(ends);
        let end = match done {
            Ok(Ok(_)) => "the work is done",
            Ok(Err(_)) => "the lock was lost",
            Err(why) => why,
        };
        tracing::info!(lock = name, term, end, "a candidate no longer leads");
        match done {
            Ok(Err(_)) => End::Lost,
            Ok(Ok(value)) => End::Done(match guard.unlock().await {
                Err(error @ Error::NotHeld(_)) => Err(error),
                // The background continues a release that failed.
                _ => Ok(value),
            }),
            Err(_) => {
                let _ = guard.unlock().await;
                End::SteppedDown
            }
        }
    }

    /// Waits until the longest term is almost over, if there is one. It does not keep the leadership.
    fn time_is_up(&self, leadership: &Leadership) -> impl Future<Output = ()> + use<> {
        let ends = leadership.until_end().map(|left| {
            let early = self.engine.margin_of(left) + EARLY.min(left / 10);
            Instant::now() + left.saturating_sub(early)
        });
        async move {
            match ends {
                Some(ends) => sleep_until(ends).await,
                None => pending().await,
            }
        }
    }

    /// Waits for this time, or until the shutdown of the client.
    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = self.engine.closing() => {}
            () = sleep(time) => {}
        }
    }

    fn report(&self, error: &Error) {
        if let Some(unreported) = self.failures.ask() {
            tracing::warn!(%error, unreported, "a candidate could not campaign, and tries again");
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

impl Resigner {
    /// Asks the candidate to step down: its work is dropped, the leadership is released, and for one second the candidate does not
    /// campaign. If no other candidate leads by then, it can lead again. To end a candidate, drop the future of
    /// [`run`](Candidate::run) instead.
    ///
    /// If the candidate does not lead, this does nothing. Asks no server.
    ///
    /// ```no_run
    /// # fn demo(resigner: &lockkeeper::Resigner) {
    /// resigner.step_down();
    /// # }
    /// ```
    pub fn step_down(&self) {
        self.0.notify_waiters();
    }
}
