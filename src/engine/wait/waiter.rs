//! One waiter in a wait queue.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::time::{Instant, sleep, sleep_until};

use crate::base::clock::Moment;
use crate::base::config::LockConfig;
use crate::base::fault::Fault;
use crate::base::sync::Watched;
use crate::engine::grant::offer::Offer;
use crate::engine::upkeep::background::Background;
use crate::engine::wait::line::COURTESY;
use crate::engine::wait::pass::watch;
use crate::engine::wait::queue::{QueueKey, Turn, WaitQueue, WaitQueues};
use crate::metrics::Waiting;
use crate::store::Store;

/// How long a reader waits for the answer to another reader's attempt.
const ANSWER: Duration = Duration::from_millis(20);

/// An entry in a wait queue. Dropping it leaves the queue.
pub(crate) struct Waiter<'a> {
    queues: &'a WaitQueues,
    queue: Arc<WaitQueue>,
    store: &'a Store,
    config: &'a LockConfig,
    position: Position,
    /// It has the turn, and has not attempted since it got the turn.
    is_fresh: bool,
    /// The calls to everyone that there were so far.
    calls: u64,
    /// It attempts without waiting for the turn.
    is_first_reader: bool,
    /// When it must attempt again although another has the turn: perhaps the server has granted it the lock, or will do so with a
    /// late copy of its attempt, and no other waiter finds that out.
    must_attempt_at: Option<Instant>,
    /// It was granted the lock, so it has no wake-up to pass on.
    is_granted: bool,
    /// It can take a hold of another owner.
    is_able: bool,
    waiting: Waiting<'a>,
}

enum Position {
    Behind(BoxFuture<'static, Turn>),
    Front(#[expect(dead_code, reason = "it is held, not read")] Turn),
}

impl<'a> Waiter<'a> {
    /// Joins a queue, at its end.
    pub(crate) fn join(
        queues: &'a WaitQueues,
        key: QueueKey,
        is_able: bool,
        store: &'a Store,
        config: &'a LockConfig,
        waiting: Waiting<'a>,
    ) -> Self {
        let queue = queues.enter(key, is_able);
        let position = match queue.try_turn() {
            Some(turn) => Position::Front(turn),
            None => Position::Behind(Arc::clone(&queue).turn().boxed()),
        };
        // Readers share what another reader is granted. If its answer is late, they attempt by themselves.
        let waits_for_other = queue.key.is_shared && is_able && queue.is_attempting();
        Self {
            queues,
            store,
            config,
            is_fresh: matches!(position, Position::Front(_)),
            position,
            calls: queue.everyone.as_ref().map_or(0, Watched::get),
            is_first_reader: queue.key.is_shared && !queue.is_closed() && !waits_for_other,
            must_attempt_at: waits_for_other.then(|| Instant::now() + ANSWER),
            is_granted: false,
            is_able,
            waiting,
            queue,
        }
    }

    /// Whether this channel wakes the waiter. A waiter with a place on the server has a channel of its own.
    pub(crate) fn is_woken_by(&self, channel: &str) -> bool {
        !self.queue.key.has_place || *self.queue.key.channel == *channel
    }

    /// Waits until it is time to attempt, or to take a hold that is offered. The waiter in front does not wait longer than `poll`.
    pub(crate) async fn next(&mut self, poll: Option<Duration>) {
        self.turn_comes(poll).await;
        loop {
            let left = self.queue.yields();
            if left.is_zero() || self.has_offer() {
                return;
            }
            // In steps, because the reply to the release makes it shorter.
            sleep(left.min(COURTESY)).await;
        }
    }

    /// Whether a hold is offered to the waiter in front, that is, to this one.
    pub(crate) fn has_offer(&self) -> bool {
        matches!(self.position, Position::Front(_)) && self.queue.has_offer()
    }

    /// Takes the hold that is offered to the waiter in front.
    pub(crate) fn take_offer(&mut self) -> Option<Offer> {
        let offer = self.has_offer().then(|| self.queue.take_offer()).flatten()?;
        // Otherwise it is dropped, that is, released: the waiter that it was meant for has left.
        self.is_able.then_some(offer)
    }

    /// Before a reader leaves with the lock, it keeps its hold for the readers that wait behind it: they cannot join it before they are
    /// polled, and perhaps this reader releases at once.
    pub(crate) fn keeps_for_others(&self, offer: impl FnOnce() -> Option<Offer>, background: &Background) {
        if self.is_able
            && self.queue.key.is_shared
            && self.queue.has_followers()
            && let Some(offer) = offer()
        {
            self.queue.keeps(offer);
            watch(&self.queue, background);
        }
    }

    async fn turn_comes(&mut self, poll: Option<Duration>) {
        if std::mem::take(&mut self.is_first_reader) {
            return;
        }
        if let Position::Behind(turn) = &mut self.position {
            self.waiting.begins();
            let turn = tokio::select! {
                biased;
                turn = turn => turn,
                () = self.queue.overlooked(self.config.safety_poll() * 2) => return,
                calls = called(&self.queue, self.calls) => {
                    self.calls = calls;
                    return;
                }
                () = elapsed(self.must_attempt_at) => return,
            };
            self.position = Position::Front(turn);
            self.is_fresh = true;
        }
        // The first waiter in a queue does not know whether the lock is free. The others know that it is held, and wait to be
        // woken.
        let is_first = std::mem::take(&mut self.is_fresh) && !self.queue.is_closed();
        if is_first || self.must_attempt_at.is_some() || self.queue.has_offer() {
            return;
        }
        self.waiting.begins();
        self.queues.subscribe(&self.queue, self.store);
        let pause = self.queue.pause(self.config);
        tokio::select! {
            biased;
            () = self.queue.wake.notified() => {}
            () = sleep(poll.map_or(pause, |poll| poll.min(pause))) => {}
        }
    }

    /// It attempts now.
    pub(crate) fn attempts(&mut self) {
        self.is_fresh = false;
        self.queue.attempts();
    }

    /// Whether another waiter should have attempted by now.
    pub(crate) fn is_overdue(&self) -> bool {
        self.queue.is_overdue(self.config.command_timeout() * 2)
    }

    /// Whether a waiter in this queue knows that the lock is held.
    pub(crate) fn is_answered(&self) -> bool {
        self.queue.is_answered()
    }

    /// Returns a value that tells the same while the waiter is borrowed.
    pub(crate) fn answers(&self) -> Answers {
        Answers(Arc::clone(&self.queue))
    }

    /// The fault that prevents an answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queue.fault()
    }

    /// Another owner holds the lock. The holder's lease lasts at most for the time `left`, if that is known. `may_run_late`: a
    /// copy of an earlier attempt can still run.
    pub(crate) fn refused(&mut self, left: Option<Duration>, may_run_late: bool) {
        self.attempts_again(may_run_late, self.config.safety_poll());
        self.queue.refused(left);
    }

    /// The server granted it the lock.
    pub(crate) fn granted_anew(&self, at: Moment) {
        self.queue.granted_anew(at);
    }

    /// It was granted the lock, with this lease. Leaves the queue.
    pub(crate) fn granted(mut self, lease: Duration) {
        self.is_granted = true;
        self.queue.granted(lease);
    }

    /// Its attempt failed, and is retried after a pause. Returns for how long attempts have been failing. `may_run_late`: this or
    /// an earlier attempt possibly ran, or a copy of it can still run.
    pub(crate) fn failed(&mut self, fault: &Fault, pause: Duration, may_run_late: bool) -> Duration {
        self.attempts_again(may_run_late, pause);
        self.queue.failed(fault, pause)
    }

    /// The waiter in front attempts again anyway.
    fn attempts_again(&mut self, may_run_late: bool, pause: Duration) {
        let must_attempt = may_run_late && matches!(self.position, Position::Behind(_));
        self.must_attempt_at = must_attempt.then(|| Instant::now() + pause);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // A waiter that leaves the front without the lock has perhaps taken a wake-up that the next waiter needs.
        if !self.is_granted && matches!(self.position, Position::Front(_)) {
            self.queue.wake.notify_one();
        }
        self.queues.leave(&self.queue, self.is_able, self.store);
    }
}

/// Tells whether a waiter in a queue knows that the lock is held.
pub(crate) struct Answers(Arc<WaitQueue>);

impl Answers {
    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_answered()
    }
}

/// Waits for another call to everyone, and returns their number. Never ends where only one owner can hold the lock.
async fn called(queue: &WaitQueue, so_far: u64) -> u64 {
    match &queue.everyone {
        Some(everyone) => {
            everyone.until(|calls| *calls != so_far).await;
            everyone.get()
        }
        None => pending().await,
    }
}

/// Waits until this time. Never ends without a time.
pub(crate) async fn elapsed(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
