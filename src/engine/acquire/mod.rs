//! Acquiring: attempt, and if somebody else has the lock, wait in line and attempt again.
//!
//! Nothing here undoes anything by hand. A [`Seat`] that is dropped before it became a hold is undone, at whatever
//! point that is, so a time limit is a dropped future and so is a cancelled call.

mod round;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use round::{Failure, Round};

use super::PerMember;
use super::grant::{Grant, Part, Seat};
use super::handle::{Handle, Lease};
use super::hold::Hold;
use super::release::Releasing;
use super::retry::{PAUSES, Tries};
use super::wakes::{Front, Place};
use crate::clock::{self, Moment};
use crate::error::{Error, Result};
use crate::guard::LockGuard;
use crate::jitter::{self, Backoff};
use crate::store::{Fault, FaultKind, Sent};

/// Pauses after a round in which several owners had some members each, and nobody enough.
const SPLITS: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));

/// How long a call waits for a lock that somebody else holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    For(Duration),
    Forever,
    None,
}

/// `None`: somebody else has it.
pub(crate) async fn acquire(handle: &mut Handle, patience: Patience) -> Result<Option<LockGuard>> {
    handle.check()?;
    let limit = match patience {
        Patience::For(wait) => Some(Until::after(wait, handle)?),
        Patience::Forever | Patience::None => None,
    };
    let mut claim = Claim::new(handle)?;
    let mut member = 0;
    if matches!(patience, Patience::None) || claim.is_reentry() || !claim.ended.is_empty() {
        match claim.ask_within(limit).await? {
            Round::Won => return claim.into_guard().map(Some),
            Round::Refused(_) if matches!(patience, Patience::None) => return Ok(None),
            // Somebody else has it by now. In the line of a member that is ours stand those who wait for us.
            Round::Refused(refused) => member = refused.member,
        }
    }
    loop {
        match claim.wait_within(limit, member).await? {
            Wait::Won => return claim.into_guard().map(Some),
            Wait::Elsewhere(other) => member = other,
            Wait::TimeUp => {
                claim.leave().await;
                return Ok(None);
            }
        }
    }
}

/// What it came to to wait for one member.
enum Wait {
    Won,
    /// This member is in the way now.
    Elsewhere(usize),
    TimeUp,
}

/// When a call has to end. `None`: never, with somebody else holding the lock.
type Limit = Option<Until>;

#[derive(Clone, Copy)]
struct Until {
    /// With somebody else holding the lock.
    held: Instant,
    /// Without any answer: then there is nothing to tell the caller, so one command gets its time.
    unanswered: Instant,
}

impl Until {
    fn after(wait: Duration, handle: &Handle) -> Result<Self> {
        let start = Instant::now();
        let held = start.checked_add(wait).ok_or_else(too_long)?;
        Ok(Self { held, unanswered: start + handle.engine().config.command_timeout })
    }
}

fn error(handle: &Handle, fault: Fault) -> Error {
    Error::of_lock(handle.name(), fault)
}

fn late(handle: &Handle, elapsed: Elapsed) -> Error {
    error(handle, Fault::new(FaultKind::TimedOut, Sent::Unknown, elapsed))
}

fn too_long() -> Error {
    Error::InvalidDuration { argument: "wait", problem: "is longer than the clock can count".to_owned() }
}

/// An attempt to get a lock, until it has become a guard.
struct Claim<'a> {
    handle: &'a Handle,
    seats: PerMember<Seat>,
    /// What this owner held before and gave back or lost. Its own old hold must not be in its way.
    ended: Vec<Arc<Grant>>,
    /// Until when each member is ours; [`Moment::PAST`] if it is not.
    deadlines: PerMember<Moment>,
    /// When it began, or was found to be ours.
    at: Moment,
    lease: Lease,
    /// Rounds in a row that had some members, and gave them back.
    given_back: u32,
    splits: Backoff,
    /// The member that gave no answer in the last round.
    silent: Option<usize>,
}

impl<'a> Claim<'a> {
    fn new(handle: &'a Handle) -> Result<Self> {
        let lease = handle.lease()?;
        let mut seats = PerMember::new();
        let mut ended = Vec::new();
        let now = clock::now();
        for member in &handle.members {
            let start = member.start(now)?;
            seats.push(start.seat);
            ended.extend(start.ended);
        }
        if seats.iter().any(|seat| seat.want > 1 && seat.grant.is_foreign()) {
            tracing::warn!(
                name = &**handle.name(),
                "a lock is re-entered from another task than the one that took it: a handle is one owner and must \
                 not be shared"
            );
        }
        let deadlines = smallvec![Moment::PAST; seats.len()];
        Ok(Self {
            handle,
            seats,
            ended,
            deadlines,
            at: now,
            lease,
            given_back: 0,
            splits: SPLITS,
            silent: None,
        })
    }

    /// Whether any member is ours already.
    fn is_reentry(&self) -> bool {
        self.seats.iter().any(|seat| seat.want > 1 || seat.is_within)
    }

    async fn ask_within(&mut self, limit: Limit) -> Result<Round> {
        let handle = self.handle;
        let Some(until) = limit else { return self.ask().await };
        match timeout_at(until.held.max(until.unanswered), self.ask()).await {
            Ok(round) => round,
            Err(elapsed) => Err(late(handle, elapsed)),
        }
    }

    /// Attempts out of turn, until there is an answer.
    async fn ask(&mut self) -> Result<Round> {
        // On a fault, and after a while, this goes on in the background. There has to be time for the attempt.
        let ended = Releasing::new(std::mem::take(&mut self.ended));
        let _ =
            timeout(self.handle.engine().config.command_timeout / 2, ended.settle_but(self.handle.spare()))
                .await;
        drop(ended);
        let mut tries = Tries::new(self.handle.engine());
        loop {
            let fault = match self.round(None).await {
                Ok(round) => return Ok(round),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Fault(_, fault)) => fault,
            };
            if self.handle.is_closing() {
                return Err(Error::Closed);
            }
            tries.again(fault).await.map_err(|fault| error(self.handle, fault))?;
        }
    }

    async fn wait_within(&mut self, limit: Limit, member: usize) -> Result<Wait> {
        let handle = self.handle;
        let place = Place::join(&self.seats[member].grant);
        let give_up = limit.is_none().then_some(handle.engine().config.retry_timeout);
        let mut waiting = pin!(self.wait(&place, member, give_up));
        let Some(until) = limit else { return waiting.await };
        let mut outcome = timeout_at(until.held, &mut waiting).await;
        if outcome.is_err() && !place.is_answered() {
            outcome = timeout_at(until.unanswered, &mut waiting).await;
        }
        match (outcome, place.fault()) {
            (Ok(outcome), _) => outcome,
            (Err(_), Some(fault)) => Err(error(handle, fault)),
            (Err(_), None) if place.is_answered() => Ok(Wait::TimeUp),
            (Err(elapsed), None) => Err(late(handle, elapsed)),
        }
    }

    /// Stands in line for one member, and attempts when it is time. Returns when the lock is had, or when another
    /// member is in the way. With `give_up`, faults that last as long are an error.
    async fn wait(&mut self, place: &Place, member: usize, give_up: Option<Duration>) -> Result<Wait> {
        let handle = self.handle;
        let engine = handle.engine();
        let mut pauses = PAUSES;
        let mut turn = pin!(place.turn());
        let mut call = place.call();
        let mut front = None;
        // Who can hold it beside others does not wait for them to find out.
        let mut is_first = place.is_shared() && !place.is_closed();
        loop {
            match &mut front {
                None if std::mem::take(&mut is_first) => {}
                None => tokio::select! {
                    biased;
                    mine = &mut turn => {
                        front = Some(mine);
                        // The first in a line may find the lock free. All others know better and wait to be woken.
                        if place.is_closed() {
                            continue;
                        }
                    }
                    () = place.overlooked() => {}
                    () = call.comes() => {}
                    () = handle.closing() => return Err(Error::Closed),
                },
                Some(front) => tokio::select! {
                    () = front.woken() => {}
                    // A majority can do without the member that is waited for, whatever keeps that one.
                    () = sleep(jitter::around(engine.config.safety_poll)), if !handle.needs_all() => {}
                    () = handle.closing() => return Err(Error::Closed),
                },
            }
            place.looks();
            match self.round(Some(member)).await {
                Ok(Round::Won) => {
                    place.got_it(self.lease.time(&engine.config));
                    front.into_iter().for_each(Front::leave);
                    return Ok(Wait::Won);
                }
                Ok(Round::Refused(refused))
                    if refused.member != member || !place.is_for(&self.seats[member].grant) =>
                {
                    return Ok(Wait::Elsewhere(refused.member));
                }
                Ok(Round::Refused(refused)) => {
                    place.held(refused.left);
                    pauses = PAUSES;
                }
                Err(Failure::Final(error)) => return Err(error),
                // Who stands in this line does not wait for another server.
                Err(Failure::Fault(failed, fault)) if failed != member && fault.is_transient() => {
                    return Ok(Wait::Elsewhere(failed));
                }
                Err(Failure::Fault(_, fault)) => {
                    let failing = place.failed(&fault, pauses.pause());
                    if !fault.is_transient() || give_up.is_some_and(|limit| failing > limit) {
                        return Err(error(self.handle, fault));
                    }
                }
            }
        }
    }

    /// Whoever gives up leaves the queue before it says so.
    async fn leave(&mut self) {
        if !self.handle.members.iter().any(|member| member.target.kind.queue().is_some()) {
            return;
        }
        let grants: Vec<_> = self.seats.drain(..).map(|seat| Arc::clone(&seat.grant)).collect();
        let limit = self.handle.engine().config.command_timeout / 2;
        let _ = timeout(limit, Releasing::new(grants).settle_but(self.handle.spare())).await;
    }

    fn into_guard(mut self) -> Result<LockGuard> {
        if self.handle.is_closing() {
            return Err(Error::Closed); // nothing would renew it
        }
        let ends = self.lease.max_hold.map(|most| self.at.plus(most));
        let is_watched = self.handle.is_watched(self.lease);
        let hold = Arc::new(Hold::new(self.deadlines.iter().copied(), self.handle.quorum, is_watched, ends));
        let mut parts = PerMember::new();
        for (member, seat) in self.seats.iter_mut().enumerate() {
            if self.deadlines[member] > Moment::PAST {
                seat.take(&hold, member, self.at);
                self.handle.members[member].hold(&seat.grant);
                parts.push(Part { grant: Arc::clone(&seat.grant), member });
            }
        }
        Ok(LockGuard::new(Arc::clone(self.handle.name()), hold, parts))
    }
}
