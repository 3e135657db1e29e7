//! The calls that wait to be sent on a connection: group commit.
//!
//! While fewer than [`IN_FLIGHT`] writes of a connection wait for their replies, a call is sent at once by its own future: a task that is alone
//! waits for nobody. Otherwise the call waits in the outbox. When a reply comes, all calls that wait go out in one write, and those of
//! one script in one command (`groups.rs`). Databases call this group commit.
//!
//! This is pure: `server/sending.rs` sends.

mod groups;

use std::collections::VecDeque;

pub(crate) use groups::{Group, Mode, Piece, grouped};

/// How many writes can be in flight before calls wait. With fewer, a connection stands still for a part of each round
/// trip of a network. With more, fewer calls go out together.
const IN_FLIGHT: usize = 8;

/// The calls of one connection that wait to be sent.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    /// How many writes can be in flight.
    most: usize,
    in_flight: usize,
    /// A sender has taken calls, and has not yet handed them to the connection. Until then no other call may be sent:
    /// it would overtake them.
    is_writing: bool,
    /// A command timed out, and nobody knows yet whether the connection still works. So nothing is sent.
    is_held: bool,
    is_closed: bool,
    waiting: VecDeque<Waiting<T>>,
    last: Ticket,
}

#[derive(Debug)]
struct Waiting<T> {
    ticket: Ticket,
    call: T,
}

/// The number of a call that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Its future sends it now, and says [`Outbox::answered`] when the reply comes or when nobody waits for the reply any more.
    Now,
    /// It waits.
    Waits(Ticket),
    /// The connection is no longer used.
    Closed,
}

impl<T> Outbox<T> {
    /// `has_slots`: the keys of a command have to be in one slot. Then no call waits for others: most locks are in
    /// slots of their own, so nothing would go out together.
    pub(crate) const fn new(has_slots: bool) -> Self {
        Self {
            most: if has_slots { usize::MAX } else { IN_FLIGHT },
            in_flight: 0,
            is_writing: false,
            is_held: false,
            is_closed: false,
            waiting: VecDeque::new(),
            last: Ticket(0),
        }
    }

    /// Enters a call that is to be sent. `call` makes the value that waits, if the call has to wait.
    pub(crate) fn enter(&mut self, call: impl FnOnce() -> T) -> Entered {
        if self.is_closed {
            return Entered::Closed;
        }
        if self.can_write() && self.waiting.is_empty() {
            self.in_flight += 1;
            return Entered::Now;
        }
        self.last.0 += 1;
        self.waiting.push_back(Waiting { ticket: self.last, call: call() });
        Entered::Waits(self.last)
    }

    /// Records that a reply came to a write, or that nobody waits for the reply any more. True: the caller has to
    /// [take](Self::take) the calls that wait, and send them.
    #[must_use]
    pub(crate) fn answered(&mut self) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.begins()
    }

    /// Takes what waits, in its order.
    pub(crate) fn take(&mut self) -> Vec<T> {
        self.waiting.drain(..).map(|waiting| waiting.call).collect()
    }

    /// Records that the calls that were taken are handed to the connection. True: other calls have come meanwhile, and
    /// the caller has to see that they are taken and sent.
    #[must_use]
    pub(crate) fn written(&mut self) -> bool {
        self.is_writing = false;
        self.begins()
    }

    /// Puts calls that the server did not run in front of those that wait. If the connection is no longer used, returns them instead.
    pub(crate) fn put_back(&mut self, calls: Vec<T>) -> Vec<T> {
        if self.is_closed {
            return calls;
        }
        for call in calls.into_iter().rev() {
            self.last.0 += 1;
            self.waiting.push_front(Waiting { ticket: self.last, call });
        }
        Vec::new()
    }

    /// Withdraws the call of a caller that gives up. Returns the call if it still waited: then it is not sent.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> Option<T> {
        let at = self.waiting.iter().position(|waiting| waiting.ticket == ticket)?;
        self.waiting.remove(at).map(|waiting| waiting.call)
    }

    /// Sends nothing until it is known whether the connection still works.
    pub(crate) const fn hold(&mut self) {
        self.is_held = true;
    }

    /// Sends again after [`hold`](Self::hold): the connection works. True: as for [`answered`](Self::answered).
    #[must_use]
    pub(crate) fn go_on(&mut self) -> bool {
        self.is_held = false;
        self.begins()
    }

    /// Closes the outbox: the connection is no longer used. Returns the calls that wait. They are not sent.
    pub(crate) fn close(&mut self) -> Vec<T> {
        self.is_closed = true;
        self.take()
    }

    fn can_write(&self) -> bool {
        self.in_flight < self.most && !self.is_writing && !self.is_held && !self.is_closed
    }

    fn begins(&mut self) -> bool {
        let begins = self.can_write() && !self.waiting.is_empty();
        if begins {
            self.in_flight += 1;
            self.is_writing = true;
        }
        begins
    }
}

#[cfg(test)]
mod tests;
