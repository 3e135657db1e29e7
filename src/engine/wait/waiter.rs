//! One waiter in a wait queue.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::machine::{Discipline, Ticket};
use super::queue::{QueueKey, WaitQueue, WakeUps};
use crate::base::clock::{self, Moment};
use crate::base::config::LockConfig;
use crate::base::fault::Fault;
use crate::base::timer::{Instant, sleep};
use crate::telemetry::Waiting;

/// A timer can fire early by the clock of the deadlines. Then the waiter waits for this long.
const TICK: Duration = Duration::from_millis(1);

/// Longer than any wait.
const LONG: Duration = Duration::from_secs(3_600);

/// An entry in a wait queue. Dropping it leaves the queue.
pub(crate) struct Waiter<'a, O: Send + 'static> {
    wake_ups: WakeUps<'a, O>,
    queue: Arc<WaitQueue<O>>,
    ticket: Ticket,
    config: &'a LockConfig,
    /// The lease with which it leaves with the lock, and whether permits of the semaphore are left.
    granted: Option<(Duration, bool)>,
    /// It can take a hold of another owner.
    can_take_handoff: bool,
    waiting: Waiting<'a>,
}

impl<'a, O: Send + 'static> Waiter<'a, O> {
    /// Joins a queue: at its end, or in front if its call began when nobody waited.
    pub(crate) fn join(
        wake_ups: WakeUps<'a, O>,
        key: QueueKey,
        (can_take_handoff, comes_first): (bool, bool),
        config: &'a LockConfig,
        waiting: Waiting<'a>,
    ) -> Self {
        let (queue, ticket) = wake_ups.queues.enter(key, config, can_take_handoff, comes_first);
        Self { wake_ups, queue, ticket, config, granted: None, can_take_handoff, waiting }
    }

    /// Whether this channel wakes the waiter. A waiter with a place on the server has a channel of its own.
    pub(crate) fn is_woken_by(&self, channel: &str) -> bool {
        self.queue.key.discipline != Discipline::Places || *self.queue.key.channel == *channel
    }

    /// Waits until it is time to attempt, or to take a hold that is offered. In front, it does not wait longer than `most`.
    pub(crate) async fn next(&mut self, most: Option<Duration>) {
        let by = most.map(|most| clock::now().plus(most));
        let (queue, wake_ups) = (&self.queue, self.wake_ups);
        let poll = |context: &Context<'_>| queue.poll(self.ticket, by, context.waker(), wake_ups);
        // Most calls do not wait, and need no timer.
        if poll_fn(|context| Poll::Ready(poll(context))).await.is_none() {
            return;
        }
        self.waiting.begins();
        let mut timer = pin!(sleep(Duration::ZERO));
        let mut set_to = None;
        poll_fn(|context| {
            loop {
                let Some(until) = poll(context) else { return Poll::Ready(()) };
                if set_to.replace(until) != Some(until) {
                    let left = until.since(clock::now()).clamp(TICK, LONG);
                    timer.as_mut().reset(Instant::now() + left);
                }
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                set_to = None;
            }
        })
        .await;
    }

    /// Whether a hold is offered to the waiter in front, that is, to this one.
    pub(crate) fn has_offer(&self) -> bool {
        self.queue.with(|machine| machine.front() == Some(self.ticket) && machine.has_offer())
    }

    /// Takes the hold that is offered to it.
    pub(crate) fn take_offer(&self) -> Option<O> {
        self.queue.take_offer(self.ticket)
    }

    /// Before a reader leaves with the lock, it keeps its hold for the readers that wait behind it.
    pub(crate) fn keeps_for_others(&self, offer: impl FnOnce() -> Option<O>) {
        let can_keep = self.can_take_handoff && self.queue.key.discipline == Discipline::Readers;
        if can_keep && self.queue.with(|machine| machine.has_followers()) {
            self.queue.keep_for_readers(offer);
        }
    }

    /// It attempts now.
    pub(crate) fn attempts(&self) {
        self.queue.change(|machine, now| machine.attempts(self.ticket, now));
    }

    /// Whether another waiter should have attempted by now.
    pub(crate) fn is_overdue(&self) -> bool {
        let patience = self.config.command_timeout() * 2;
        self.queue.with(|machine| machine.is_overdue(patience, clock::now()))
    }

    /// Whether a waiter in this queue knows that the lock is held.
    pub(crate) fn is_answered(&self) -> bool {
        self.queue.with(|machine| machine.is_answered())
    }

    /// Returns a value that tells the same while the waiter is borrowed.
    pub(crate) fn answers(&self) -> Answers<'a, O> {
        Answers { queue: Arc::clone(&self.queue), ticket: self.ticket, config: self.config }
    }

    /// The fault that prevents an answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queue.with(|machine| machine.fault())
    }

    /// Another owner holds the lock. The holder's lease lasts at most for the time `left`, if that is known. `may_run_late`: a
    /// copy of an earlier attempt can still run.
    pub(crate) fn refused(&self, left: Option<Duration>, may_run_late: bool) {
        self.queue.with(|machine| machine.refused(self.ticket, left, may_run_late, clock::now()));
    }

    /// The server granted it the lock. Returns whether a message came during the attempt.
    pub(crate) fn granted_anew(&self, at: Moment) -> bool {
        self.queue.with(|machine| machine.granted_anew(Some(self.ticket), at))
    }

    /// It was granted the lock, with this lease. Leaves the queue. `leaves_permits`: the next waiter can be granted permits, too.
    pub(crate) fn granted(mut self, lease: Duration, leaves_permits: bool) {
        self.granted = Some((lease, leaves_permits));
    }

    /// Its attempt failed, and is retried after a pause. `may_run_late`: this or an earlier attempt possibly ran, or a copy of it can
    /// still run.
    pub(crate) fn failed(&self, fault: &Fault, pause: Duration, may_run_late: bool) {
        let now = clock::now();
        self.queue.with(|machine| machine.failed(self.ticket, fault.clone(), pause, may_run_late, now));
    }
}

impl<O: Send + 'static> Drop for Waiter<'_, O> {
    fn drop(&mut self) {
        let (ticket, granted) = (self.ticket, self.granted);
        self.wake_ups.queues.leave(&self.queue, ticket, self.wake_ups.messages, |machine| match granted {
            Some((lease, leaves_permits)) => {
                machine.leaves_with_lock(ticket, lease, leaves_permits, clock::now())
            }
            None => machine.leaves(ticket),
        });
    }
}

/// Tells what a waiter's queue knows.
pub(crate) struct Answers<'a, O> {
    queue: Arc<WaitQueue<O>>,
    ticket: Ticket,
    config: &'a LockConfig,
}

impl<O: Send + 'static> Answers<'_, O> {
    /// Whether a waiter knows that the lock is held.
    pub(crate) fn is_answered(&self) -> bool {
        self.queue.with(|machine| machine.is_answered())
    }

    /// For how long attempts have been failing since the waiter came. Zero: they do not fail.
    pub(crate) fn failing(&self) -> Duration {
        self.queue.with(|machine| machine.failing(self.ticket, clock::now()))
    }

    /// The fault, if attempts have been failing for so long that a waiter behind others gives up.
    pub(crate) fn hopeless(&self) -> Option<Fault> {
        let (most, patience) = (self.config.retry_timeout(), self.config.command_timeout() * 2);
        self.queue.with(|machine| {
            let is_hopeless = machine.is_hopeless(self.ticket, most, patience, clock::now());
            if is_hopeless { machine.fault() } else { None }
        })
    }
}
