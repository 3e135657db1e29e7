//! The most that the server can have for a grant, computed from the newest answer and from the acquires that were not
//! answered.
//!
//! A connection runs commands in the order in which they were sent. So an answer also says of each earlier command on
//! its connection: it has run, or never will. On another connection, a command certainly runs later only if it was sent
//! after the answer came. So commands need not wait for each other.
//!
//! Only a first acquire creates a hold, so an undo waits only for copies of first acquires. A late copy of a re-entry
//! changes a count above zero. Nothing relies on that count: the last release sets it to zero.

use smallvec::SmallVec;

use crate::base::fault::Sent;

/// The number of a connection. No two connections of a client have the same one.
type ConnectionNumber = u64;

/// The place of a command among those of its grant, counted from one.
pub(crate) type Order = u64;

/// An acquire that was not answered, on a connection on which nothing later was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Open {
    connection: ConnectionNumber,
    order: Order,
    want: u32,
}

/// What is known of an attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// The server has at least what was wanted.
    Granted,
    /// The server has this count. A place in a queue or an intent counts as one.
    Has(u32),
    /// The attempt changed nothing.
    Unchanged,
    /// The server refused the attempt. Perhaps a part of its script ran, if the attempt `leaves_trace`.
    Refused { leaves_trace: bool },
    /// The attempt found the connection ended, so no copy of it is under way.
    NotSent,
    /// Nobody knows whether the attempt ran, or will still run.
    Unknown,
}

impl Answer {
    /// What is known of an attempt that failed.
    pub(crate) const fn of_fault(sent: Sent, leaves_trace: bool) -> Self {
        match sent {
            Sent::No => Self::NotSent,
            Sent::Refused => Self::Refused { leaves_trace },
            Sent::Unknown => Self::Unknown,
        }
    }
}

/// A release that is about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Release {
    pub(crate) order: Order,
    pub(crate) keep: u32,
}

/// What the answers to releases say about a loss. A full release lowers the count to zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Full {
    /// The full releases that are under way.
    under_way: SmallVec<[Order; 1]>,
    /// A full release released the hold.
    has_released: bool,
    /// The first full release that perhaps ran, and whose answer nobody learns.
    perhaps_ran: Option<Order>,
    /// The first release that found nothing.
    found_nothing: Option<Order>,
}

/// The most that the server can have. An attempt is recorded before it is sent, so the count is right wherever a future
/// is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Copies {
    /// The most that the server had after the newest answer, except for what open acquires add.
    settled: u32,
    /// The command that was answered last. An order of zero: `settled` comes from commands whose order on the server is
    /// unknown.
    settled_by: (ConnectionNumber, Order),
    /// The last command that was sent before the newest answer came.
    settled_at: Order,
    open: SmallVec<[Open; 1]>,
    sent: Order,
    /// The last release that was answered.
    undone_by: Order,
    full: Full,
    /// The server had nothing, and refused every attempt that was sent since then.
    was_only_refused: bool,
}

impl Copies {
    /// Returns the most that the server can have. A place in a queue or an intent counts as one.
    pub(crate) fn at_most(&self) -> u32 {
        self.open.iter().map(|open| open.want).fold(self.settled, u32::max)
    }

    /// Whether the server has one hold at most, and every command about it was answered.
    pub(crate) fn is_certainly_one(&self) -> bool {
        self.settled == 1
            && self.open.is_empty()
            && self.full.under_way.is_empty()
            && self.full.perhaps_ran.is_none()
    }

    /// Whether a first acquire is unanswered, so that it or a copy of it can still run.
    pub(crate) fn may_run_late(&self) -> bool {
        self.open.iter().any(|open| open.want == 1)
    }

    /// Whether a first acquire on this connection is unanswered, so that it or a copy of it can still run.
    pub(crate) fn may_run_late_on(&self, connection: ConnectionNumber) -> bool {
        self.open.iter().any(|open| open.want == 1 && open.connection == connection)
    }

    /// Whether the server refused every attempt. So most likely it has nothing, whatever the count says.
    pub(crate) fn was_only_refused(&self) -> bool {
        self.was_only_refused && self.open.is_empty()
    }

    /// Whether the server can have more than `keep`, and has answered no release since. False while an undo is repeated
    /// only because a late copy of an acquire can run.
    pub(crate) fn owes_release(&self, keep: u32) -> bool {
        let is_owed = |open: &Open| open.want > keep && open.order > self.undone_by;
        self.settled > keep || self.open.iter().any(is_owed)
    }

    /// Records an attempt to hold `want` times that is about to be sent.
    pub(crate) fn attempts(&mut self, connection: ConnectionNumber, want: u32) -> Order {
        let order = self.next();
        self.open.push(Open { connection, order, want });
        order
    }

    /// Records that the attempt is about to be sent again, perhaps on another connection. The command `before`
    /// acquired nothing, and will not.
    pub(crate) fn attempts_again(&mut self, before: Order, connection: ConnectionNumber, want: u32) -> Order {
        self.open.retain(|open| open.order != before);
        self.attempts(connection, want)
    }

    /// Records how an attempt on this connection ended.
    pub(crate) fn ends(&mut self, connection: ConnectionNumber, order: Order, answer: Answer) {
        let found = self.open.iter().position(|open| open.order == order);
        // If the attempt is not open, a later command on its connection was answered first. That answer said what the
        // server has, so this one is ignored.
        let Some(at) = found.filter(|_| !matches!(answer, Answer::Unknown)) else { return };
        let want = self.open.remove(at).want;
        match answer {
            Answer::Unknown => {}
            Answer::Granted => self.answered(connection, order, |before| before.max(want)),
            Answer::Unchanged => self.answered(connection, order, |before| before),
            Answer::Has(count) => self.has(connection, order, count),
            Answer::Refused { leaves_trace } => {
                let was_only_refused = self.open.is_empty() && (self.was_only_refused || self.settled == 0);
                self.answered(connection, order, |before| before.max(leaves_trace.into()));
                self.was_only_refused = was_only_refused;
            }
            // The call counts as not sent. In theory, the server still ran it before the connection ended, so the count
            // includes it. But no copy of it can arrive later, because that connection has ended.
            Answer::NotSent => {
                self.settled = self.settled.max(want);
                (self.settled_by, self.settled_at) = ((connection, 0), self.sent);
            }
        }
    }

    /// Records a release to this count that is about to be sent.
    pub(crate) fn releases(&mut self, keep: u32) -> Release {
        let order = self.next();
        self.full.under_way.extend((keep == 0).then_some(order));
        Release { order, keep }
    }

    /// Records that the server certainly did not run the release.
    pub(crate) fn not_released(&mut self, release: Release) {
        self.full.under_way.retain(|order| *order != release.order);
    }

    /// Records that nobody learns the answer to the release.
    pub(crate) fn perhaps_released(&mut self, release: Release) {
        if release.keep == 0 {
            self.not_released(release);
            self.full.perhaps_ran.get_or_insert(release.order);
        }
    }

    /// Records the answer to a release on this connection. `is_gone`: the server had nothing.
    pub(crate) fn released(&mut self, connection: ConnectionNumber, release: Release, is_gone: bool) {
        let Release { order, keep } = release;
        self.undone_by = self.undone_by.max(order);
        let (settled_on, settled_order) = self.settled_by;
        if connection != settled_on || order > settled_order {
            self.has(connection, order, if is_gone { 0 } else { keep });
        }
        self.full.under_way.retain(|other| *other != order);
        if is_gone {
            let first = self.full.found_nothing.get_or_insert(order);
            *first = order.min(*first);
        } else {
            self.full.has_released |= keep == 0;
        }
    }

    /// Whether a release found nothing, and no other release can have ended the hold: none is known to have ended it,
    /// and no earlier one lost its answer. A release that is under way can still say that it ended the hold: see
    /// [`expects_answer`](Self::expects_answer).
    pub(crate) fn found_nothing(&self) -> bool {
        let Full { has_released, perhaps_ran, found_nothing, .. } = self.full;
        let is_first = |found: Order| perhaps_ran.is_none_or(|ran| ran > found);
        !has_released && found_nothing.is_some_and(is_first)
    }

    /// Whether a full release is under way. Two threads can swap their releases between here and the connection, so its
    /// order does not say whether it ran before another one.
    pub(crate) fn expects_answer(&self) -> bool {
        !self.full.under_way.is_empty()
    }

    /// Records that the server can have this count although an answer said less: the answered command overtook an
    /// acquire that was sent late.
    pub(crate) fn can_have(&mut self, count: u32) {
        self.settled = self.settled.max(count);
        (self.settled_by, self.settled_at) = ((0, 0), self.sent);
    }

    /// Stops waiting for copies: from here on, the server is taken to have at most this count.
    pub(crate) fn forgets_above(&mut self, keep: u32) {
        self.settled = self.at_most().min(keep);
        self.open.clear();
    }

    /// Returns the last command that was sent.
    pub(crate) const fn last(&self) -> Order {
        self.sent
    }

    #[cfg(test)]
    pub(super) fn each_order(&mut self, change: &mut dyn FnMut(&mut Order)) {
        for order in [&mut self.settled_by.1, &mut self.settled_at, &mut self.sent, &mut self.undone_by] {
            change(order);
        }
        self.open.iter_mut().for_each(|open| change(&mut open.order));
        self.full.under_way.iter_mut().for_each(&mut *change);
        self.full.perhaps_ran.iter_mut().chain(&mut self.full.found_nothing).for_each(change);
    }

    fn next(&mut self) -> Order {
        self.sent += 1;
        self.sent
    }

    /// Records the answer to a command that left exactly this count.
    fn has(&mut self, connection: ConnectionNumber, order: Order, count: u32) {
        self.answered(connection, order, |_| count);
        self.open.retain(|open| open.want == 1 || open.order > order);
    }

    /// Records the answer to a command. `left`: computes the most that the command left from the most that the server
    /// had before.
    fn answered(&mut self, connection: ConnectionNumber, order: Order, left: impl FnOnce(u32) -> u32) {
        let mut before = self.settled;
        self.open.retain(|open| {
            let has_ended = open.connection == connection && open.order < order;
            if has_ended {
                before = before.max(open.want);
            }
            !has_ended
        });
        let (settled_on, settled_order) = self.settled_by;
        let is_on_same = settled_on == connection && (1..order).contains(&settled_order);
        let count = left(before);
        // If the answer came on another connection, the server perhaps ran this command before those that were answered
        // earlier. Then the greater count stays.
        let is_newest = is_on_same || order > self.settled_at;
        self.settled = if is_newest { count } else { self.settled.max(count) };
        self.settled_by = (connection, if is_newest { order } else { 0 });
        self.settled_at = self.sent;
        self.was_only_refused = false;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;

    /// The numbers of the two connections in these tests.
    const A: u64 = 7;
    const B: u64 = 8;

    /// What is known: the most on the server, whether a copy can run late, and whether a full release is owed.
    fn known(copies: &Copies) -> (u32, bool, bool) {
        (copies.at_most(), copies.may_run_late(), copies.owes_release(0))
    }

    /// Sends an attempt, and ends it with this answer.
    fn attempt(copies: &mut Copies, connection: u64, want: u32, answer: Answer) {
        let order = copies.attempts(connection, want);
        copies.ends(connection, order, answer);
    }

    fn release(copies: &mut Copies, connection: u64, keep: u32, is_gone: bool) {
        let release = copies.releases(keep);
        copies.released(connection, release, is_gone);
    }

    #[test]
    fn an_attempt_counts_from_before_it_is_sent() {
        let mut copies = Copies::default();
        assert_eq!(known(&copies), (0, false, false));
        let order = copies.attempts(A, 1);
        assert_eq!(known(&copies), (1, true, true));
        copies.ends(A, order, Answer::Granted);
        assert_eq!((known(&copies), copies.is_certainly_one()), ((1, false, true), true));
        let _unanswered = copies.attempts(A, 2);
        assert_eq!((known(&copies), copies.is_certainly_one()), ((2, false, true), false), "a re-entry");
    }

    /// What an attempt leaves on the server, after nothing, after a hold, and after an acquire on the same connection
    /// that was not answered.
    #[test]
    fn each_answer_says_what_the_server_can_have() {
        let table = [
            (1, Answer::Granted, [1, 1, 1]),
            (2, Answer::Granted, [2, 2, 2]),
            (1, Answer::Has(0), [0, 0, 0]),
            (1, Answer::Has(1), [1, 1, 1]),
            (2, Answer::Unchanged, [0, 1, 1]),
            (2, Answer::Refused { leaves_trace: false }, [0, 1, 1]),
            (1, Answer::Refused { leaves_trace: true }, [1, 1, 1]),
            (2, Answer::NotSent, [2, 2, 2]),
        ];
        for (want, answer, expected) in table {
            let [nothing, mut held, mut unanswered] = [(); 3].map(|()| Copies::default());
            attempt(&mut held, A, 1, Answer::Granted);
            unanswered.attempts(A, 1);
            let left = [nothing, held, unanswered].map(|mut copies| {
                attempt(&mut copies, A, want, answer);
                copies.at_most()
            });
            assert_eq!(left, expected, "{want} {answer:?}");
        }
    }

    #[test]
    fn an_answer_closes_what_was_sent_before_on_its_connection_only() {
        let mut copies = Copies::default();
        copies.attempts(A, 1);
        attempt(&mut copies, B, 1, Answer::Has(0));
        assert_eq!(known(&copies), (1, true, true), "the first one can still run");
        assert_eq!((copies.may_run_late_on(A), copies.may_run_late_on(B)), (true, false));
        release(&mut copies, B, 0, true);
        assert_eq!(known(&copies), (1, true, false), "the undo has to be repeated");
        release(&mut copies, A, 0, true);
        assert_eq!(known(&copies), (0, false, false));
    }

    #[test]
    fn an_answer_that_comes_after_a_later_one_is_ignored() {
        let mut copies = Copies::default();
        let acquire = copies.attempts(A, 1);
        let [partial, full] = [1, 0].map(|keep| copies.releases(keep));
        copies.released(A, full, false);
        copies.ends(A, acquire, Answer::Granted);
        copies.released(A, partial, false);
        assert_eq!(known(&copies), (0, false, false));
    }

    #[test]
    fn a_release_that_was_sent_before_the_acquire_was_answered_settles_all_on_the_same_connection() {
        let mut copies = Copies::default();
        let acquire = copies.attempts(A, 1);
        let behind = copies.releases(0);
        copies.ends(A, acquire, Answer::Granted);
        assert_eq!(known(&copies), (1, false, true));
        copies.released(A, behind, false);
        assert_eq!(known(&copies), (0, false, false));
    }

    #[test]
    fn an_answer_on_another_connection_settles_only_what_was_answered_before_it_was_sent() {
        let mut copies = Copies::default();
        let acquire = copies.attempts(A, 1);
        let beside = copies.releases(0);
        copies.ends(A, acquire, Answer::Granted);
        copies.released(B, beside, true);
        assert_eq!(known(&copies), (1, false, true), "perhaps the release ran first");
        release(&mut copies, B, 0, false);
        assert_eq!(known(&copies), (0, false, false));
    }

    #[test]
    fn a_release_undoes_only_what_was_sent_before_it() {
        let mut copies = Copies::default();
        let early = copies.releases(0);
        copies.attempts(A, 1);
        copies.released(B, early, true);
        assert_eq!(known(&copies), (1, true, true));
        release(&mut copies, B, 0, true);
        assert!(!copies.owes_release(0));
        copies.attempts(B, 1);
        assert!(copies.owes_release(0) && !copies.owes_release(1), "what is wanted is not owed");
    }

    #[test]
    fn a_partial_release_leaves_the_rest_owed() {
        let mut copies = Copies::default();
        attempt(&mut copies, A, 1, Answer::Granted);
        copies.attempts(A, 2);
        assert_eq!((copies.owes_release(2), copies.owes_release(1)), (false, true));
        release(&mut copies, B, 1, false);
        assert_eq!((copies.at_most(), copies.owes_release(1), copies.owes_release(0)), (1, false, true));
    }

    #[test]
    fn an_attempt_that_is_sent_on_can_run_late_only_where_it_was_sent_last() {
        let mut copies = Copies::default();
        let first = copies.attempts(A, 1);
        let hop = copies.attempts_again(first, B, 1);
        assert_eq!((copies.may_run_late_on(A), copies.may_run_late_on(B)), (false, true));
        copies.ends(B, hop, Answer::Granted);
        assert_eq!(known(&copies), (1, false, true));
        // The answer to a release closes the acquire. After that, a redirection sends the acquire on to the other
        // connection.
        let acquire = copies.attempts(A, 1);
        release(&mut copies, A, 0, false);
        let hop = copies.attempts_again(acquire, B, 1);
        assert_eq!(known(&copies), (1, true, true));
        copies.ends(B, hop, Answer::Has(0));
        assert_eq!(known(&copies), (0, false, false));
    }

    #[test]
    fn an_attempt_that_was_not_sent_is_released_and_no_copy_of_it_is_waited_for() {
        let mut copies = Copies::default();
        copies.attempts(A, 1);
        attempt(&mut copies, A, 1, Answer::NotSent);
        assert_eq!(known(&copies), (1, true, true), "the other one can still run");
        let mut copies = Copies::default();
        attempt(&mut copies, A, 1, Answer::NotSent);
        assert_eq!(known(&copies), (1, false, true));
        release(&mut copies, B, 0, true);
        assert_eq!(known(&copies), (0, false, false));
    }

    #[test]
    fn refused_attempts_that_leave_a_trace_are_told_from_others() {
        let refused = Answer::Refused { leaves_trace: true };
        let mut copies = Copies::default();
        for _ in 0..2 {
            attempt(&mut copies, A, 1, refused);
            assert_eq!((copies.at_most(), copies.was_only_refused()), (1, true));
        }
        attempt(&mut copies, A, 1, Answer::Has(1));
        attempt(&mut copies, A, 1, refused);
        assert!(!copies.was_only_refused(), "it has a place");
        let mut copies = Copies::default();
        attempt(&mut copies, A, 1, refused);
        copies.attempts(A, 1);
        assert!(!copies.was_only_refused(), "one is not answered");
        attempt(&mut copies, A, 1, refused);
        assert!(!copies.was_only_refused(), "perhaps it was granted");
    }

    /// How a release ended.
    #[derive(Clone, Copy)]
    enum End {
        Nothing,
        Something,
        NotRun,
        Unknown,
    }

    /// Sends releases that keep this many, and ends them in this order. Returns after which ends the hold was certainly
    /// lost.
    fn losses<const N: usize>(keep: [u32; N], ends: [(usize, End); N]) -> [bool; N] {
        let mut copies = Copies::default();
        attempt(&mut copies, A, 2, Answer::Granted);
        let releases = keep.map(|keep| copies.releases(keep));
        ends.map(|(index, end)| {
            match end {
                End::Nothing => copies.released(A, releases[index], true),
                End::Something => copies.released(A, releases[index], false),
                End::NotRun => copies.not_released(releases[index]),
                End::Unknown => copies.perhaps_released(releases[index]),
            }
            copies.found_nothing() && !copies.expects_answer()
        })
    }

    #[test]
    fn a_hold_is_lost_if_no_release_can_have_ended_it() {
        use End::{NotRun, Nothing, Something, Unknown};
        assert_eq!(losses([0], [(0, Nothing)]), [true]);
        assert_eq!(losses([1], [(0, Nothing)]), [true], "nested");
        assert_eq!(losses([0], [(0, Something)]), [false]);
        for order in [[0, 1], [1, 0]] {
            assert_eq!(losses([0, 0], order.map(|index| (index, Nothing))), [false, true], "{order:?}");
            assert!(losses([1, 0], order.map(|index| (index, Nothing)))[1], "{order:?}");
        }
        assert_eq!(losses([0, 0], [(1, Nothing), (0, Something)]), [false, false]);
        assert_eq!(
            losses([0, 0], [(0, Nothing), (1, Something)]),
            [false, false],
            "they ran in another order"
        );
        assert_eq!(
            losses([0, 0], [(0, Something), (1, Nothing)]),
            [false, false],
            "an undo that is repeated"
        );
        assert_eq!(losses([1, 0], [(0, Something), (1, Nothing)]), [false, true]);
        assert_eq!(losses([0, 0], [(0, Unknown), (1, Nothing)]), [false, false], "a reply that is lost");
        assert_eq!(losses([0, 0], [(1, Nothing), (0, Unknown)]), [false, false]);
        assert_eq!(
            losses([0, 0], [(0, Nothing), (1, Unknown)]),
            [false, true],
            "the later one hardly ran first"
        );
        assert_eq!(losses([0, 0], [(0, NotRun), (1, Nothing)]), [false, true]);
        assert_eq!(losses([0, 0], [(0, Nothing), (1, NotRun)]), [false, true]);
    }

    #[test]
    fn a_hold_is_certain_only_while_no_full_release_is_under_way() {
        let mut copies = Copies::default();
        attempt(&mut copies, A, 2, Answer::Granted);
        release(&mut copies, A, 1, false);
        assert!(copies.is_certainly_one());
        let [refused, unanswered] = [(); 2].map(|()| copies.releases(0));
        copies.not_released(refused);
        assert!(!copies.is_certainly_one());
        copies.not_released(unanswered);
        assert!(copies.is_certainly_one());
    }

    #[test]
    fn nobody_waits_for_copies_that_are_forgotten() {
        let mut copies = Copies::default();
        copies.attempts(A, 1);
        copies.attempts(A, 3);
        copies.forgets_above(1);
        assert_eq!((copies.at_most(), copies.may_run_late()), (1, false));
        copies.forgets_above(0);
        assert_eq!(copies.at_most(), 0);
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Kind {
        Acquire(u32),
        Release(u32),
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Ran {
        Granted,
        Has(u32),
        Released { is_gone: bool },
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Sent {
        connection: u64,
        kind: Kind,
        order: Order,
        release: Option<Release>,
        /// `None`: the server has not run it.
        ran: Option<Ran>,
        /// A future waits for the answer to the command.
        is_awaited: bool,
    }

    /// A client, the server, and what is under way on two connections.
    #[derive(Clone, Default, Debug, PartialEq, Eq, Hash)]
    struct World {
        copies: Copies,
        count: u32,
        /// Another client has the lock.
        is_taken: bool,
        under_way: VecDeque<Sent>,
        sent: usize,
        /// An unanswered re-entry no longer counts, because an answer on the other connection said the count.
        ignores_reentry: bool,
    }

    impl World {
        fn sends(&mut self, connection: u64, kind: Kind) {
            let (order, release) = match kind {
                Kind::Acquire(want) => (self.copies.attempts(connection, want), None),
                Kind::Release(keep) => {
                    let release = self.copies.releases(keep);
                    (release.order, Some(release))
                }
            };
            self.sent += 1;
            self.under_way.push_back(Sent { connection, kind, order, release, ran: None, is_awaited: true });
        }

        fn runs(&mut self, at: usize) {
            let ran = match self.under_way[at].kind {
                Kind::Acquire(1) if self.count == 0 && self.is_taken => Ran::Has(0),
                Kind::Acquire(want) if want > 1 && self.count == 0 => Ran::Has(0),
                Kind::Acquire(want) => {
                    self.count = self.count.max(want);
                    Ran::Granted
                }
                Kind::Release(keep) => {
                    let is_gone = self.count == 0;
                    self.count = self.count.min(keep);
                    Ran::Released { is_gone }
                }
            };
            self.under_way[at].ran = Some(ran);
            self.under_way.retain(|sent| sent.is_awaited || sent.ran.is_none());
        }

        fn is_answered(&mut self, at: usize) {
            let sent = self.under_way.remove(at).expect("it is under way");
            let reentries = |copies: &Copies| {
                let is_beside = |open: &&Open| open.want > 1 && open.connection != sent.connection;
                copies.open.iter().filter(is_beside).count()
            };
            let before = reentries(&self.copies);
            match (sent.ran.expect("the server ran it"), sent.release) {
                (Ran::Granted, _) => self.copies.ends(sent.connection, sent.order, Answer::Granted),
                (Ran::Has(count), _) => self.copies.ends(sent.connection, sent.order, Answer::Has(count)),
                (Ran::Released { is_gone }, Some(release)) => {
                    self.copies.released(sent.connection, release, is_gone);
                }
                (Ran::Released { .. }, None) => unreachable!("it was no release"),
            }
            self.ignores_reentry |= reentries(&self.copies) < before;
        }

        /// All worlds that one step leads to.
        fn next(&self, most: usize) -> Vec<Self> {
            let mut all = Vec::new();
            let mut add = |step: &dyn Fn(&mut Self)| {
                let mut next = self.clone();
                step(&mut next);
                all.push(next);
            };
            if self.sent < most {
                // The first command takes connection A: the connections are alike, so B first would only repeat the
                // same states.
                for connection in if self.sent == 0 { [A].as_slice() } else { &[A, B] } {
                    for kind in [Kind::Acquire(1), Kind::Acquire(2), Kind::Release(0), Kind::Release(1)] {
                        add(&|world| world.sends(*connection, kind));
                    }
                }
            }
            for (at, sent) in self.under_way.iter().enumerate() {
                let is_first = !self
                    .under_way
                    .iter()
                    .take(at)
                    .any(|earlier| earlier.connection == sent.connection && earlier.ran.is_none());
                match sent.ran {
                    None if is_first => add(&|world| world.runs(at)),
                    Some(_) if sent.is_awaited => add(&|world| world.is_answered(at)),
                    _ => {}
                }
                if sent.is_awaited {
                    add(&|world| match sent.ran {
                        None => world.under_way[at].is_awaited = false,
                        Some(_) => drop(world.under_way.remove(at)),
                    });
                }
            }
            add(&|world| (world.count, world.is_taken) = (0, !world.is_taken));
            all
        }

        fn check(&self) {
            let at_most = self.copies.at_most();
            let is_counted = if self.ignores_reentry { at_most > 0 } else { at_most >= self.count };
            assert!(self.count == 0 || is_counted, "more than {at_most}: {self:#?}");
            let can_create =
                |sent: &Sent| sent.kind == Kind::Acquire(1) && sent.ran.is_none() && self.count == 0;
            let is_known = self.copies.may_run_late() || !self.under_way.iter().any(can_create);
            assert!(is_known, "a copy can run: {self:#?}");
        }
    }

    /// Commands are sent in every order on two connections, and are run, answered and lost in every order. Another
    /// client can take the lock, and lose it.
    #[test]
    fn the_server_never_has_more_than_at_most() {
        let mut seen = HashSet::from([World::default()]);
        let mut open = vec![World::default()];
        while let Some(world) = open.pop() {
            world.check();
            open.extend(world.next(3).into_iter().filter(|next| seen.insert(next.clone())));
        }
        assert!(seen.len() > 10_000, "{} states", seen.len());
    }
}
