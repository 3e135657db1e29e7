//! What a call decides, over one or several members: what a round of attempts means, what is given back, and what comes
//! next. Pure: no I/O and no clock.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::engine::hold::lease::quorum_deadline;
use crate::engine::members::{PerMember, is_decided};
use crate::protocol::IfHeld;

/// A call for a lock that needs all members pauses after a round that released members, once more than this many such
/// rounds came in a row.
const ROUNDS_BEFORE_PAUSE: u32 = 3;

/// How long a waiting writer lets new readers in. Readers with short sections leave within a few milliseconds, and then
/// the writer need not stop anybody. If the sections are long, the writer waits for them in any case, and this time
/// does not matter.
const PATIENCE: Duration = Duration::from_millis(20);

/// The state of a call over its rounds of attempts.
pub(crate) struct Call {
    /// How many members the call must acquire.
    quorum: usize,
    members: PerMember<OfMember>,
    /// How many rounds in a row acquired some members, too few, and released them.
    given_back: u32,
    /// The member that gave no answer in the last round.
    silent: Option<usize>,
    intent: WriterIntent,
}

/// What the last round learned about one member.
#[derive(Clone, Copy, Default)]
struct OfMember {
    /// The deadline of the lease that was granted.
    granted_until: Option<Moment>,
    /// More permits of the semaphore were available after the grant.
    leaves_permits: bool,
    /// The server granted the hold, but too few replicas have it, so the call does not rely on it.
    is_unreplicated: bool,
}

/// The answer of one member.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted {
        until: Moment,
        leaves_permits: bool,
    },
    /// The hold that the call wanted to re-enter is gone.
    Gone,
    /// Another owner holds the member. Its lease lasts at most this long, if the time is known.
    Held(Option<Duration>),
    Failed(Fault),
}

/// What the call has of a member after a failed round.
#[derive(Clone, Copy)]
pub(crate) enum Has {
    /// The owner of the call already holds the member: the attempt was a re-entry.
    Hold,
    /// The server possibly has a hold, a place or an intent of the call.
    Trace,
    Nothing,
}

/// A member that the call attempts next with a new owner id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anew {
    pub(crate) member: usize,
    /// The round acquired the member, so the call has to release it.
    pub(crate) is_given_back: bool,
}

/// What follows from a round.
pub(crate) struct Judged {
    /// `None`: the hold that the call wanted to re-enter is gone, so the call makes another round with a new id.
    pub(crate) round: Option<Round>,
    /// The members that the call attempts next with a new owner id.
    pub(crate) anew: PerMember<Anew>,
    /// Several owners perhaps acquired some members each. The call pauses, for longer each time.
    pub(crate) is_split: bool,
}

impl Call {
    /// Begins a call. `stops_readers`: the lock is one whose waiting writer stops new readers.
    pub(crate) fn new(members: usize, quorum: usize, stops_readers: bool) -> Self {
        Self {
            quorum,
            members: std::iter::repeat_n(OfMember::default(), members).collect(),
            given_back: 0,
            silent: None,
            intent: WriterIntent { stops_readers: stops_readers && members == 1, ..WriterIntent::default() },
        }
    }

    fn needs_all(&self) -> bool {
        self.quorum == self.members.len()
    }

    /// Returns the deadline of a member, if the last round acquired it.
    pub(crate) fn granted_until(&self, member: usize) -> Option<Moment> {
        self.members[member].granted_until
    }

    /// Whether more permits of the semaphore were available when the last round was granted some.
    pub(crate) fn leaves_permits(&self, member: usize) -> bool {
        self.members[member].leaves_permits
    }

    /// Records that another owner of this client handed its hold over, which has this deadline.
    pub(crate) fn is_given(&mut self, until: Moment) {
        self.members[0] = OfMember { granted_until: Some(until), ..OfMember::default() };
    }

    /// Returns what the next round asks the server to do if another owner holds the lock.
    pub(crate) fn if_held(&mut self, now: impl FnOnce() -> Moment) -> IfHeld {
        self.intent.if_held(now)
    }

    /// Returns how long a waiting writer still lets new readers in. `None`: the call need not attempt at the end of
    /// this time.
    pub(crate) fn patience_left(&self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        self.intent.left(now)
    }

    /// Whether an attempt of this call perhaps told the server to stop new readers.
    pub(crate) const fn is_shown(&self) -> bool {
        self.intent.is_shown
    }

    /// Returns the order in which a lock that needs all members attempts them. The order is the same for all clients,
    /// so the owner that acquires the first member continues with the next. But a member that gave no answer is
    /// attempted first, so that nobody holds the others while that member is silent.
    pub(crate) fn order(&mut self) -> impl Iterator<Item = usize> + use<> {
        let silent = self.silent.take();
        silent.into_iter().chain((0..self.members.len()).filter(move |&member| Some(member) != silent))
    }

    /// Whether these answers decide a round that attempts all members together.
    pub(crate) fn is_enough<'a>(&self, answers: impl Iterator<Item = &'a Answer>) -> bool {
        let (mut granted, mut others) = (0, 0);
        for answer in answers {
            match answer {
                Answer::Granted { .. } => granted += 1,
                // A fault decides nothing: the round waits for the other members, whose answers can still make a
                // quorum.
                Answer::Failed(fault) if fault.kind != FaultKind::WrongType => {}
                _ => others += 1,
            }
        }
        is_decided(granted, others, self.quorum, self.members.len())
    }

    /// Handles the usual case: the lock has one member, and the server granted it. False: nothing has changed, and
    /// [`judge`](Self::judge) has to decide.
    pub(crate) fn is_granted_alone(&mut self, answer: &Answer, now: Moment) -> bool {
        match (&mut self.members[..], answer) {
            ([only], &Answer::Granted { until, leaves_permits }) if until > now => {
                (only.granted_until, only.leaves_permits) = (Some(until), leaves_permits);
                true
            }
            _ => false,
        }
    }

    /// Decides what the answers of a round mean. `waits_for`: the member in whose queue the call waits. `has`: says
    /// what the call has of a member.
    pub(crate) fn judge(
        &mut self,
        answers: impl IntoIterator<Item = (usize, Answer)>,
        waits_for: Option<usize>,
        has: impl Fn(usize) -> Has,
        now: Moment,
    ) -> Judged {
        let mut refused: Option<(usize, Option<Duration>)> = None;
        let mut failed: Option<(usize, Fault)> = None;
        let mut faults = 0;
        let mut anew = PerMember::new();
        // Of several members that refuse, or that fail, the first counts. But if the call already waits for one of
        // them, that member counts, so that the call keeps its place in the queue.
        let replaces = |known: Option<usize>, member| known.is_none() || waits_for == Some(member);
        for (member, answer) in answers {
            let of_member = &mut self.members[member];
            if matches!(answer, Answer::Gone | Answer::Held(_)) {
                of_member.granted_until = None; // a hold of an earlier round is gone, too
            }
            match answer {
                Answer::Granted { until, leaves_permits } => {
                    (of_member.granted_until, of_member.leaves_permits) = (Some(until), leaves_permits);
                }
                Answer::Gone => anew.push(Anew { member, is_given_back: false }),
                Answer::Held(left) => {
                    if replaces(refused.map(|(known, _)| known), member) {
                        refused = Some((member, left));
                    }
                }
                Answer::Failed(fault) => {
                    of_member.is_unreplicated = matches!(fault.kind, FaultKind::TooFewReplicas { .. });
                    faults += 1;
                    if replaces(failed.as_ref().map(|(known, _)| *known), member) {
                        failed = Some((member, fault));
                    }
                }
            }
        }
        let deadlines = self.members.iter().map(|member| member.granted_until.unwrap_or(Moment::PAST));
        let is_granted = quorum_deadline(deadlines, self.quorum) > now;
        if is_granted || !anew.is_empty() {
            return Judged { round: is_granted.then_some(Round::Granted), anew, is_split: false };
        }
        if refused.is_some() {
            self.intent.refused(now);
        }
        let anew = self.gives_back(refused.map(|(member, _)| member), has);
        self.given_back = if anew.iter().any(|anew| anew.is_given_back) { self.given_back + 1 } else { 0 };
        // If a lock needs all members, every client attempts them in the same order, so two calls seldom split the
        // members. Such a call pauses only after several rounds that released something. With a majority, it pauses
        // after the first.
        let is_split = self.given_back > if self.needs_all() { ROUNDS_BEFORE_PAUSE } else { 0 };
        self.silent = failed.as_ref().map(|(member, _)| *member);
        // So many members failed that the others are no quorum. To wait for the member that refused would not help, so
        // the round fails.
        let is_hopeless = self.members.len() - faults < self.quorum;
        let round = match (refused, failed) {
            (Some((member, left)), None) => Round::Refused { member, left },
            (Some((member, left)), Some(_)) if !is_hopeless => Round::Refused { member, left },
            (_, Some((member, fault))) => Round::Failed { member, fault },
            (None, None) => {
                let late = "the lease had almost ended when the answer came";
                let fault = Fault::new(FaultKind::TimedOut, Sent::Unknown, late);
                Round::Failed { member: waits_for.unwrap_or(0), fault }
            }
        };
        Judged { round: Some(round), anew, is_split }
    }

    /// Returns the members that the call attempts next with a new id, and says which of them a failed round acquired:
    /// the call releases those. So while the owner waits for one member, it keeps nothing except its place in that
    /// member's queue. New ids are needed, because a late copy of these releases can still run. If no member refused, a
    /// member that gave no answer is attempted again with the same id.
    ///
    /// A member that was re-entered stays held: with a new id, this owner would wait for itself.
    fn gives_back(&mut self, waits_for: Option<usize>, has: impl Fn(usize) -> Has) -> PerMember<Anew> {
        let mut anew = PerMember::new();
        for (member, OfMember { granted_until, is_unreplicated, .. }) in self.members.iter_mut().enumerate() {
            // The call also releases a hold that too few replicas have, and attempts with a new id. An attempt that
            // finds its own hold can write nothing, and `WAIT` confirms only writes.
            let was_granted = granted_until.take().is_some() || std::mem::take(is_unreplicated);
            let is_other = waits_for.is_some_and(|waits_for| waits_for != member);
            let begins_anew = match () {
                () if was_granted => !matches!(has(member), Has::Hold),
                () if is_other => matches!(has(member), Has::Trace),
                () => false,
            };
            if begins_anew {
                anew.push(Anew { member, is_given_back: was_granted });
            }
        }
        anew
    }
}

/// How far a writer is from stopping new readers. A lock of several members stops none.
#[derive(Clone, Copy, Default)]
struct WriterIntent {
    /// The lock is one whose waiting writer stops readers.
    stops_readers: bool,
    /// When the writer's `PATIENCE` began: with the first refusal, and after an attempt that told the server, with the
    /// refusal that follows the next wake-up. So readers that a release wakes can acquire together, although writers
    /// still wait. `None`: the writer was not refused, never stops readers, or has told the server and was not woken
    /// since.
    since: Option<Moment>,
    /// An attempt of this call perhaps told the server to stop new readers.
    is_shown: bool,
    /// The last attempt told the server to stop new readers.
    tells: bool,
}

impl WriterIntent {
    /// Records that an attempt was refused.
    fn refused(&mut self, at: Moment) {
        if self.stops_readers && !self.tells {
            self.since.get_or_insert(at);
        }
    }

    /// Returns how long the writer still lets new readers in. `None`: the call need not attempt at the end of this
    /// time.
    fn left(self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        let since = self.since?; // usually `None`, and then the clock is not read
        Some(PATIENCE.saturating_sub(now().since(since)))
    }

    /// Returns what the next attempt asks the server to do if another owner holds the lock.
    fn if_held(&mut self, now: impl FnOnce() -> Moment) -> IfHeld {
        self.tells = self.left(now).is_some_and(|left| left.is_zero());
        if self.tells {
            self.since = None;
            self.is_shown = true;
        }
        match *self {
            Self { tells: true, .. } => IfHeld::BlockReaders,
            Self { is_shown: true, .. } => IfHeld::KeepBlocking,
            _ => IfHeld::Queue,
        }
    }
}

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

/// What a call does if another owner holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// The call does not wait.
    Try,
    /// The owner already holds the lock, so the call waits in no queue.
    ReEntry,
    Wait,
}

/// Where a call waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// The member in whose queue the call stands.
    pub(crate) member: usize,
    /// A release of this member wakes the call in its queue. False if the call's place in a server queue has moved to
    /// another channel.
    pub(crate) is_woken: bool,
}

#[derive(Debug)]
pub(crate) enum Next {
    /// The call has the lock.
    Done,
    /// Another owner holds the lock, and the call does not wait.
    Busy,
    Fail(Fault),
    /// The call pauses, and makes another round.
    Retry(Fault),
    /// The call waits on in its queue.
    Stay(Reason),
    /// The call leaves its queue, if it stands in one, and joins the queue of this member.
    MoveTo(usize, Reason),
}

/// Why a call waits.
#[derive(Debug)]
pub(crate) enum Reason {
    /// Another owner holds the member. Its lease lasts at most for this time, if the time is known.
    Held(Option<Duration>),
    Fault(Fault),
}

/// Decides what a call does after a round. `waiting`: `None` for a call that stands in no queue.
pub(crate) fn next(round: Round, waiting: Option<Waiting>, kind: CallKind) -> Next {
    match (round, waiting) {
        (Round::Granted, _) => Next::Done,
        (Round::Refused { .. }, _) if kind == CallKind::Try => Next::Busy,
        (Round::Refused { member, left }, Some(waiting)) if waiting.member == member && waiting.is_woken => {
            Next::Stay(Reason::Held(left))
        }
        // The call stands in no queue, in that of another member, or in one that no release wakes any more. So it joins
        // the queue of this member.
        (Round::Refused { member, left }, _) => Next::MoveTo(member, Reason::Held(left)),
        (Round::Failed { fault, .. }, None) if kind != CallKind::Wait => Next::Retry(fault),
        (Round::Failed { fault, .. }, _) if !fault.is_transient() => Next::Fail(fault),
        (Round::Failed { member, fault }, Some(waiting)) if waiting.member == member => {
            Next::Stay(Reason::Fault(fault))
        }
        // The call leaves the queue of any other member. If it reported this fault there, the waiters for that member
        // would pause, and fail, because of a server that they do not need.
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
            (refused(0), None, ReEntry, "move to 0: held"), // the hold to re-enter is gone
            (refused(0), None, Wait, "move to 0: held"),
            (refused(0), stands, Wait, "stay: held"),
            (refused(0), deaf, Wait, "move to 0: held"),
            (refused(1), stands, Wait, "move to 1: held"),
            (failed(0, Broken), None, Try, "retry"),
            (failed(0, Broken), None, ReEntry, "retry"),
            (failed(0, Broken), None, Wait, "move to 0: a fault"),
            (failed(0, Permission), None, Try, "retry"), // `Tries::again` ends the call at once
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

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);

    /// The answers that one member can give. `None`: the call did not ask the member.
    fn answers() -> [Option<Answer>; 7] {
        let until = NOW.plus(Duration::from_secs(10));
        let fault = |kind| Some(Answer::Failed(Fault::new(kind, Sent::Unknown, "a fault")));
        [
            None,
            Some(Answer::Granted { until, leaves_permits: false }),
            Some(Answer::Granted { until: NOW, leaves_permits: false }), // the lease has ended already
            Some(Answer::Gone),
            Some(Answer::Held(LEFT)),
            fault(FaultKind::Broken),
            fault(FaultKind::TooFewReplicas { acknowledged: 0, wanted: 1 }),
        ]
    }

    fn each_of<T: Clone>(members: usize, of: &[T]) -> Vec<Vec<T>> {
        let mut all = vec![Vec::new()];
        for _ in 0..members {
            all = all
                .iter()
                .flat_map(|begun| of.iter().map(|one| [&begun[..], std::slice::from_ref(one)].concat()))
                .collect();
        }
        all
    }

    /// Every round of up to three members, whatever the server has of them.
    #[test]
    fn a_round_without_a_quorum_keeps_nothing_that_was_granted() {
        let mut seen = [0; 4];
        for (members, quorum) in [(1, 1), (2, 2), (3, 3), (3, 2)] {
            for answers in each_of(members, &answers()) {
                for has in each_of(members, &[Has::Hold, Has::Trace, Has::Nothing]) {
                    for waits_for in [None, Some(0), Some(members - 1)] {
                        let mut call = Call::new(members, quorum, false);
                        let given = answers.iter().cloned().enumerate();
                        let given = given.filter_map(|(member, answer)| Some((member, answer?)));
                        let judged = call.judge(given, waits_for, |member| has[member], NOW);
                        if let [Some(answer)] = &answers[..] {
                            let is_granted = Call::new(1, 1, false).is_granted_alone(answer, NOW);
                            assert_eq!(is_granted, matches!(judged.round, Some(Round::Granted)));
                        }
                        check_round(&call, &answers, &has, waits_for, &judged);
                        seen[match judged.round {
                            None => 0,
                            Some(Round::Granted) => 1,
                            Some(Round::Refused { .. }) => 2,
                            Some(Round::Failed { .. }) => 3,
                        }] += 1;
                    }
                }
            }
        }
        assert!(seen.iter().all(|&rounds| rounds > 1_000), "{seen:?}");
    }

    fn check_round(
        call: &Call,
        answers: &[Option<Answer>],
        has: &[Has],
        waits_for: Option<usize>,
        Judged { round, anew, .. }: &Judged,
    ) {
        let begins_anew: Vec<usize> = anew.iter().map(|anew| anew.member).collect();
        let is_given_back = |member| anew.contains(&Anew { member, is_given_back: true });
        let is = |member: usize, wanted: fn(&Answer) -> bool| answers[member].as_ref().is_some_and(wanted);
        let lasts =
            |member| is(member, |answer| matches!(answer, Answer::Granted { until, .. } if *until > NOW));
        let all = 0..answers.len();
        let is_granted = all.clone().filter(|&member| lasts(member)).count() >= call.quorum;
        let gone = all.clone().filter(|&member| is(member, |answer| matches!(answer, Answer::Gone)));
        let gone = gone.collect::<Vec<_>>();
        assert_eq!(matches!(round, Some(Round::Granted)), is_granted);
        if is_granted || !gone.is_empty() {
            assert_eq!((round.is_none(), &gone[..]), (!is_granted, &begins_anew[..]));
            assert!(
                !anew.iter().any(|anew| anew.is_given_back),
                "what was granted is held, or attempted again"
            );
            return;
        }
        let may_have = |answer: &Answer| match answer {
            Answer::Granted { .. } => true,
            Answer::Failed(fault) => matches!(fault.kind, FaultKind::TooFewReplicas { .. }),
            _ => false,
        };
        for member in all.clone() {
            assert_eq!(call.granted_until(member), None);
            let is_held = matches!(has[member], Has::Hold);
            assert_eq!(is_given_back(member), is(member, may_have) && !is_held);
            assert!(!begins_anew.contains(&member) || !is_held, "it would wait for itself");
        }
        match round {
            Some(Round::Refused { member, left }) => {
                assert_eq!(*left, LEFT);
                assert!(is(*member, |answer| matches!(answer, Answer::Held(_))));
                let kept =
                    waits_for.filter(|&awaited| is(awaited, |answer| matches!(answer, Answer::Held(_))));
                assert_eq!(kept.unwrap_or(*member), *member, "it goes on waiting for the same member");
                for other in all.filter(|other| other != member && matches!(has[*other], Has::Trace)) {
                    assert!(begins_anew.contains(&other), "it keeps a place only where it waits");
                }
            }
            Some(Round::Failed { member, .. }) => {
                let is_fault = is(*member, |answer| matches!(answer, Answer::Failed(_)));
                assert!(
                    is_fault || !answers.iter().flatten().any(|answer| matches!(answer, Answer::Failed(_)))
                );
                assert!(!is_fault || call.silent == Some(*member), "it is attempted first next time");
            }
            _ => unreachable!("it is handled above"),
        }
    }

    /// The call begins anew after a round that was granted a member, and then that member is gone, or another owner has
    /// it.
    #[test]
    fn what_an_earlier_round_was_granted_does_not_count_after_another_answer() {
        let granted = || Answer::Granted { until: NOW.plus(Duration::from_secs(10)), leaves_permits: false };
        for answer in [Answer::Gone, Answer::Held(LEFT)] {
            let mut call = Call::new(3, 2, false);
            let anew = call.judge([(0, granted()), (1, Answer::Gone)], None, |_| Has::Hold, NOW);
            assert!(anew.round.is_none() && call.granted_until(0).is_some());
            let judged = call.judge([(0, answer), (1, granted())], None, |_| Has::Trace, NOW);
            assert!(!matches!(judged.round, Some(Round::Granted)), "only one member has it");
        }
    }

    #[test]
    fn a_silent_member_is_attempted_first_and_once() {
        let mut call = Call::new(3, 3, false);
        let fault = Fault::new(FaultKind::TimedOut, Sent::Unknown, "a fault");
        call.judge([(1, Answer::Failed(fault))], None, |_| Has::Nothing, NOW);
        assert_eq!(call.order().collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(call.order().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_call_pauses_after_rounds_that_gave_back_what_they_were_granted() {
        let until = NOW.plus(Duration::from_secs(10));
        let split = || [(0, Answer::Granted { until, leaves_permits: false }), (1, Answer::Held(None))];
        let is_split = |call: &mut Call| call.judge(split(), None, |_| Has::Trace, NOW).is_split;
        let mut all = Call::new(2, 2, false);
        let rounds: Vec<_> = (0..5).map(|_| is_split(&mut all)).collect();
        assert_eq!(
            rounds,
            [false, false, false, true, true],
            "the order of the members prevents most splits"
        );
        all.judge([(0, Answer::Held(None))], None, |_| Has::Nothing, NOW);
        assert!(!is_split(&mut all), "it counts rounds in a row");
        assert!(is_split(&mut Call::new(3, 2, false)));
    }

    #[test]
    fn a_writer_stops_readers_after_its_patience_and_again_after_a_wake_up() {
        let refused =
            |call: &mut Call, at| drop(call.judge([(0, Answer::Held(None))], None, |_| Has::Trace, at));
        let mut writer = Call::new(1, 1, true);
        assert_eq!((writer.if_held(|| NOW), writer.patience_left(|| NOW)), (IfHeld::Queue, None));
        refused(&mut writer, NOW);
        let later = NOW.plus(PATIENCE);
        assert_eq!(writer.patience_left(|| NOW), Some(PATIENCE));
        assert_eq!(writer.if_held(|| later.minus(Duration::from_nanos(1))), IfHeld::Queue);
        assert!(!writer.is_shown());
        assert_eq!(writer.if_held(|| later), IfHeld::BlockReaders);
        refused(&mut writer, later);
        assert_eq!((writer.is_shown(), writer.patience_left(|| later)), (true, None));
        // A release woke the writer. For another `PATIENCE`, it does not block readers anew, so the readers that the
        // same release woke can acquire.
        assert_eq!(writer.if_held(|| later), IfHeld::KeepBlocking);
        refused(&mut writer, later);
        assert_eq!(writer.if_held(|| later.plus(PATIENCE)), IfHeld::BlockReaders);
        let mut reader = Call::new(1, 1, false);
        refused(&mut reader, NOW);
        assert_eq!(reader.if_held(|| later), IfHeld::Queue);
    }
}
