//! Whether the server can have a hold of a grant, computed from the newest answer and from the acquires that were not answered. A place
//! in a queue or an intent counts as a hold.
//!
//! A connection runs commands in the order in which they were sent. So an answer also says of each earlier command on
//! its connection: it has run, or never will. On another connection, a command certainly runs later only if it was sent
//! after the answer came. So commands need not wait for each other.
//!
//! Only a first acquire creates a hold. The commands of re-entries are not counted here.

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
}

/// What is known of an attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Granted,
    /// The server has something, or nothing.
    Has(bool),
    /// The attempt changed nothing.
    Unchanged,
    /// The server refused the attempt. Perhaps a part of its script ran, if the attempt `leaves_trace`.
    Refused {
        leaves_trace: bool,
    },
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

/// What the server can have. An attempt is recorded before it is sent, so this is right wherever a future is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Copies {
    /// The server could have a hold after the newest answer, except for what open acquires add.
    settled: bool,
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
    /// Whether the server can have something.
    pub(crate) fn may_exist(&self) -> bool {
        self.settled || !self.open.is_empty()
    }

    /// Whether the server can have something, and every acquire was answered.
    pub(crate) fn is_certainly_one(&self) -> bool {
        self.settled && self.open.is_empty()
    }

    /// Whether a first acquire is unanswered, so that it or a copy of it can still run.
    pub(crate) fn may_run_late(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a first acquire on this connection is unanswered, so that it or a copy of it can still run.
    pub(crate) fn may_run_late_on(&self, connection: ConnectionNumber) -> bool {
        self.open.iter().any(|open| open.connection == connection)
    }

    /// Whether the server refused every attempt. So most likely it has nothing, whatever the count says.
    pub(crate) fn was_only_refused(&self) -> bool {
        self.was_only_refused && self.open.is_empty()
    }

    /// Whether the server can have something, and has answered no release since. False while an undo is repeated only because a
    /// late copy of an acquire can run.
    pub(crate) fn owes_release(&self) -> bool {
        self.settled || self.open.iter().any(|open| open.order > self.undone_by)
    }

    /// Records an attempt that is about to be sent.
    pub(crate) fn attempts(&mut self, connection: ConnectionNumber) -> Order {
        let order = self.next();
        self.open.push(Open { connection, order });
        order
    }

    /// Records that the attempt is about to be sent again, perhaps on another connection. The command `before`
    /// acquired nothing, and will not.
    pub(crate) fn attempts_again(&mut self, before: Order, connection: ConnectionNumber) -> Order {
        self.open.retain(|open| open.order != before);
        self.attempts(connection)
    }

    /// Records how an attempt on this connection ended.
    pub(crate) fn ends(&mut self, connection: ConnectionNumber, order: Order, answer: Answer) {
        let found = self.open.iter().position(|open| open.order == order);
        // If the attempt is not open, a later command on its connection was answered first. That answer said what the
        // server has, so this one is ignored.
        let Some(at) = found.filter(|_| !matches!(answer, Answer::Unknown)) else { return };
        self.open.remove(at);
        match answer {
            Answer::Unknown => {}
            Answer::Granted => self.answered(connection, order, |_| true),
            Answer::Unchanged => self.answered(connection, order, |before| before),
            Answer::Has(is_there) => self.answered(connection, order, |_| is_there),
            Answer::Refused { leaves_trace } => {
                let was_only_refused = self.open.is_empty() && (self.was_only_refused || !self.settled);
                self.answered(connection, order, |before| before || leaves_trace);
                self.was_only_refused = was_only_refused;
            }
            // The call counts as not sent. In theory, the server still ran it before the connection ended, so it can have a hold. But no copy
            // can arrive later, because that connection has ended.
            Answer::NotSent => {
                self.settled = true;
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
            self.answered(connection, order, |_| false);
        }
    }

    /// Records that the server can have a hold although an answer said that it has none: the answered command overtook an acquire that was
    /// sent late.
    pub(crate) fn can_exist(&mut self) {
        self.settled = true;
        (self.settled_by, self.settled_at) = ((0, 0), self.sent);
    }

    /// Stops waiting for copies: from here on, the server is taken to have nothing.
    pub(crate) fn forgets(&mut self) {
        self.settled = false;
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

    /// Records the answer to a command. `left`: whether the server can have something after the command, from whether it could before.
    fn answered(&mut self, connection: ConnectionNumber, order: Order, left: impl FnOnce(bool) -> bool) {
        let mut before = self.settled;
        self.open.retain(|open| {
            let has_ended = open.connection == connection && open.order < order;
            before |= has_ended;
            !has_ended
        });
        let (settled_on, settled_order) = self.settled_by;
        let is_on_same = settled_on == connection && (1..order).contains(&settled_order);
        // If the answer came on another connection, the server perhaps ran this command before those that were answered
        // earlier. Then what they left can still be there.
        let is_newest = is_on_same || order > self.settled_at;
        self.settled = left(before) || !is_newest && self.settled;
        self.settled_by = (connection, if is_newest { order } else { 0 });
        self.settled_at = self.sent;
        self.was_only_refused = false;
    }
}
