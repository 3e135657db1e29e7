//! The calls of one connection that wait to be sent: group commit.
//!
//! While nothing is in flight on a connection, the future of a call sends the call at once: a task that is alone waits for nobody.
//! Otherwise the call enters the outbox, and the sender of the connection takes it: one task (`server/sending.rs`), which sends all calls
//! of one moment in one write, and those of one script in one command (`groups.rs`). Databases call this group commit.

mod groups;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::base::sync::lock;

pub(crate) use groups::{Group, Mode, Place, Waiting, Way, grouped};

/// The calls of one connection that wait to be sent.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    state: Mutex<State>,
    calls: UnboundedSender<T>,
    /// A command timed out, and nobody knows yet whether the connection still works. So nothing is sent.
    is_held: AtomicBool,
    /// Wakes the sender when it may go on, and when the outbox is closed.
    pub(crate) stirred: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// How many calls entered that the sender has not answered.
    entered: usize,
    /// A future sent its own call, and the reply has perhaps not come. If the future gives up, nobody sees the reply. Then
    /// this ends with the next reply that the sender gets, because replies come in the order of the commands.
    is_alone: bool,
    /// Why nothing is sent any more.
    closed: Option<&'static str>,
}

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Its future sends it now, and says [`Outbox::alone_answered`] when the reply comes.
    Now,
    /// The sender has it.
    Waits,
    /// The connection is no longer used.
    Closed,
}

impl<T> Outbox<T> {
    /// Also returns what the sender reads.
    pub(crate) fn new() -> (Self, UnboundedReceiver<T>) {
        let (calls, entered) = unbounded_channel();
        let (state, is_held) = (Mutex::default(), AtomicBool::new(false));
        (Self { state, calls, is_held, stirred: Notify::new() }, entered)
    }

    /// Enters a call that is to be sent. `call` makes the value that waits, if the call has to wait.
    pub(crate) fn enter(&self, call: impl FnOnce() -> T) -> Entered {
        let mut state = lock(&self.state);
        if state.closed.is_some() {
            return Entered::Closed;
        }
        if state.entered == 0 && !state.is_alone && !self.is_held() {
            state.is_alone = true;
            return Entered::Now;
        }
        // While the state is locked, so that each call that entered before `close` is there when the sender empties the
        // outbox.
        if self.calls.send(call()).is_err() {
            return Entered::Closed;
        }
        state.entered += 1;
        Entered::Waits
    }

    /// Records the reply to a call that its future sent.
    pub(crate) fn alone_answered(&self) {
        lock(&self.state).is_alone = false;
    }

    /// Records that the sender answered so many calls after a reply of the server.
    pub(crate) fn answered(&self, calls: usize) {
        let mut state = lock(&self.state);
        state.entered -= calls;
        state.is_alone = false;
    }

    /// Records that so many calls left the outbox unsent.
    pub(crate) fn left(&self, calls: usize) {
        lock(&self.state).entered -= calls;
    }

    /// Sends nothing until it is known whether the connection still works. Returns whether that was so already.
    pub(crate) fn hold(&self) -> bool {
        self.is_held.swap(true, Ordering::AcqRel)
    }

    /// Sends again after [`hold`](Self::hold): the connection works, or is closed.
    pub(crate) fn go_on(&self) {
        self.is_held.store(false, Ordering::Release);
        self.stirred.notify_one();
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// Closes the outbox for this reason: the connection is no longer used. The calls that wait are not sent.
    pub(crate) fn close(&self, reason: &'static str) {
        lock(&self.state).closed.get_or_insert(reason);
        self.stirred.notify_one();
    }

    /// Why the outbox is closed.
    pub(crate) fn closed(&self) -> Option<&'static str> {
        lock(&self.state).closed
    }
}

#[cfg(test)]
mod tests;
