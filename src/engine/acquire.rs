//! Acquiring: attempt, and if somebody else has the lock, wait in line and attempt again.
//!
//! Nothing here undoes anything by hand. A [`Claim`] undoes itself when it is dropped, at whatever point that is, so
//! a time limit is a dropped future and so is a cancelled call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::handle::{Handle, Member, Seat};
use super::hold::Hold;
use super::kind::Answer;
use super::lease::quorum_deadline;
use super::release::Releasing;
use super::retry::Tries;
use super::wakes::Place;
use crate::clock::{self, Moment};
use crate::error::{Error, Result};
use crate::guard::LockGuard;
use crate::store::{Fault, FaultKind, Sent};

/// How long a call waits for a lock that somebody else holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    For(Duration),
    Forever,
    None,
}

pub(crate) async fn acquire(handle: &mut Handle, patience: Patience) -> Result<Option<LockGuard>> {
    handle.check()?;
    let until = match patience {
        Patience::For(wait) => Some(Instant::now().checked_add(wait).ok_or_else(too_long)?),
        Patience::Forever | Patience::None => None,
    };
    let mut claim = Claim::new(handle)?;
    claim.clear_ended().await;
    let line = if matches!(patience, Patience::None) { None } else { claim.line() };
    let mut round = match line {
        Some(member) => Round::Refused(Refused { member, left: None }),
        None => claim.first_answer(until).await?,
    };
    loop {
        let refused = match round {
            Round::Won => return Ok(Some(claim.into_guard())),
            Round::Refused(_) if matches!(patience, Patience::None) => return Ok(None),
            Round::Refused(refused) => refused,
        };
        let place = claim.join(&refused);
        round = match until {
            None => claim.wait(&place, refused.member, Some(handle.engine.config.retry_timeout)).await?,
            Some(until) => match timeout_at(until, claim.wait(&place, refused.member, None)).await {
                Ok(round) => round?,
                Err(_) => return place.fault().map_or(Ok(None), |fault| Err(claim.error(fault))),
            },
        };
    }
}

fn too_long() -> Error {
    Error::InvalidDuration { argument: "wait", problem: "is longer than the clock can count".to_owned() }
}

/// What one attempt on each member came to.
enum Round {
    Refused(Refused),
    Won,
}

struct Refused {
    member: usize,
    /// How long the lease in the way lasts at most, if it was asked and if it is known.
    left: Option<Option<Duration>>,
}

enum Failure {
    Fault(Fault),
    /// It can not be had, however often it is tried.
    Final(Error),
}

/// An attempt to get a lock, until it has become a guard.
struct Claim<'a> {
    handle: &'a Handle,
    seats: Vec<Seat>,
    /// Until when each member is ours; [`Moment::PAST`] if it is not.
    deadlines: Vec<Moment>,
    lease: Duration,
    max_hold: Option<Duration>,
}

impl<'a> Claim<'a> {
    fn new(handle: &'a Handle) -> Result<Self> {
        let (lease, max_hold) = handle.leases()?;
        let seats: Vec<Seat> = handle.members.iter().map(Member::seat).collect();
        if seats.iter().any(|seat| seat.want > 1 && seat.grant.is_foreign()) {
            tracing::warn!(
                name = handle.name(),
                "a lock is re-entered from another task than the one that took it: a handle is one owner and must \
                 not be shared"
            );
        }
        let deadlines = vec![Moment::PAST; seats.len()];
        Ok(Self { handle, seats, deadlines, lease, max_hold })
    }

    /// Releases what this owner held before, if that is still to be done: its own old hold must not be in its way.
    async fn clear_ended(&self) {
        for grant in self.handle.members.iter().filter_map(Member::take_ended) {
            grant.write_off();
            let releasing = Releasing::new([grant]);
            if !releasing.is_done() {
                // On a fault, dropping it goes on in the background.
                let _ = releasing.settle_once().await;
            }
        }
    }

    /// The member that others in this process wait for already; this one then does not attempt out of turn.
    fn line(&self) -> Option<usize> {
        let lines = &self.handle.engine.lines;
        if lines.is_empty() || self.seats.iter().any(|seat| seat.want > 1) {
            return None;
        }
        (0..self.seats.len()).find(|&member| lines.exists(&self.channel(member)))
    }

    fn channel(&self, member: usize) -> Arc<str> {
        let target = &self.handle.members[member].target;
        target.kind.channel(&target.name)
    }

    fn join(&self, refused: &Refused) -> Place {
        let place = Place::join(&self.handle.engine, &self.channel(refused.member));
        if let Some(left) = refused.left {
            place.held(left);
        }
        place
    }

    /// Attempts until there is an answer. A caller with a time limit is told of faults at that limit, but not before
    /// one command had its time: without any answer there is nothing to tell.
    async fn first_answer(&mut self, until: Option<Instant>) -> Result<Round> {
        let config = &self.handle.engine.config;
        let start = Instant::now();
        let Some(until) = until else {
            return self.retry_until(start + config.retry_timeout, &mut None).await;
        };
        let limit = until.max(start + config.command_timeout);
        let mut fault = None;
        match timeout_at(limit, self.retry_until(limit, &mut fault)).await {
            Ok(round) => round,
            Err(elapsed) => {
                let late = || Fault::new(FaultKind::TimedOut, Sent::Unknown, elapsed);
                Err(self.error(fault.unwrap_or_else(late)))
            }
        }
    }

    async fn retry_until(&mut self, limit: Instant, last: &mut Option<Fault>) -> Result<Round> {
        let mut tries = Tries::until(limit);
        loop {
            let fault = match self.round().await {
                Ok(round) => return Ok(round),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Fault(fault)) => fault,
            };
            if self.handle.engine.is_closing() {
                return Err(Error::Closed);
            }
            *last = Some(fault.clone());
            tries.again(fault).await.map_err(|fault| self.error(fault))?;
        }
    }

    /// Waits in line for one member, and attempts when it is time. Returns when the lock is had, or when another
    /// member is in the way. With `give_up`, faults that last as long are an error.
    async fn wait(&mut self, place: &Place, member: usize, give_up: Option<Duration>) -> Result<Round> {
        let engine = Arc::clone(&self.handle.engine);
        let front = tokio::select! {
            front = place.front() => front,
            () = engine.closing() => return Err(Error::Closed),
        };
        let mut tries = Tries::new(&engine);
        loop {
            tokio::select! {
                () = front.woken() => {}
                () = engine.closing() => return Err(Error::Closed),
            }
            match self.round().await {
                Ok(Round::Won) => {
                    place.held(Some(self.lease));
                    front.got_it();
                    return Ok(Round::Won);
                }
                Ok(Round::Refused(refused)) if refused.member != member => {
                    return Ok(Round::Refused(refused));
                }
                Ok(Round::Refused(refused)) => {
                    place.held(refused.left.flatten());
                    tries = Tries::new(&engine);
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Fault(fault)) => {
                    let failing = place.failed(&fault, tries.pause());
                    if !fault.is_transient() || give_up.is_some_and(|limit| failing > limit) {
                        return Err(self.error(fault));
                    }
                }
            }
        }
    }

    /// One attempt on each member, all at once.
    async fn round(&mut self) -> Result<Round, Failure> {
        loop {
            let lease = self.lease;
            let attempts = self.seats.iter().map(|seat| seat.grant.attempt(seat.want, lease));
            let answers = join_all(attempts).await;
            let mut lost = false;
            let mut refused = None;
            let mut failed = None;
            for (member, answer) in answers.into_iter().enumerate() {
                self.deadlines[member] = Moment::PAST;
                match answer {
                    Ok((Answer::Granted, deadline)) => self.deadlines[member] = deadline,
                    Ok((Answer::Held(left), _)) => {
                        refused.get_or_insert(Refused { member, left: Some(left) });
                    }
                    Ok((Answer::Lost, _)) => {
                        self.begin_anew(member);
                        lost = true;
                    }
                    Ok((Answer::OtherKind, _)) => return Err(Failure::Final(self.other_kind())),
                    Err(fault) => failed = failed.or(Some(fault)),
                }
            }
            if quorum_deadline(self.deadlines.iter().copied(), self.handle.quorum) > clock::now() {
                return Ok(Round::Won);
            }
            if lost {
                continue;
            }
            self.give_back().await;
            return match (refused, failed) {
                (Some(refused), _) => Ok(Round::Refused(refused)),
                (None, Some(fault)) => Err(Failure::Fault(fault)),
                (None, None) => Err(Failure::Fault(Fault::new(
                    FaultKind::TimedOut,
                    Sent::Unknown,
                    "the lease was as good as over when the answer came",
                ))),
            };
        }
    }

    /// The hold that was to be re-entered is gone, and with it the guards that stood for it.
    fn begin_anew(&mut self, member: usize) {
        self.seats[member].grant.write_off();
        tracing::warn!(name = self.handle.name(), "a lock was lost before it was re-entered");
        self.seats[member] = self.handle.members[member].fresh_seat();
    }

    /// Some members were had, and not enough: they are not kept while this one waits for the others.
    async fn give_back(&mut self) {
        let had =
            self.seats.iter().zip(&mut self.deadlines).filter(|(_, deadline)| **deadline > Moment::PAST);
        let settling = had.map(|(seat, deadline)| {
            *deadline = Moment::PAST;
            seat.grant.settle()
        });
        // What fails here is done when the claim is dropped, or attempted again.
        join_all(settling).await;
    }

    fn into_guard(self) -> LockGuard {
        let ends = self.max_hold.map(|most| clock::now().plus(most));
        let is_watched = self.handle.terms.lease.is_none();
        let hold = Arc::new(Hold::new(self.deadlines.iter().copied(), self.handle.quorum, is_watched, ends));
        let mut grants = Vec::with_capacity(self.seats.len());
        for (index, (seat, deadline)) in self.seats.iter().zip(&self.deadlines).enumerate() {
            if *deadline > Moment::PAST {
                seat.grant.add(&hold, index);
                self.handle.members[index].hold(&seat.grant);
                grants.push((Arc::clone(&seat.grant), index));
            }
        }
        LockGuard::new(self.handle.name(), hold, grants)
    }

    fn error(&self, fault: Fault) -> Error {
        Error::of_lock(self.handle.name(), fault)
    }

    fn other_kind(&self) -> Error {
        let is_read_write = !self.handle.members[0].target.kind.is_read_write();
        Error::wrong_kind(self.handle.name(), is_read_write)
    }
}

impl Drop for Claim<'_> {
    /// What may have been acquired, and did not become a guard, is given back.
    fn drop(&mut self) {
        for seat in &self.seats {
            seat.grant.settle_later();
        }
    }
}
