//! Reconciling a grant in the background, until nothing can come any more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::Grant;
use crate::engine::background::Failure;
use crate::engine::shared::Engine;
use crate::error::LockId;
use crate::fault::Sent;
use crate::jitter::Backoff;

/// The pauses while the server gives no answer.
const RETRY: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The pauses between undos that were answered, while a copy of the attempt may still be under way.
const UNDO_AGAIN: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// How long after the first answer a copy of an attempt may still arrive. The server runs what it had received as soon as it
/// continues. What the client's host had still to deliver, it gives up earlier than this.
const LATE_COPIES: Duration = Duration::from_secs(25);

/// The same during a shutdown: only what the server had received.
const LATE_COPIES_AT_SHUTDOWN: Duration = Duration::from_secs(1);

const PAUSE_AT_SHUTDOWN: Duration = Duration::from_millis(100);

/// A server that is silent for this long after the lease ended is given up.
const GIVE_UP: Duration = Duration::from_secs(600);

impl Grant {
    /// Reconciles in the background, if there is something to do. Never waits.
    pub(crate) fn reconcile_later(self: &Arc<Self>) {
        if self.is_reconciled() {
            return;
        }
        let job = Arc::clone(self).reconcile_until_certain();
        if !self.lock.engine.background.run(job.boxed()) {
            let LockId { name, key, server, .. } = self.lock.id();
            tracing::error!(
                lock = name,
                key,
                server,
                "a lock was not released, its lease has to run out: the client's runtime is gone"
            );
        }
    }

    async fn reconcile_until_certain(self: Arc<Self>) -> Result<(), Failure> {
        let engine = &self.lock.engine;
        let ends = Instant::now() + self.longest_lease();
        let mut answered: Option<Instant> = None;
        let (mut retry, mut again) = (RETRY, UNDO_AGAIN);
        while !self.is_reconciled() {
            let pause = match self.reconcile().await {
                Ok(_) => {
                    let late = if engine.is_closing() { LATE_COPIES_AT_SHUTDOWN } else { LATE_COPIES };
                    if answered.get_or_insert_with(Instant::now).elapsed() > late {
                        return Ok(());
                    }
                    again.pause()
                }
                Err(fault) if fault.is_transient() && Instant::now() < ends + GIVE_UP => retry.pause(),
                // The caller was told about the attempt. The server refuses the undo as it refused the attempt, so there is
                // most likely nothing to undo.
                Err(fault) if fault.sent == Sent::Refused && !self.was_held() => {
                    let LockId { name, key, server, .. } = self.lock.id();
                    tracing::debug!(%fault, lock = name, key, server, "a failed attempt could not be undone");
                    return Ok(());
                }
                Err(fault) => {
                    if let Some(unreported) = engine.failed_releases.ask() {
                        let LockId { name, key, server, .. } = self.lock.id();
                        tracing::warn!(
                            %fault, lock = name, key, server, unreported,
                            "a lock was not released, its lease has to run out"
                        );
                    }
                    return Err(Failure { fault, ends });
                }
            };
            if !self.is_reconciled() {
                rest(engine, pause).await;
            }
        }
        Ok(())
    }
}

/// Pauses. During a shutdown the pause is short.
async fn rest(engine: &Engine, pause: Duration) {
    if !engine.is_closing() {
        tokio::select! {
            () = sleep(pause) => return,
            () = engine.closing() => {}
        }
    }
    sleep(pause.min(PAUSE_AT_SHUTDOWN)).await;
}
