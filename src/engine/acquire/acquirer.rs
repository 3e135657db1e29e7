//! The task of a line. It sends the attempts of all calls that stand in the line.

use std::panic::{AssertUnwindSafe, Location};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::attempts::Attempts;
use super::call::Outcome;
use super::wait::Wait;
use crate::base::clock;
use crate::base::jitter;
use crate::base::timer::{sleep, timeout};
use crate::engine::grant::Grant;
use crate::engine::grant::sharing::Offer;
use crate::engine::line::lines::{Line, Place};
use crate::engine::line::state::{Step, Terms};
use crate::engine::lock_ref::LockRef;
use crate::engine::retry::Pauses;

/// The shortest sleep. A timer can fire before the clock says that the time has come.
const TICK: Duration = Duration::from_millis(1);

/// The pause after a panic.
const PAUSE: Duration = Duration::from_millis(10);

/// Longer than any wait.
const LONG: Duration = Duration::from_secs(3_600);

/// Stands at the end of a line. `terms`: also for how long attempts may fail before the call gives up. `attempted`: what the call attempted
/// before, and how that ended. The line goes on with it.
pub(super) fn stand(
    wait: &Arc<Wait>,
    terms: (Terms, Option<Duration>),
    attempted: Option<(Attempts, Outcome)>,
) -> Place<Offer> {
    let target = &wait.lock;
    let channel = match &attempted {
        Some((attempts, _)) => attempts.pending.grant.wake_channel(),
        None => Arc::clone(&target.keys.channel),
    };
    let place = target.engine.lines.stand(&target.line(), channel, terms, Arc::clone(wait));
    let attempts = attempted.map(|(mut attempts, outcome)| {
        match outcome {
            Outcome::Failed(fault) => {
                let pause = Pauses::START.clone().after(&fault);
                let error = target.error(fault);
                place.line.change(|state, now| state.failed(&error, pause, now));
            }
            Outcome::Refused(left) => {
                place.line.with(|state| state.is_held(left, clock::now(), jitter::up_to));
            }
            Outcome::Granted => unreachable!("BUG: a call that was granted the lock waits for it"),
        }
        attempts.owner = None;
        attempts
    });
    place.line.start(|line| run(line, Arc::clone(target), attempts));
    place
}

/// Runs the task of a line, which ends with the last call.
fn run(
    line: Arc<Line<Offer>>,
    lock: Arc<LockRef>,
    attempts: Option<Attempts>,
) -> impl Future<Output = ()> + Send + 'static {
    // Made here: if the client's runtime has ended, the future is dropped before its first poll, and the drop of the task ends the line.
    let mut task = Task { line, lock, attempts, pauses: Pauses::START, has_ended: false };
    async move {
        // Code of the user can panic, such as a `tracing` layer. What an attempt acquired meanwhile is released, and perhaps no message
        // says so.
        while AssertUnwindSafe(task.run()).catch_unwind().await.is_err() {
            sleep(PAUSE).await;
            task.line.change(|state, now| state.hears(now));
        }
    }
}

struct Task {
    line: Arc<Line<Offer>>,
    lock: Arc<LockRef>,
    /// What the last attempt left: its id can be used again.
    attempts: Option<Attempts>,
    pauses: Pauses,
    has_ended: bool,
}

impl Task {
    async fn run(&mut self) {
        let (line, engine) = (Arc::clone(&self.line), Arc::clone(&self.lock.engine));
        while !engine.is_closing() {
            let by = self.attempts.as_ref().and_then(|attempts| attempts.acts_at());
            match line.event(|state, now| state.step(by, now)) {
                Step::End => {
                    // The place of the calls in a queue, or the intent of a writer. It is under way until the background has it.
                    if let Some(mut attempts) = self.attempts.take() {
                        attempts.pending.give_up(clock::now());
                        self.is_released(&attempts.pending.grant).await;
                    }
                    if line.ends_task(false) {
                        self.has_ended = true;
                        return;
                    }
                }
                Step::Wait { until, subscribes } => {
                    if subscribes {
                        engine.lines.subscribe(&line);
                    }
                    let left = until.since(clock::now()).clamp(TICK, LONG);
                    tokio::select! {
                        biased;
                        () = line.woken() => {}
                        () = engine.closing() => {}
                        () = sleep(left) => {}
                    }
                }
                // The next attempt would be refused by what nobody took.
                Step::Release(offer) => self.release(offer).await,
                Step::Attempt(terms) => self.attempt(terms).await,
            }
        }
    }

    async fn release(&self, offer: Offer) {
        let grant = Arc::clone(&offer.0);
        drop(offer);
        self.is_released(&grant).await;
    }

    /// Waits until what the background releases is released.
    async fn is_released(&self, grant: &Grant) {
        let _ = timeout(self.lock.engine.config.command_timeout(), grant.until_released()).await;
    }

    /// Attempts once, for the first call.
    async fn attempt(&mut self, terms: Terms) {
        let Self { line, lock, .. } = self;
        let before = self.attempts.take().filter(|attempts| attempts.serve(terms));
        let mut attempts = before.unwrap_or_else(|| Attempts::of_line(lock, terms, Location::caller()));
        // A shutdown first closes, and then waits for the acquires under way, of which this is one by now.
        if lock.engine.is_closing() {
            return;
        }
        lock.engine.lines.moves(line, &attempts.pending.grant.wake_channel());
        let error = match attempts.attempt(false).await {
            Ok(Outcome::Granted) => {
                self.pauses = Pauses::START;
                return self.grants(attempts, terms).await;
            }
            Ok(Outcome::Refused(left)) => {
                self.pauses = Pauses::START;
                line.with(|state| state.is_held(left, clock::now(), jitter::up_to));
                self.attempts = Some(attempts);
                return;
            }
            Ok(Outcome::Failed(fault)) if fault.is_transient() => {
                let pause = self.pauses.after(&fault);
                let error = lock.error(fault);
                line.change(|state, now| state.failed(&error, pause, now));
                self.attempts = Some(attempts);
                return;
            }
            Ok(Outcome::Failed(fault)) => lock.error(fault),
            Err(error) => error,
        };
        line.change(|state, _| state.fails_front(terms, error));
    }

    /// Opens what the server granted to the line.
    async fn grants(&self, mut attempts: Attempts, terms: Terms) {
        let (line, leaves_permits) = (&self.line, attempts.leaves_permits);
        attempts.end_earlier();
        line.with(|state| state.granted(terms.lease, leaves_permits, attempts.at));
        let Some(offer) = attempts.offer() else { return };
        // While a writer of this client waits, no reader joins, and each needs a hold of its own.
        if self.lock.protocol.is_shared()
            && terms.is_usual
            && offer.open_to_readers(terms.linger, clock::now())
        {
            line.change(|state, now| state.opens(Some(offer), terms, now));
        } else if let Some(left) = line.event(|state, now| state.offers(offer, terms, now)) {
            self.release(left).await;
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.has_ended {
            // The client is shut down, or its runtime has ended. The calls find that out by themselves.
            self.attempts = None;
            self.line.ends_task(true);
        }
    }
}
