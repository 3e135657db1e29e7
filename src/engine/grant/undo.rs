//! Releasing a grant in the background, until no copy of a command can run any more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use super::Grant;
use crate::base::clock::{self, Moment};
use crate::base::error::LockId;
use crate::base::fault::{Fault, Sent};
use crate::base::jitter::Backoff;
use crate::base::timer::{Instant, sleep};
use crate::engine::background::{Job, Refused, Turn};
use crate::engine::shared::Engine;
use crate::telemetry::Undoing;

/// The pauses while the server gives no answer.
const RETRY: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The pauses between undos that were answered, while a copy of the attempt can still be under way.
const UNDO_AGAIN: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The pauses while the server refuses. They are longer, because a refusal comes at once, and the server perhaps
/// refuses the releases of many locks.
const REFUSED: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));

/// An attempt carries its end in whole seconds of the server's clock: so a copy of it can run for `command_timeout` and this after it
/// was sent. A tenth of a second is for clocks that drift.
const LATE_COPIES: Duration = Duration::from_millis(1_100);

const PAUSE_AT_SHUTDOWN: Duration = Duration::from_millis(100);

/// The job gives up if the server is still silent this long after the end of the lease.
const GIVE_UP: Duration = Duration::from_secs(600);

/// What the job keeps from one refusal to the next try.
struct Progress {
    /// Wakes the job when there is more to do.
    stir: Arc<Notify>,
    _counted: Undoing,
    _listed: Listed,
    /// When the server first answered an undo of the last attempt.
    answered: Option<Instant>,
    /// How many requests the job has seen.
    requests: u32,
    /// When the lease has certainly ended of what the last request asked to release.
    ends: Instant,
    refused: Backoff,
}

impl Progress {
    fn new(grant: &Arc<Grant>, stir: Arc<Notify>) -> Self {
        let engine = &grant.lock.engine;
        Self {
            stir,
            _counted: engine.metrics.undoing(),
            _listed: Listed::new(grant),
            answered: None,
            requests: 0,
            ends: Instant::now(),
            refused: REFUSED,
        }
    }

    /// Takes note of new requests: each moves the end of the lease.
    fn sees(&mut self, requests: u32, lease: Duration) {
        if std::mem::replace(&mut self.requests, requests) != requests {
            self.ends = Instant::now() + lease;
        }
    }

    /// Pauses, at most until there is more to do. During a shutdown, the pause is short.
    async fn rest(&self, engine: &Engine, pause: Duration) {
        if !engine.is_closing() {
            tokio::select! {
                biased;
                () = sleep(pause) => return,
                () = self.stir.notified() => return,
                () = engine.closing() => {}
            }
        }
        sleep(pause.min(PAUSE_AT_SHUTDOWN)).await;
    }
}

/// Lists a grant among those that the background releases, until this value is dropped. A shutdown that gives up names
/// one of these grants in its error.
pub(crate) struct Listed {
    grant: Arc<Grant>,
    key: usize,
}

impl Listed {
    pub(crate) fn new(grant: &Arc<Grant>) -> Self {
        Self { grant: Arc::clone(grant), key: grant.lock.engine.undoing.add(Arc::clone(grant)) }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.grant.lock.engine.undoing.remove(self.key);
    }
}

impl Grant {
    /// Begins the job, which releases what is owed. `stir` wakes it. Never waits.
    pub(super) fn undo(self: &Arc<Self>, stir: Arc<Notify>) {
        let engine = &self.lock.engine;
        let (grant, progress) = (Arc::clone(self), Progress::new(self, stir));
        let start = move |turn| grant.undo_job(progress, Some(turn));
        if !engine.background.release(self.lock.server(), start)
            && let Some(unreported) = engine.failed_releases.ask()
        {
            let LockId { name, key, server, .. } = self.lock.id();
            tracing::error!(
                lock = name,
                key,
                server,
                unreported,
                "a lock was not released, its lease has to run out: the client's runtime is gone"
            );
        }
    }

    fn undo_job(self: Arc<Self>, progress: Progress, turn: Option<Turn>) -> Job {
        self.release_what_is_owed(progress, turn).boxed()
    }

    async fn release_what_is_owed(
        self: Arc<Self>,
        mut progress: Progress,
        turn: Option<Turn>,
    ) -> Result<(), Refused> {
        let is_left = match self.release_until_certain(&mut progress, turn).await {
            Ok(is_left) => is_left,
            Err(fault) => {
                // The refused job runs again later, with its progress. It stays registered in `undoing`, so the grant
                // gets no second job.
                let (ends, pause) = (progress.ends, progress.refused.pause());
                let error = Box::new(self.lock.error(fault));
                return Err(Refused { error, ends, pause, again: self.undo_job(progress, None) });
            }
        };
        self.undo_ends(progress.requests, is_left, clock::now());
        Ok(())
    }

    /// Ends the job. A request that the job has not seen begins another job.
    fn undo_ends(self: &Arc<Self>, seen: u32, forgets: bool, now: Moment) {
        self.change(now, |state, _| {
            state.machine.background_ends(seen, forgets, now);
            state.undoing = None;
        });
    }

    /// Releases until nothing is owed, or until the job gives up. Returns whether something is still owed. Fails if the
    /// server refuses a release whose lease has not ended.
    async fn release_until_certain(
        self: &Arc<Self>,
        progress: &mut Progress,
        mut turn: Option<Turn>,
    ) -> Result<bool, Fault> {
        let engine = &self.lock.engine;
        let (mut retry, mut again) = (RETRY, UNDO_AGAIN);
        let attended_until = Instant::now() + engine.config.command_timeout();
        loop {
            let (requests, is_attended) = self.ask(|machine| (machine.requests, machine.attended > 0));
            progress.sees(requests, self.longest_lease());
            let now = clock::now();
            if !self.is_owed(now) {
                return Ok(false);
            }
            if is_attended && Instant::now() < attended_until {
                // A future of a caller sends the release, so the job gives its turn back and waits. Perhaps nobody
                // polls that future, so the job waits only until `attended_until`.
                drop(turn.take());
                progress.rest(engine, engine.config.command_timeout()).await;
                continue;
            }
            if self.owes_release(now) {
                progress.answered = None;
            }
            let sent = Instant::now();
            let pause = match self.release_owed_in_turn(turn.take()).await {
                Ok(()) => {
                    let late = engine.config.command_timeout() + LATE_COPIES;
                    if *progress.answered.get_or_insert_with(Instant::now) + late < sent {
                        return Ok(true);
                    }
                    again.pause()
                }
                // A count that is only shown is not worth another try.
                Err(_) if self.shows_no_more(now) => return Ok(false),
                // The lease has ended, and no copy can create another hold, so the server has nothing. A shutdown does
                // not wait for an answer that confirms this.
                Err(_) if engine.is_closing() && Instant::now() >= progress.ends && !self.may_run_late() => {
                    return Ok(true);
                }
                Err(fault) if fault.is_transient() && Instant::now() < progress.ends + GIVE_UP => {
                    retry.pause()
                }
                // The server refused the attempt, and now refuses the undo, too. Most likely the attempt changed
                // nothing, so the job ends. The caller already has the error of the attempt.
                Err(fault)
                    if fault.sent == Sent::Refused
                        && self.ask(|machine| machine.copies.was_only_refused()) =>
                {
                    let LockId { name, key, server, .. } = self.lock.id();
                    tracing::debug!(%fault, lock = name, key, server, "a call that failed perhaps left a lock");
                    return Ok(true);
                }
                // The server refuses the release, perhaps because the Redis user lacks a right for a moment. The
                // background repeats the job until the lease has ended.
                Err(fault) if !fault.is_transient() && Instant::now() < progress.ends => {
                    if let Some(unreported) = engine.failed_releases.ask() {
                        let LockId { name, key, server, .. } = self.lock.id();
                        tracing::warn!(
                            %fault, lock = name, key, server, unreported,
                            "a release was refused, it is repeated until the lease has ended"
                        );
                    }
                    return Err(fault);
                }
                Err(fault) => {
                    if let Some(unreported) = engine.failed_releases.ask() {
                        let LockId { name, key, server, .. } = self.lock.id();
                        tracing::warn!(
                            %fault, lock = name, key, server, unreported,
                            "a lock was not released, its lease has to run out"
                        );
                    }
                    return Ok(true);
                }
            };
            if self.is_owed(clock::now()) {
                progress.rest(engine, pause).await;
            }
        }
    }

    /// Waits for the turn of this job, and releases what is owed. The time limit of the command begins with the turn.
    pub(crate) async fn release_owed_in_turn(self: &Arc<Self>, turn: Option<Turn>) -> Result<(), Fault> {
        let background = &self.lock.engine.background;
        let _turn = match turn {
            Some(turn) => turn,
            None => background.turn(&self.lock.server()).await,
        };
        let result = self.release_owed().await;
        if result.is_ok() {
            background.answered();
        }
        result
    }
}
