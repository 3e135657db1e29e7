//! Acquiring: attempt, and if another owner holds the lock, wait and attempt again.
//!
//! This module undoes nothing: whoever drops a pending hold, the background undoes it. So a call that reaches its time
//! limit, or is cancelled, only drops a future.

mod call;
mod claim;
mod listed;
mod others;
mod round;

use std::mem::take;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::task::consume_budget;

use call::{CallKind, Next, Reason, Round, Waiting, next};
pub(crate) use claim::claim;
use listed::Listed;
use round::PendingMembers;

use super::grant::sharing::Offer;
use super::handle::{Handle, Member};
use super::retry::{Pauses, Tries};
use crate::base::error::{Error, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::jitter;
use crate::base::timer::{Instant, elapsed, timeout, timeout_at};
use crate::base::{Caller, clock};
use crate::engine::held::HeldLock;
use crate::engine::held::release::PendingRelease;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::queue::{Arrival, WakeUps};
use crate::engine::wait::waiter::Waiter;
use crate::engine::waits::WaitOutcome;

/// How long a call waits for a lock that another owner holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    /// The call does not wait.
    None,
    For(Duration),
    Forever,
    /// Forever, for a candidate of an election: its work is to wait, so a long wait is not reported.
    StandBy,
}

/// Returns what wakes the waiters for a member.
pub(crate) type WakeUpsOf = fn(&LockRef) -> WakeUps<'_, Offer>;

/// Acquires the lock. `None`: another owner holds it.
pub(crate) async fn acquire(
    handle: &mut Handle,
    limit: WaitLimit,
    caller: Caller,
    wake_ups: WakeUpsOf,
) -> Result<Option<HeldLock>> {
    let handle = &*handle;
    handle.check_members()?;
    let limits = Deadlines::new(limit, handle)?;
    if handle.can_share() {
        // Yield before joining: a join never suspends, so a loop of joins would starve the other tasks of this thread.
        // Do not yield after the join: an unpolled future would keep the hold that it joined, and no reader could be
        // the last to leave.
        consume_budget().await;
        if let Some(mut members) = PendingMembers::joined(handle, caller) {
            return members.take().map(Some);
        }
    }
    let (members, ended) = PendingMembers::start(handle, caller, matches!(limit, WaitLimit::None))?;
    // Check after `start`, which adds the acquire to `under_way`. A shutdown first closes, and then waits for that
    // list. With the check before, an acquire could begin for which the shutdown does not wait.
    handle.check_open()?;
    if !ended.is_empty() {
        release_ended(ended, handle, limits).await;
    }
    let listed = Listed::new(matches!(limit, WaitLimit::StandBy));
    let mut call = AcquireCall { handle, members, limits, arrival: None, listed, wake_ups };
    let mut tries = Tries::new(handle.config().retry_timeout());
    let mut pauses = Pauses::START;
    if let [Member { lock, .. }] = &handle.members[..] {
        call.arrival = Some(lock.engine.wait_queues.arrive(lock.row));
    }
    // A reader joins the queue even if nobody waits: readers that come during its attempt wait there, and share its
    // hold.
    let mut comes_first = call.members.kind() == CallKind::Wait
        && call.arrival.as_ref().is_some_and(|arrival| arrival.is_alone)
        && !handle.is_shared();
    let mut waiting = (call.members.kind() == CallKind::Wait && !comes_first).then(|| call.join(0, false));
    loop {
        if let Some((member, waiter)) = &mut waiting {
            match call.turn(*member, waiter).await? {
                Turn::Attempt => waiter.attempts(),
                Turn::HasLock => return call.has_lock(waiting).map(Some),
                Turn::TimeIsUp => return call.end_of_time(waiting).await,
            }
        }
        let Some(round) = call.attempt(waiting.as_ref()).await? else {
            return call.end_of_time(waiting).await;
        };
        let stands = waiting.as_ref().map(|(member, waiter)| Waiting {
            member: *member,
            is_woken: waiter.is_woken_by(&call.members.wake_channel(*member)),
        });
        match next(round, stands, call.members.kind()) {
            Next::Done => return call.granted(waiting).map(Some),
            Next::Busy => return Ok(None),
            Next::Fail(fault) => return Err(call.error(fault)),
            Next::Retry(_) if handle.is_closing() => return Err(Error::Closed),
            Next::Retry(fault) => tries.again(fault).await.map_err(|fault| call.error(fault))?,
            Next::MoveTo(member, reason) => {
                let (_, waiter) = waiting.insert(call.join(member, take(&mut comes_first)));
                // Tell the new queue how the round ended: its waiter has just attempted, so it waits until it is woken.
                call.tell(member, waiter, &reason, &mut pauses);
            }
            Next::Stay(reason) => {
                let Some((member, waiter)) = &waiting else { continue };
                call.tell(*member, waiter, &reason, &mut pauses);
                if let Reason::Fault(fault) = reason
                    && call.limits.is_none()
                    && waiter.answers().failing() > handle.config().retry_timeout()
                {
                    return Err(call.error(fault));
                }
            }
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
    members: PendingMembers<'a>,
    limits: Option<Deadlines>,
    /// Only for a lock of one member: counts the call among those that acquire the lock.
    arrival: Option<Arrival<'a>>,
    listed: Listed,
    wake_ups: WakeUpsOf,
}

impl<'a> AcquireCall<'a> {
    /// Tells the queue for a member how a round ended.
    fn tell(&mut self, member: usize, waiter: &Waiter<'_, Offer>, reason: &Reason, pauses: &mut Pauses) {
        let may_run_late = self.members.may_run_late();
        match reason {
            Reason::Held(left) => {
                self.listed.refused(&self.members, member);
                waiter.refused(*left, may_run_late);
                *pauses = Pauses::START;
            }
            Reason::Fault(fault) => waiter.failed(fault, pauses.after(fault), may_run_late),
        }
    }

    /// Waits until it is time to attempt, unless another owner of this client gives the lock.
    async fn turn(&mut self, member: usize, waiter: &mut Waiter<'_, Offer>) -> Result<Turn> {
        if !self.wait(member, waiter).await? {
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
        let is_given = waiter.take_offer().is_some_and(|offer| self.members.accept(offer));
        Ok(if is_given || self.members.join_readers() { Turn::HasLock } else { Turn::Attempt })
    }

    /// Ends a call to which the server granted the lock.
    fn granted(&mut self, waiting: Option<(usize, Waiter<'_, Offer>)>) -> Result<HeldLock> {
        let has_followers = self.arrival.as_ref().is_some_and(Arrival::has_followers);
        self.members.end_earlier(waiting.as_ref(), has_followers);
        self.has_lock(waiting)
    }

    /// Ends a call that has the lock: takes the hold, and leaves the queue.
    fn has_lock(&mut self, waiting: Option<(usize, Waiter<'_, Offer>)>) -> Result<HeldLock> {
        self.listed.ends(WaitOutcome::Granted);
        // Take the hold before the waiter leaves the queue: the leaving reader wakes the others, and they must find a
        // hold to join.
        let held = self.members.take();
        if let Some((member, waiter)) = waiting {
            waiter.keeps_for_others(|| self.members.keep_for_readers());
            self.leave_granted(member, waiter);
        }
        held
    }

    /// Joins the queue for a member. `comes_first`: the call began when nobody waited.
    fn join(&self, member: usize, comes_first: bool) -> (usize, Waiter<'a, Offer>) {
        let lock = &*self.handle.members[member].lock;
        let key = self.members.queue_key(member);
        let can_take_handoff = self.handle.can_take_over() || self.handle.can_share();
        let waiting = self.handle.metrics.waiting();
        let manner = (can_take_handoff, comes_first);
        let waiter = Waiter::join((self.wake_ups)(lock), key, manner, &lock.engine.config, waiting);
        if lock.protocol.stops_readers() {
            // A writer of this client waits from here on, so no reader of the client joins a lingering hold any more.
            // End the lingering now. Otherwise the writer would wait until it is over.
            lock.engine.read_grants.end_lingering(&lock.keys.lock, clock::now());
        }
        (member, waiter)
    }

    /// Leaves the queue for a member after the call acquired the lock.
    ///
    /// The call perhaps acquired a majority without this member. Then no release of its hold wakes this queue. So the
    /// waiter leaves as one that gave up: the next waiter attempts at once, and finds out for which member to wait.
    fn leave_granted(&self, member: usize, waiter: Waiter<'_, Offer>) {
        if self.members.is_granted(member) {
            let config = &self.handle.members[member].lock.engine.config;
            waiter.granted(self.handle.lease(config), self.members.call.leaves_permits(member));
        }
    }

    /// Waits until it is time to attempt. False: the time limit of the call has passed. Fails if the attempts of other
    /// waiters have been failing for `retry_timeout`.
    async fn wait(&mut self, member: usize, waiter: &mut Waiter<'_, Offer>) -> Result<bool> {
        let handle = self.handle;
        let poll = if handle.needs_all() {
            // A waiting writer attempts when its `PATIENCE` is over: that attempt tells the server to stop new readers.
            // One millisecond more, because a timer can fire before the clock says that the time is over.
            self.members.patience_left().map(|left| left + Duration::from_millis(1))
        } else {
            // A lock that needs only a majority also attempts at the pace of the safety poll: the members without this
            // one can become a majority, and no message of this queue says so.
            Some(jitter::around(handle.config().safety_poll()))
        };
        let answers = waiter.answers();
        let retry_timeout = handle.config().retry_timeout();
        // Give up early only without a time limit, and only if all members are needed. A call with a limit waits until
        // the limit, and a majority can perhaps be acquired without this member.
        let can_give_up = self.limits.is_none() && handle.needs_all();
        let mut looks_at = can_give_up.then(|| Instant::now() + retry_timeout);
        let ended = {
            let (listed, members) = (&mut self.listed, &self.members);
            let next = pin!(async {
                let mut next = pin!(waiter.next(poll));
                loop {
                    tokio::select! {
                        biased;
                        () = &mut next => return None,
                        () = handle.ended() => return None,
                        () = elapsed(listed.lists_at(members, member).into_iter().chain(looks_at).min()) => {}
                    }
                    if looks_at.is_none_or(|at| Instant::now() < at) {
                        listed.waits(members, member);
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

    /// Attempts each member once. `None`: the time limit of the call has passed.
    async fn attempt(&mut self, waiting: Option<&(usize, Waiter<'_, Offer>)>) -> Result<Option<Round>> {
        let waits_for = waiting.map(|(member, _)| *member);
        let answers = self.limits.and(waiting).map(|(_, waiter)| waiter.answers());
        let round = {
            // One pinned future serves all three cases: a future for each case would make the future of the caller
            // larger.
            let round = pin!(self.members.round(waits_for));
            match (self.limits, answers) {
                (None, _) => Some(round.await),
                (Some(limits), Some(answers)) => limits.run(|| answers.is_answered(), round).await,
                (Some(limits), None) => timeout_at(limits.contended.max(limits.unanswered), round).await.ok(),
            }
        };
        match round {
            // The time limit passed before any answer. `None` would tell the caller that another owner holds the lock,
            // so the call fails instead.
            None if waits_for.is_none() => Err(self.error(late())),
            round => round.transpose(),
        }
    }

    /// Ends a call that waited, and whose time limit has passed.
    async fn end_of_time(&mut self, waiting: Option<(usize, Waiter<'_, Offer>)>) -> Result<Option<HeldLock>> {
        let Some((member, waiter)) = waiting else { return Err(self.error(late())) };
        if let Some(fault) = waiter.fault() {
            return Err(self.error(fault));
        }
        if waiter.is_overdue() {
            // The waiter in front should have attempted, and did not: perhaps nobody polls its future. So this waiter
            // attempts once. Otherwise the call could report a free lock as held.
            waiter.attempts();
            let config = &self.handle.members[member].lock.engine.config;
            // Boxed: this branch is rare, and its future would make the future of every call larger.
            let round = Box::pin(self.members.round(Some(member)));
            match timeout(config.command_timeout(), round).await {
                Ok(round) => match round? {
                    Round::Granted => return self.granted(Some((member, waiter))).map(Some),
                    // `false`: the waiter leaves next, so it does not look for a late copy of its attempt.
                    Round::Refused { left, .. } => waiter.refused(left, false),
                    Round::Failed { fault, .. } => return Err(self.error(fault)),
                },
                Err(_) => return Err(self.error(late())),
            }
        } else if !waiter.is_answered() {
            return Err(self.error(late()));
        }
        self.listed.ends(WaitOutcome::TimedOut);
        drop(waiter);
        self.members.leave_queues().await;
        Ok(None)
    }

    fn error(&self, fault: Fault) -> Error {
        match self.handle.check() {
            Err(Error::RuntimeGone) => Error::RuntimeGone,
            _ => Error::of_lock(self.handle.id(), fault),
        }
    }
}

impl Deadlines {
    fn new(limit: WaitLimit, handle: &Handle) -> Result<Option<Self>> {
        let WaitLimit::For(wait) = limit else { return Ok(None) };
        let start = Instant::now();
        let too_long = || Error::InvalidDuration {
            argument: "wait",
            problem: "is longer than the clock can count".to_owned(),
        };
        let contended = start.checked_add(wait).ok_or_else(too_long)?;
        let config = handle.config();
        let of_replicas = config.sync().map_or(Duration::ZERO, |sync| sync.timeout);
        Ok(Some(Self { contended, unanswered: start + config.command_timeout() + of_replicas }))
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

/// Releases what this owner held or attempted before, so that the owner does not block itself. After a fault, or after
/// half of `command_timeout`, the background continues the release: the call needs the rest of its time for the
/// attempt.
async fn release_ended(ended: PendingRelease, handle: &Handle, limits: Option<Deadlines>) {
    let enough = handle.config().command_timeout() / 2;
    let released = timeout(enough, ended.try_but(handle.spare()));
    let _ = match limits {
        Some(limits) => timeout_at(limits.contended.max(limits.unanswered), released).await.ok(),
        None => Some(released.await),
    };
}

fn late() -> Fault {
    Fault::new(FaultKind::TimedOut, Sent::Unknown, "no answer before the time of the call was up")
}
