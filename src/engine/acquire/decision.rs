//! What a call does after a round. Pure: no I/O and no clock.

use std::time::Duration;

use crate::base::fault::Fault;

/// The outcome of one attempt on each member.
#[derive(Debug)]
pub(crate) enum Round {
    /// A quorum of the members was granted.
    Granted,
    /// Another owner holds this member.
    Refused {
        member: usize,
        /// The holder's lease lasts at most for this time, if the time is known.
        left: Option<Duration>,
    },
    /// Too few members answered. This is the fault of a member that did not answer.
    Failed { member: usize, fault: Fault },
}

/// What a call does if another owner has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// It does not wait.
    Try,
    /// It has the lock already, so it stands in no queue.
    ReEntry,
    Wait,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// The member in whose queue it stands.
    pub(crate) member: usize,
    /// A release of that member wakes it there. Not if its place in a queue on the server has another channel by now.
    pub(crate) is_woken: bool,
}

#[derive(Debug)]
pub(crate) enum Next {
    /// The call has the lock.
    Done,
    /// Another owner has the lock, and the call does not wait.
    Busy,
    Fail(Fault),
    /// It pauses, and makes another round.
    Retry(Fault),
    /// It waits where it stands.
    Stay(Reason),
    /// It leaves its queue, if it stands in one, and joins that of this member.
    MoveTo(usize, Reason),
}

/// Why a call waits.
#[derive(Debug)]
pub(crate) enum Reason {
    /// Another owner holds the member. Its lease lasts at most for this time, if the time is known.
    Held(Option<Duration>),
    Fault(Fault),
}

/// Decides by a round. `waiting`: `None` for a call that stands in no queue.
pub(crate) fn next(round: Round, waiting: Option<Waiting>, kind: CallKind) -> Next {
    match (round, waiting) {
        (Round::Granted, _) => Next::Done,
        (Round::Refused { .. }, _) if kind == CallKind::Try => Next::Busy,
        (Round::Refused { member, left }, Some(waiting)) if waiting.member == member && waiting.is_woken => {
            Next::Stay(Reason::Held(left))
        }
        // It does not wait for this member yet.
        (Round::Refused { member, left }, _) => Next::MoveTo(member, Reason::Held(left)),
        (Round::Failed { fault, .. }, None) if kind != CallKind::Wait => Next::Retry(fault),
        (Round::Failed { fault, .. }, _) if !fault.is_transient() => Next::Fail(fault),
        (Round::Failed { member, fault }, Some(waiting)) if waiting.member == member => {
            Next::Stay(Reason::Fault(fault))
        }
        // The waiters of another queue must neither be delayed by the server of this member, nor report its fault as theirs.
        (Round::Failed { member, fault }, _) => Next::MoveTo(member, Reason::Fault(fault)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fault::{FaultKind, Sent};

    const LEFT: Option<Duration> = Some(Duration::from_secs(7));

    fn refused(member: usize) -> Round {
        Round::Refused { member, left: LEFT }
    }

    fn failed(member: usize, kind: FaultKind) -> Round {
        Round::Failed { member, fault: Fault::new(kind, Sent::Refused, "a fault") }
    }

    fn describe(next: Next) -> String {
        let why = |reason| match reason {
            Reason::Held(left) if left == LEFT => "held",
            Reason::Held(_) => "held for another time",
            Reason::Fault(_) => "a fault",
        };
        match next {
            Next::Done => "done".to_owned(),
            Next::Busy => "busy".to_owned(),
            Next::Fail(_) => "fail".to_owned(),
            Next::Retry(_) => "retry".to_owned(),
            Next::Stay(reason) => format!("stay: {}", why(reason)),
            Next::MoveTo(member, reason) => format!("move to {member}: {}", why(reason)),
        }
    }

    #[test]
    fn each_round_has_one_next_step() {
        use CallKind::{ReEntry, Try, Wait};
        use FaultKind::{Broken, Permission};
        let stands = Some(Waiting { member: 0, is_woken: true });
        let deaf = Some(Waiting { member: 0, is_woken: false });
        for (round, waiting, kind, step) in [
            (Round::Granted, None, ReEntry, "done"),
            (Round::Granted, None, Wait, "done"),
            (Round::Granted, stands, Wait, "done"),
            (Round::Granted, None, Try, "done"),
            (refused(0), None, Try, "busy"),
            (refused(0), None, ReEntry, "move to 0: held"), // its hold is gone
            (refused(0), None, Wait, "move to 0: held"),
            (refused(0), stands, Wait, "stay: held"),
            (refused(0), deaf, Wait, "move to 0: held"),
            (refused(1), stands, Wait, "move to 1: held"),
            (failed(0, Broken), None, Try, "retry"),
            (failed(0, Broken), None, ReEntry, "retry"),
            (failed(0, Broken), None, Wait, "move to 0: a fault"),
            (failed(0, Permission), None, Try, "retry"), // which ends the call at once
            (failed(0, Permission), None, Wait, "fail"),
            (failed(0, Broken), stands, Wait, "stay: a fault"),
            (failed(1, Broken), stands, Wait, "move to 1: a fault"),
            (failed(0, Permission), stands, Wait, "fail"),
            (failed(1, Permission), stands, Wait, "fail"),
        ] {
            let case = format!("{round:?}, {waiting:?}, {kind:?}");
            assert_eq!(describe(next(round, waiting, kind)), step, "{case}");
        }
    }
}
