//! What is left to do on the server when nobody awaits it any more: releases of guards that were dropped, and undos
//! of attempts that were given up.
//!
//! A `drop` hands a grant over and goes on. One task per client settles all of them, side by side, and goes on with
//! each until it is certain.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::Engine;
use super::grant::Grant;
use super::kind::Settled;
use crate::jitter::Backoff;
use crate::store::Fault;

/// Pauses while the server gives no answer.
const RETRY: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// Pauses between undos that were answered, while a copy of the attempt may still be under way.
const UNDO_AGAIN: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// How long after the first answer a copy of an attempt may still come. What the server had received it runs at
/// once when it goes on; what the client's host had still to deliver, it gives up before this.
const LATE_COPIES: Duration = Duration::from_secs(25);

/// The same when the client is being shut down: only what the server had received.
const LATE_COPIES_AT_SHUTDOWN: Duration = Duration::from_secs(1);

const PAUSE_AT_SHUTDOWN: Duration = Duration::from_millis(100);

/// A server that was silent for this long after the lease ended is not waited for any more.
const GIVE_UP: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(crate) struct Background(UnboundedSender<Job>);

#[derive(Debug)]
enum Job {
    /// Answer when nothing is left to do, with what could not be done.
    Drain(oneshot::Sender<Result<(), Fault>>),
    Settle(Arc<Grant>),
}

impl Background {
    pub(crate) fn start() -> Self {
        let (sender, jobs) = unbounded_channel();
        tokio::spawn(run(jobs));
        Self(sender)
    }

    /// Brings the server down to the grant's books. Never waits, with or without a runtime.
    pub(crate) fn settle(&self, grant: Arc<Grant>) {
        if self.0.send(Job::Settle(grant)).is_err() {
            tracing::error!(
                "a lock was not released, its lease has to run out: the client's runtime is gone"
            );
        }
    }

    /// Its task is gone, and with it the runtime on which the client was made.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until all that was handed over is done. The fault is of a release that failed, if its lease still runs.
    pub(crate) async fn drain(&self) -> Result<(), Fault> {
        let (done, drained) = oneshot::channel();
        if self.0.send(Job::Drain(done)).is_err() {
            return Ok(());
        }
        drained.await.unwrap_or(Ok(()))
    }
}

async fn run(mut jobs: UnboundedReceiver<Job>) {
    let mut running = FuturesUnordered::new();
    let mut draining: Vec<oneshot::Sender<Result<(), Fault>>> = Vec::new();
    // The release that failed, of those the one whose lease ends last, and when that is.
    let mut failed: Option<(Fault, Instant)> = None;
    let mut open = true;
    while open || !running.is_empty() {
        tokio::select! {
            // Orders first, so that what was handed over before a `Drain` is running when it comes.
            biased;
            job = jobs.recv(), if open => match job {
                Some(Job::Settle(grant)) => running.push(settle(grant)),
                Some(Job::Drain(done)) => draining.push(done),
                None => open = false,
            },
            Some(result) = running.next() => {
                failed = failed.into_iter().chain(result.err()).max_by_key(|(_, ends)| *ends);
            }
        }
        if running.is_empty() {
            failed = failed.filter(|(_, ends)| Instant::now() < *ends);
            let result = failed.as_ref().map_or(Ok(()), |(fault, _)| Err(fault.clone()));
            draining.drain(..).for_each(|done| _ = done.send(result.clone()));
        }
    }
}

/// Fails with the fault, and the time at which the lease has ended.
async fn settle(grant: Arc<Grant>) -> Result<(), (Fault, Instant)> {
    let ends = Instant::now() + grant.longest_lease();
    let give_up = ends + GIVE_UP;
    let mut answered: Option<Instant> = None;
    let (mut retry, mut again) = (RETRY, UNDO_AGAIN);
    while !grant.is_settled() {
        let pause = match grant.settle().await {
            Ok(settled) => {
                if settled == Some(Settled::Gone) && grant.is_gone() {
                    tracing::warn!(name = %grant.name(), "released a lock that was not held any more");
                }
                let late =
                    if grant.target.engine.is_closing() { LATE_COPIES_AT_SHUTDOWN } else { LATE_COPIES };
                if answered.get_or_insert_with(Instant::now).elapsed() > late {
                    return Ok(());
                }
                again.pause()
            }
            Err(fault) if fault.is_transient() && Instant::now() < give_up => retry.pause(),
            Err(fault) => {
                tracing::warn!(name = %grant.name(), %fault, "a lock was not released, its lease has to run out");
                return Err((fault, ends));
            }
        };
        if !grant.is_settled() {
            rest(&grant.target.engine, pause).await;
        }
    }
    Ok(())
}

/// Pauses; not for long once the client is being shut down.
async fn rest(engine: &Engine, pause: Duration) {
    if !engine.is_closing() {
        tokio::select! {
            () = sleep(pause) => return,
            () = engine.closing() => {}
        }
    }
    sleep(pause.min(PAUSE_AT_SHUTDOWN)).await;
}
