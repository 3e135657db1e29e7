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
        self.settled == 1 && self.open.is_empty()
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

    /// Records a release that is about to be sent.
    pub(crate) fn releases(&mut self) -> Order {
        self.next()
    }

    /// Records the answer to a release on this connection.
    pub(crate) fn released(&mut self, connection: ConnectionNumber, order: Order) {
        self.undone_by = self.undone_by.max(order);
        let (settled_on, settled_order) = self.settled_by;
        if connection != settled_on || order > settled_order {
            self.has(connection, order, 0);
        }
    }

    /// Records that the server can have this count although an answer said less: the answered command overtook an
    /// acquire that was sent late.
    pub(crate) fn can_have(&mut self, count: u32) {
        self.settled = self.settled.max(count);
        (self.settled_by, self.settled_at) = ((0, 0), self.sent);
    }

    /// Stops waiting for copies: from here on, the server is taken to have nothing.
    pub(crate) fn forgets(&mut self) {
        self.settled = 0;
        self.open.clear();
    }

    #[cfg(test)]
    pub(super) fn each_order(&mut self, change: &mut dyn FnMut(&mut Order)) {
        for order in [&mut self.settled_by.1, &mut self.settled_at, &mut self.sent, &mut self.undone_by] {
            change(order);
        }
        self.open.iter_mut().for_each(|open| change(&mut open.order));
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
