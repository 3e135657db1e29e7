//! A call in a line.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::lines::Line;
use super::state::{Polled, Ticket};
use crate::base::clock::Moment;
use crate::base::error::Error;

/// A call in a line. Dropping it leaves the line.
pub(crate) struct Place<O: Send> {
    pub(crate) line: Arc<Line<O>>,
    pub(super) ticket: Ticket,
}

impl<O: Send> Place<O> {
    /// Waits until there is something for the call.
    pub(crate) async fn next(&self) -> Polled<O, Error> {
        poll_fn(|context| {
            let waker = context.waker().clone(); // with nothing locked, because to clone a waker can run any code
            match self.line.event(|state, _| state.poll(self.ticket, waker)) {
                Some(found) => Poll::Ready(found),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Lets the line ask again: the call could not take what was offered to it.
    pub(crate) fn asks_again(&self) {
        self.line.change(|state, now| state.hears(now));
    }

    /// Whether it is known that another owner holds the lock.
    pub(crate) fn is_answered(&self) -> bool {
        self.line.with(|state| state.is_answered())
    }

    /// When the line attempts again, if the last attempt failed.
    pub(crate) fn retry_at(&self) -> Option<Moment> {
        self.line.with(|state| state.retry_at())
    }

    /// Why there is no answer.
    pub(crate) fn error(&self) -> Option<Error> {
        self.line.with(|state| state.error())
    }
}

impl<O: Send> Drop for Place<O> {
    fn drop(&mut self) {
        self.line.change(|state, _| state.leaves(self.ticket));
        self.line.tidy();
    }
}
