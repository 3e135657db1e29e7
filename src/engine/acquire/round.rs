//! One attempt on each member of a lock, and what it comes to.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Claim;
use crate::clock::{self, Moment};
use crate::engine::gather::{gather, is_decided};
use crate::engine::grant::Grant;
use crate::engine::kind::Answer;
use crate::engine::lease::quorum_deadline;
use crate::engine::release::Releasing;
use crate::error::{Error, Result};
use crate::jitter;
use crate::store::{Fault, FaultKind, Sent};

/// What it took from others in a round that failed is given back before it waits, for so long.
const GIVE_BACK: Duration = Duration::from_millis(50);

/// Rounds in a row that end like this, before who needs all members begins to pause between them.
const PATIENT: u32 = 3;

/// What one attempt on each member came to.
pub(super) enum Round {
    Refused(Refused),
    Won,
}

pub(super) struct Refused {
    /// The one to wait for.
    pub(super) member: usize,
    /// How long the lease in the way lasts at most, if it is known.
    pub(super) left: Option<Duration>,
}

pub(super) enum Failure {
    /// Of this member.
    Fault(usize, Fault),
    /// It can not be had, however often it is tried.
    Final(Error),
}

/// What the members that were not had answered.
#[derive(Default)]
struct Tally {
    waits_for: Option<usize>,
    refused: Option<Refused>,
    failed: Option<(usize, Fault)>,
    faults: usize,
    is_lost: bool,
    /// It can not be had, however often it is tried.
    refusal: Option<Error>,
}

/// What one member answered, and the deadline of what it granted.
type Outcome = Result<(Answer, Moment), Fault>;

impl Tally {
    /// Whoever waits for one member goes on with that, as long as it is in the way.
    fn is_refused(&mut self, refused: Refused) {
        if self.refused.is_none() || self.waits_for == Some(refused.member) {
            self.refused = Some(refused);
        }
    }

    fn has_failed(&mut self, member: usize, fault: Fault) {
        self.faults += 1;
        if self.failed.is_none() || self.waits_for == Some(member) {
            self.failed = Some((member, fault));
        }
    }
}

impl Claim<'_> {
    /// One attempt on each member. Who waits for one of them does so in its queue, if it has one.
    pub(super) async fn round(&mut self, waits_for: Option<usize>) -> Result<Round, Failure> {
        loop {
            let tally = self.attempt(waits_for).await;
            if let Some(error) = tally.refusal {
                return Err(Failure::Final(error));
            }
            let quorum = self.handle.quorum;
            self.at = clock::now();
            if quorum_deadline(self.deadlines.iter().copied(), quorum) > self.at {
                return Ok(Round::Won);
            }
            if tally.is_lost {
                continue; // and begin anew
            }
            self.give_back(tally.refused.as_ref().map(|refused| refused.member))
                .await
                .map_err(Failure::Final)?;
            // With so many faults, whoever else is refused could not help.
            let is_hopeless = self.seats.len() - tally.faults < quorum;
            self.silent = tally.failed.as_ref().map(|(member, _)| *member);
            return match (tally.refused, tally.failed) {
                (Some(refused), None) => Ok(Round::Refused(refused)),
                (Some(refused), Some(_)) if !is_hopeless => Ok(Round::Refused(refused)),
                (_, Some((member, fault))) => Err(Failure::Fault(member, fault)),
                (None, None) => {
                    let late = "the lease was as good as over when the answer came";
                    let fault = Fault::new(FaultKind::TimedOut, Sent::Unknown, late);
                    Err(Failure::Fault(waits_for.unwrap_or(0), fault))
                }
            };
        }
    }

    async fn attempt(&mut self, waits_for: Option<usize>) -> Tally {
        self.deadlines.fill(Moment::PAST);
        let mut tally = Tally { waits_for, ..Tally::default() };
        let queue = waits_for.is_some();
        if self.handle.needs_all() {
            // In the order of the members, which is the same for all: who has the first goes on to the next. But one that
            // gave no answer comes first, so that nobody has the others while it is silent.
            let silent = self.silent.take();
            let others = (0..self.seats.len()).filter(|&member| Some(member) != silent);
            for member in silent.into_iter().chain(others) {
                let outcome = self.attempt_one(member, queue).await;
                self.count(member, outcome, &mut tally);
                if self.deadlines[member] == Moment::PAST {
                    break;
                }
            }
            return tally;
        }
        let (all, quorum) = (self.seats.len(), self.handle.quorum);
        let is_had = |(_, outcome): &&(usize, Outcome)| matches!(outcome, Ok((Answer::Granted(_), _)));
        let attempts = (0..all).map(|member| self.attempt_one(member, queue));
        let outcomes = gather(attempts, |outcomes| {
            let had = outcomes.iter().filter(is_had).count();
            // Faults do not decide: whether the others are enough, or it is hopeless, is for all of them to say.
            let answered = outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).count();
            is_decided(had, answered - had, quorum, all)
        })
        .await;
        for (member, outcome) in outcomes {
            self.count(member, outcome, &mut tally);
        }
        tally
    }

    async fn attempt_one(&self, member: usize, queue: bool) -> Outcome {
        let seat = &self.seats[member];
        seat.grant.attempt(seat.want, self.lease.time(&seat.grant.target.engine.config), queue).await
    }

    fn count(&mut self, member: usize, outcome: Outcome, tally: &mut Tally) {
        match outcome {
            Ok((Answer::Granted(_), deadline)) => self.deadlines[member] = deadline,
            Ok((Answer::Held(left), _)) => tally.is_refused(Refused { member, left }),
            Ok((Answer::Queued, _)) => tally.is_refused(Refused { member, left: None }),
            Ok((Answer::Lost, _)) => match self.begin_anew(member) {
                Ok(_) => tally.is_lost = true,
                Err(error) => tally.refusal = Some(error),
            },
            Ok((Answer::OtherKind, _)) if self.handle.needs_all() => {
                tally.refusal = Some(self.handle.members[member].other_kind());
            }
            // A majority can do without it.
            Ok((Answer::OtherKind, _)) => {
                let other_kind =
                    Fault::new(FaultKind::WrongType, Sent::Refused, "in use as another kind of lock");
                tally.has_failed(member, other_kind);
            }
            Err(fault) => tally.has_failed(member, fault),
        }
    }

    /// Some members were had, and not enough: nothing is kept while this one waits, but the place in the queue of the
    /// member that it waits for. The next attempt has new ids, as a copy of these releases may still run then. With
    /// nobody to wait for, what got no answer is attempted again with the same id.
    ///
    /// What was re-entered is ours all the time: with a new id, this owner would wait for itself.
    async fn give_back(&mut self, waits_for: Option<usize>) -> Result<()> {
        let mut had = Vec::new();
        for member in 0..self.seats.len() {
            let seat = &self.seats[member];
            let was_had = self.deadlines[member] > Moment::PAST;
            let may_be_had = waits_for.is_some_and(|other| other != member) && seat.grant.may_be_known();
            if seat.want == 1 && (was_had || may_be_had) {
                let given_up = self.begin_anew(member)?;
                if was_had {
                    had.push(given_up);
                }
            }
        }
        self.deadlines.fill(Moment::PAST);
        self.given_back = if had.is_empty() { 0 } else { self.given_back + 1 };
        let has_split = self.given_back > if self.handle.needs_all() { PATIENT } else { 0 };
        // What takes longer than this, and what may have been had, is given back in the background.
        let _ = timeout(GIVE_BACK, Releasing::new(had).settle_but(0)).await;
        if has_split {
            // Others had the rest, and give it back now. Whoever is the first to try again gets all. Of those that are
            // all needed, the order decides, as long as all agree on it.
            sleep(jitter::within(self.splits.pause() * 2)).await;
        }
        Ok(())
    }

    /// What was attempted before is given up.
    fn begin_anew(&mut self, member: usize) -> Result<Arc<Grant>> {
        let fresh = self.handle.members[member].fresh_seat()?;
        let before = std::mem::replace(&mut self.seats[member], fresh);
        Ok(Arc::clone(&before.grant))
    }
}
