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

/// The shortest sleep. A timer can fire before the clock says that the time has come; then the waiter sleeps this long.
const TICK: Duration = Duration::from_millis(1);

/// Longer than any wait.
const LONG: Duration = Duration::from_secs(3_600);

/// An entry in a wait queue. Dropping it leaves the queue.
pub(crate) struct Waiter<'a, O: Send + 'static> {
    wake_ups: WakeUps<'a, O>,
    queue: Arc<WaitQueue<O>>,
    ticket: Ticket,
    config: &'a LockConfig,
    /// Set if the waiter leaves with the lock: its lease, and whether permits of the semaphore are left.
    granted: Option<(Duration, bool)>,
    /// The waiter can take a hold that another owner offers.
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

    /// Waits until it is time to attempt, or to take an offered hold. The waiter in front waits no longer than `most`.
    pub(crate) async fn next(&mut self, most: Option<Duration>) {
        let by = most.map(|most| clock::now().plus(most));
        let (queue, wake_ups) = (&self.queue, self.wake_ups);
        let poll = |context: &Context<'_>| queue.poll(self.ticket, by, context.waker(), wake_ups);
        // Poll once without a timer: most calls can attempt at once.
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

    /// Takes the hold that is offered to this waiter.
    pub(crate) fn take_offer(&self) -> Option<O> {
        self.queue.take_offer(self.ticket)
    }

    /// Keeps the hold of a reader for the readers that wait behind it. Call this before the reader leaves the queue
    /// with the lock.
    pub(crate) fn keeps_for_others(&self, offer: impl FnOnce() -> Option<O>) {
        let can_keep = self.can_take_handoff && self.queue.key.discipline == Discipline::Readers;
        if can_keep && self.queue.with(|machine| machine.has_followers()) {
            self.queue.keep_for_readers(offer);
        }
    }

    /// Records that the waiter begins an attempt.
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

    /// Returns a value that tells what the queue knows, also while the waiter is borrowed.
    pub(crate) fn answers(&self) -> Answers<'a, O> {
        Answers { queue: Arc::clone(&self.queue), ticket: self.ticket, config: self.config }
    }

    /// The fault that prevents an answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.queue.with(|machine| machine.fault())
    }

    /// Records that the attempt was refused: another owner holds the lock. The lease of that owner lasts at most for
    /// `left`, if the time is known.
    pub(crate) fn refused(&self, left: Option<Duration>) {
        self.queue.with(|machine| machine.refused(self.ticket, left, clock::now()));
    }

    /// Records that the server granted this waiter the lock. Returns whether a message came during the attempt.
    pub(crate) fn granted_anew(&self, at: Moment) -> bool {
        self.queue.with(|machine| machine.granted_anew(Some(self.ticket), at))
    }

    /// Leaves the queue with the lock, which the waiter has with this lease. `leaves_permits`: the next waiter can
    /// acquire permits, too.
    pub(crate) fn granted(mut self, lease: Duration, leaves_permits: bool) {
        self.granted = Some((lease, leaves_permits));
    }

    /// Records that the attempt failed. The next attempt comes after `pause`.
    pub(crate) fn failed(&self, fault: &Fault, pause: Duration) {
        self.queue.with(|machine| machine.failed(self.ticket, fault.clone(), pause, clock::now()));
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
