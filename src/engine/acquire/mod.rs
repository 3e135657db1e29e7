//! Acquiring: attempt, and if another owner holds the lock, wait and attempt again.
//!
//! This module undoes nothing: whoever drops a pending hold, the background undoes it. So a call that reaches its time
//! limit, or is cancelled, only drops a future.

mod attempts;
mod call;
mod claim;
mod listed;
mod others;

use std::mem::take;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::task::consume_budget;

use attempts::{Attempts, Before};
use call::Outcome as Attempted;
pub(crate) use claim::claim;
use listed::Listed;

use super::grant::sharing::Offer;
use super::handle::Handle;
use super::retry::{Pauses, Tries};
use crate::base::config::LockConfig;
use crate::base::error::{Error, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::{Instant, elapsed, timeout, timeout_at};
use crate::base::{Caller, clock};
use crate::engine::held::HeldLock;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::queue::{Arrival, WakeUps};
use crate::engine::wait::waiter::Waiter;
use crate::engine::waits::WaitOutcome;

/// How long a call waits for a lock that another owner holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    /// The call does not wait.
    None,
    /// The call does not wait, and attempts only once.
    Once,
    For(Duration),
    Forever,
    /// Forever, for a candidate of an election: its work is to wait, so a long wait is not reported.
    StandBy,
}

/// Returns when a call with this limit has to end, if an answer has said that another owner holds the lock.
pub(crate) fn end_of(limit: WaitLimit) -> Result<Option<Instant>> {
    let WaitLimit::For(wait) = limit else { return Ok(None) };
    let too_long = || Error::InvalidDuration {
        argument: "wait",
        problem: "is longer than the clock can count".to_owned(),
    };
    Instant::now().checked_add(wait).map(Some).ok_or_else(too_long)
}

/// How long an attempt may last until its server answers.
pub(crate) fn answers_in(config: &LockConfig) -> Duration {
    config.command_timeout() + config.sync().map_or(Duration::ZERO, |sync| sync.timeout)
}

/// Returns what wakes the waiters for a lock.
pub(crate) type WakeUpsOf = fn(&LockRef) -> WakeUps<'_, Offer>;

/// Acquires the lock. `None`: another owner holds it.
pub(crate) async fn acquire(
    handle: &mut Handle,
    limit: WaitLimit,
    caller: Caller,
    wake_ups: WakeUpsOf,
) -> Result<Option<HeldLock>> {
    let handle = &*handle;
    handle.check_lock()?;
    let limits = Deadlines::new(limit, handle.config())?;
    if handle.can_share() {
        // Yield before joining: a join never suspends, so a loop of joins would starve the other tasks of this thread.
        // Do not yield after the join: an unpolled future would keep the hold that it joined, and no reader could be
        // the last to leave.
        consume_budget().await;
        if let Some(mut attempts) = Attempts::joined(handle, caller) {
            return attempts.take().map(Some);
        }
    }
    let is_try = matches!(limit, WaitLimit::None | WaitLimit::Once);
    let (attempts, before) = Attempts::start(handle, caller, is_try)?;
    // Check after `start`, which adds the acquire to `under_way`. A shutdown first closes, and then waits for that
    // list. With the check before, an acquire could begin for which the shutdown does not wait.
    handle.check_open()?;
    if !before.is_empty() {
        end(before, handle, limits).await;
    }
    let listed = Listed::new(matches!(limit, WaitLimit::StandBy));
    let arrival = handle.lock.engine.wait_queues.arrive(handle.lock.row);
    let mut call = AcquireCall { handle, attempts, limits, arrival, listed, wake_ups };
    let retry_timeout = handle.config().retry_timeout();
    let mut tries = Tries::new(if matches!(limit, WaitLimit::Once) { Duration::ZERO } else { retry_timeout });
    let mut pauses = Pauses::START;
    // A reader joins the queue even if nobody waits: readers that come during its attempt wait there, and share its
    // hold.
    let waits = !is_try && !call.attempts.is_reentry();
    let mut comes_first = waits && call.arrival.is_alone && !handle.is_shared();
    let mut waiting = (waits && !comes_first).then(|| call.join(false));
    loop {
        if let Some(waiter) = &mut waiting {
            match call.turn(waiter).await? {
                Turn::Attempt => waiter.attempts(),
                Turn::HasLock => return call.has_lock(waiting).map(Some),
                Turn::TimeIsUp => return call.end_of_time(waiting).await,
            }
        }
        let Some(outcome) = call.attempt(waiting.as_ref()).await? else {
            return call.end_of_time(waiting).await;
        };
        let stays = match &outcome {
            Attempted::Granted => return call.granted(waiting).map(Some),
            Attempted::Refused(_) if is_try => return Ok(None),
            // A call whose place in a server queue has moved to another channel is woken in another queue.
            Attempted::Refused(_) => waiting
                .as_ref()
                .is_some_and(|waiter| waiter.is_woken_by(&call.attempts.pending.grant.wake_channel())),
            Attempted::Failed(_) => waiting.is_some(),
        };
        match outcome {
            // The call stands in no queue, because it waits for no other owner.
            Attempted::Failed(_) if !stays && !waits && handle.is_closing() => return Err(Error::Closed),
            Attempted::Failed(fault) if !stays && !waits => {
                tries.again(fault).await.map_err(|fault| call.error(fault))?;
                continue;
            }
            Attempted::Failed(fault) if !fault.is_transient() => return Err(call.error(fault)),
            _ => {}
        }
        if !stays {
            waiting = Some(call.join(take(&mut comes_first)));
        }
        // Tell a new queue, too, how the attempt ended: its waiter has just attempted, so it waits until it is woken.
        let Some(waiter) = &waiting else { continue };
        call.tell(waiter, &outcome, &mut pauses);
        if let Attempted::Failed(fault) = outcome
            && call.limits.is_none()
            && waiter.answers().failing() > retry_timeout
        {
            return Err(call.error(fault));
        }
    }
}

/// The shortest time between two checks whether a call gives up.
const LOOK: Duration = Duration::from_millis(100);

/// When a call has to end.
#[derive(Clone, Copy)]
struct Deadlines {
    /// The end of the call if an answer has said that another owner holds the lock.
    contended: Instant,
    /// The end of the call if no server has answered yet. Without an answer, the call cannot say whether the lock is
    /// held, so it lasts at least for the time limit of one command.
    unanswered: Instant,
}

/// What a call does when its wait has ended.
enum Turn {
    Attempt,
    /// The call holds the lock: another owner of this client handed it over, or the call joined a reader.
    HasLock,
    /// The time limit of the call has passed.
    TimeIsUp,
}

/// An acquire of one handle.
struct AcquireCall<'a> {
    handle: &'a Handle,
    attempts: Attempts<'a>,
    limits: Option<Deadlines>,
    /// Counts the call among those that acquire the lock.
    arrival: Arrival<'a>,
    listed: Listed,
    wake_ups: WakeUpsOf,
}

impl<'a> AcquireCall<'a> {
    /// Tells the queue how an attempt ended.
    fn tell(&mut self, waiter: &Waiter<'_, Offer>, outcome: &Attempted, pauses: &mut Pauses) {
        match outcome {
            Attempted::Granted => {}
            Attempted::Refused(left) => {
                self.listed.refused(&self.attempts);
                waiter.refused(*left);
                *pauses = Pauses::START;
            }
            Attempted::Failed(fault) => waiter.failed(fault, pauses.after(fault)),
        }
    }

    /// Waits until it is time to attempt, unless another owner of this client gives the lock.
    async fn turn(&mut self, waiter: &mut Waiter<'_, Offer>) -> Result<Turn> {
        if !self.wait(waiter).await? {
            return Ok(Turn::TimeIsUp);
        }
        if waiter.has_offer() {
            // The hold was offered, and the time limit has passed, too. Then the call times out, and the next waiter
            // gets the hold.
            let is_late = self.limits.is_some_and(|limits| limits.contended <= Instant::now());
            if is_late && waiter.is_answered() {
                return Ok(Turn::TimeIsUp);
            }
        }
        let is_given = waiter.take_offer().is_some_and(|offer| self.attempts.accept(offer));
        Ok(if is_given || self.attempts.join_readers() { Turn::HasLock } else { Turn::Attempt })
    }

    /// Ends a call to which the server granted the lock.
    fn granted(&mut self, waiting: Option<Waiter<'_, Offer>>) -> Result<HeldLock> {
        self.attempts.end_earlier(waiting.as_ref(), self.arrival.has_followers());
        self.has_lock(waiting)
    }

    /// Ends a call that has the lock: takes the hold, and leaves the queue.
    fn has_lock(&mut self, waiting: Option<Waiter<'_, Offer>>) -> Result<HeldLock> {
        self.listed.ends(WaitOutcome::Granted);
        // Take the hold before the waiter leaves the queue: the leaving reader wakes the others, and they must find a
        // hold to join.
        let held = self.attempts.take();
        if let Some(waiter) = waiting {
            waiter.keeps_for_others(|| self.attempts.keep_for_readers());
            waiter.granted(self.handle.lease(), self.attempts.leaves_permits);
        }
        held
    }

    /// Joins the queue. `comes_first`: the call began when nobody waited.
    fn join(&self, comes_first: bool) -> Waiter<'a, Offer> {
        let lock = &*self.handle.lock;
        let key = self.attempts.queue_key();
        let can_take_handoff = self.handle.can_take_over() || self.handle.can_share();
        let waiting = self.handle.metrics.waiting();
        let manner = (can_take_handoff, comes_first);
        let waiter = Waiter::join((self.wake_ups)(lock), key, manner, &lock.engine.config, waiting);
        if lock.protocol.stops_readers() {
            // A writer of this client waits from here on, so no reader of the client joins a lingering hold any more.
            // End the lingering now. Otherwise the writer would wait until it is over.
            lock.engine.read_grants.end_lingering(&lock.keys.lock, clock::now());
        }
        waiter
    }

    /// Waits until it is time to attempt. False: the time limit of the call has passed. Fails if the attempts of other
    /// waiters have been failing for `retry_timeout`.
    async fn wait(&mut self, waiter: &mut Waiter<'_, Offer>) -> Result<bool> {
        let handle = self.handle;
        // A waiting writer attempts when its `PATIENCE` is over: that attempt tells the server to stop new readers. One
        // millisecond more, because a timer can fire before the clock says that the time is over.
        let poll = self.attempts.intent.left(clock::now).map(|left| left + Duration::from_millis(1));
        let answers = waiter.answers();
        let retry_timeout = handle.config().retry_timeout();
        // Give up early only without a time limit: a call with a limit waits until the limit.
        let mut looks_at = self.limits.is_none().then(|| Instant::now() + retry_timeout);
        let ended = {
            let (listed, attempts) = (&mut self.listed, &self.attempts);
            let next = pin!(async {
                let mut next = pin!(waiter.next(poll));
                loop {
                    tokio::select! {
                        biased;
                        () = &mut next => return None,
                        () = handle.lock.engine.ended() => return None,
                        () = elapsed(listed.lists_at(attempts).into_iter().chain(looks_at).min()) => {}
                    }
                    if looks_at.is_none_or(|at| Instant::now() < at) {
                        listed.waits(attempts);
                    } else if let Some(fault) = answers.hopeless() {
                        return Some(fault);
                    } else {
                        let left = retry_timeout.saturating_sub(answers.failing());
                        looks_at = Some(Instant::now() + left.max(LOOK));
                    }
                }
            });
            match self.limits {
                Some(limits) => limits.run(|| answers.is_answered(), next).await,
                None => Some(next.await),
            }
        };
        // The wait above ends in the same way for a wake-up and for a shutdown. After a shutdown, the call fails here
        // instead of attempting.
        handle.check_open()?;
        match ended {
            Some(Some(fault)) => Err(self.error(fault)),
            ended => Ok(ended.is_some()),
        }
    }

    /// Attempts once. `None`: the time limit of the call has passed.
    async fn attempt(&mut self, waiting: Option<&Waiter<'_, Offer>>) -> Result<Option<Attempted>> {
        let answers = self.limits.and(waiting).map(Waiter::answers);
        let outcome = {
            // One pinned future serves all three cases: a future for each case would make the future of the caller
            // larger.
            let attempt = pin!(self.attempts.attempt());
            match (self.limits, answers) {
                (None, _) => Some(attempt.await),
                (Some(limits), Some(answers)) => limits.run(|| answers.is_answered(), attempt).await,
                (Some(limits), None) => timeout_at(limits.end(), attempt).await.ok(),
            }
        };
        match outcome {
            // The time limit passed before any answer. `None` would tell the caller that another owner holds the lock,
            // so the call fails instead.
            None if waiting.is_none() => Err(self.error(late())),
            outcome => outcome.transpose(),
        }
    }

    /// Ends a call that waited, and whose time limit has passed.
    async fn end_of_time(&mut self, waiting: Option<Waiter<'_, Offer>>) -> Result<Option<HeldLock>> {
        let Some(waiter) = waiting else { return Err(self.error(late())) };
        if let Some(fault) = waiter.fault() {
            return Err(self.error(fault));
        }
        if waiter.is_overdue() {
            // The waiter in front should have attempted, and did not: perhaps nobody polls its future. So this waiter
            // attempts once. Otherwise the call could report a free lock as held.
            waiter.attempts();
            self.attempts.leaves_id(false)?; // perhaps its last attempt was dropped at the end of the time
            // Boxed: this branch is rare, and its future would make the future of every call larger.
            let attempt = Box::pin(self.attempts.attempt());
            match timeout(self.handle.config().command_timeout(), attempt).await {
                Ok(outcome) => match outcome? {
                    Attempted::Granted => return self.granted(Some(waiter)).map(Some),
                    Attempted::Refused(left) => waiter.refused(left),
                    Attempted::Failed(fault) => return Err(self.error(fault)),
                },
                Err(_) => return Err(self.error(late())),
            }
        } else if !waiter.is_answered() {
            return Err(self.error(late()));
        }
        self.listed.ends(WaitOutcome::TimedOut);
        drop(waiter);
        self.attempts.leave_queue().await;
        Ok(None)
    }

    fn error(&self, fault: Fault) -> Error {
        match self.handle.check() {
            Err(Error::RuntimeGone) => Error::RuntimeGone,
            _ => self.handle.lock.error(fault),
        }
    }
}

impl Deadlines {
    fn new(limit: WaitLimit, config: &LockConfig) -> Result<Option<Self>> {
        let Some(contended) = end_of(limit)? else { return Ok(None) };
        Ok(Some(Self { contended, unanswered: Instant::now() + answers_in(config) }))
    }

    /// The end of the call, whether or not a server has answered.
    fn end(self) -> Instant {
        self.contended.max(self.unanswered)
    }

    /// Runs a step until the time limit. `None`: the limit has passed.
    async fn run<F: Future>(
        self,
        is_answered: impl Fn() -> bool,
        mut step: Pin<&mut F>,
    ) -> Option<F::Output> {
        match timeout_at(self.contended, &mut step).await {
            Ok(output) => Some(output),
            Err(_) if is_answered() => None,
            Err(_) => timeout_at(self.unanswered, step).await.ok(),
        }
    }
}

/// Waits for the end of what this owner held or attempted before, so that the owner does not block itself. At most for
/// half of `command_timeout`: the call needs the rest of its time for the attempt.
async fn end(mut before: Before, handle: &Handle, limits: Option<Deadlines>) {
    let enough = handle.config().command_timeout() / 2;
    let ended = timeout(enough, before.end());
    let _ = match limits {
        Some(limits) => timeout_at(limits.end(), ended).await.ok(),
        None => Some(ended.await),
    };
}

pub(crate) fn late() -> Fault {
    Fault::new(FaultKind::TimedOut, Sent::Unknown, "no answer before the time of the call was up")
}
