//! Reconciling a grant in the background, until no copy of a command can run any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;

use super::Grant;
use crate::base::clock::{self, Moment};
use crate::base::error::LockId;
use crate::base::fault::{Fault, Sent};
use crate::base::jitter::Backoff;
use crate::base::timer::{Instant, sleep};
use crate::engine::background::{Job, Refused, Turn};
use crate::protocol::ReleaseReply;
use crate::telemetry::Undoing;

/// The pauses while the server gives no answer.
const RETRY: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The pauses between undos that were answered, while a copy of the attempt can still be under way.
const UNDO_AGAIN: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// The pauses while the server refuses. It answers at once, and perhaps refuses the releases of many locks.
const REFUSED: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));

/// How long after the first answer a copy of an attempt can still arrive. A server that was stopped runs the commands that it had
/// received as soon as it continues. The client's host gives up sooner than this on commands that it could not deliver.
const LATE_COPIES: Duration = Duration::from_secs(25);

/// The same during a shutdown: enough for the commands that the server has received.
const LATE_COPIES_AT_SHUTDOWN: Duration = Duration::from_secs(1);

const PAUSE_AT_SHUTDOWN: Duration = Duration::from_millis(100);

/// The job gives up if the server is still silent this long after the end of the lease.
const GIVE_UP: Duration = Duration::from_secs(600);

/// What the job keeps from one refusal to the next try.
struct Progress {
    _counted: Undoing,
    _listed: Listed,
    /// When the server first answered an undo of the last attempt.
    answered: Option<Instant>,
    /// How many requests the job has seen.
    requests: u32,
    /// When the lease of what the last request asked to release has ended.
    ends: Instant,
    refused: Backoff,
}

impl Progress {
    fn new(grant: &Arc<Grant>) -> Self {
        let engine = &grant.lock.engine;
        Self {
            _counted: engine.metrics.undoing(),
            _listed: Listed::new(grant),
            answered: None,
            requests: 0,
            ends: Instant::now(),
            refused: REFUSED,
        }
    }

    /// Takes note of requests that came since.
    fn sees(&mut self, requests: u32, lease: Duration) {
        if std::mem::replace(&mut self.requests, requests) != requests {
            self.ends = Instant::now() + lease;
        }
    }
}

/// A grant is among those that the background releases, until this is dropped. A shutdown that gives up names one of them.
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
    /// Reconciles in the background, if there is something to do. Never waits.
    pub(crate) fn reconcile_later(self: &Arc<Self>, now: Moment) {
        if self.is_reconciled(now) {
            return;
        }
        self.undo.requests.fetch_add(1, Ordering::SeqCst);
        if self.undo.is_running.swap(true, Ordering::SeqCst) {
            self.undo.stir.notify_one();
            return;
        }
        let engine = &self.lock.engine;
        let (grant, progress) = (Arc::clone(self), Progress::new(self));
        if !engine.background.release(self.lock.server(), move |turn| grant.undo_job(progress, Some(turn))) {
            self.undo.is_running.store(false, Ordering::SeqCst);
            let LockId { name, key, server, .. } = self.lock.id();
            tracing::error!(
                lock = name,
                key,
                server,
                "a lock was not released, its lease has to run out: the client's runtime is gone"
            );
        }
    }

    fn undo_job(self: Arc<Self>, mut progress: Progress, mut turn: Option<Turn>) -> Job {
        async move {
            loop {
                let requests = self.undo.requests.load(Ordering::SeqCst);
                if let Err(fault) = self.reconcile_until_certain(&mut progress, turn.take()).await {
                    // The job stays the one of this grant.
                    let (ends, pause) = (progress.ends, progress.refused.pause());
                    let error = Box::new(self.lock.error(fault));
                    return Err(Refused { error, ends, pause, again: self.undo_job(progress, None) });
                }
                self.undo.is_running.store(false, Ordering::SeqCst);
                // A request before this line found the job running, and left the work to the job.
                let is_done = self.undo.requests.load(Ordering::SeqCst) == requests;
                if is_done || self.undo.is_running.swap(true, Ordering::SeqCst) {
                    return Ok(());
                }
            }
        }
        .boxed()
    }

    /// Returns a fault if the server refuses a release whose lease has not ended.
    async fn reconcile_until_certain(
        self: &Arc<Self>,
        progress: &mut Progress,
        mut turn: Option<Turn>,
    ) -> Result<(), Fault> {
        let engine = &self.lock.engine;
        let (mut retry, mut again) = (RETRY, UNDO_AGAIN);
        loop {
            let now = clock::now();
            if self.is_reconciled(now) {
                return Ok(());
            }
            progress.sees(self.undo.requests.load(Ordering::SeqCst), self.longest_lease());
            // The attempt of a future that nobody polls keeps the copies locked, so the undo of a call that was given up only repeats.
            if self.owes_release(now) && !self.desired().is_given_up {
                progress.answered = None;
            }
            let pause = match self.reconcile_in_turn(turn.take()).await {
                Ok(_) => {
                    let late = if engine.is_closing() { LATE_COPIES_AT_SHUTDOWN } else { LATE_COPIES };
                    if progress.answered.get_or_insert_with(Instant::now).elapsed() > late {
                        return Ok(());
                    }
                    again.pause()
                }
                Err(fault) if fault.is_transient() && Instant::now() < progress.ends + GIVE_UP => {
                    retry.pause()
                }
                // The caller has the error of the attempt. The server refused the attempt, and now refuses the undo too. Most
                // likely the attempt changed nothing, so there is nothing to undo.
                Err(fault) if fault.sent == Sent::Refused && self.was_only_refused() => {
                    let LockId { name, key, server, .. } = self.lock.id();
                    tracing::debug!(%fault, lock = name, key, server, "a call that failed perhaps left a lock");
                    return Ok(());
                }
                // Perhaps the user loses a right only for a moment.
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
                    return Ok(());
                }
            };
            if !self.is_reconciled(clock::now()) {
                self.rest(pause).await;
            }
        }
    }

    /// Reconciles when it is the turn of this job. The time limit of the command begins then.
    pub(crate) async fn reconcile_in_turn(
        self: &Arc<Self>,
        turn: Option<Turn>,
    ) -> Result<Option<ReleaseReply>, Fault> {
        let background = &self.lock.engine.background;
        let _turn = match turn {
            Some(turn) => turn,
            None => background.turn(&self.lock.server()).await,
        };
        let result = self.reconcile().await;
        if result.is_ok() {
            background.answered();
        }
        result
    }

    /// Pauses, until there is more to do. During a shutdown the pause is short.
    async fn rest(&self, pause: Duration) {
        let engine = &self.lock.engine;
        if !engine.is_closing() {
            tokio::select! {
                biased;
                () = sleep(pause) => return,
                () = self.undo.stir.notified() => return,
                () = engine.closing() => {}
            }
        }
        sleep(pause.min(PAUSE_AT_SHUTDOWN)).await;
    }
}
