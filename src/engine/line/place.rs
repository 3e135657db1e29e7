//! A call in a line.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::lines::{Effects, Line};
use super::state::{Polled, Terms, Ticket};
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::jitter;
use crate::engine::acquire::attempts::Attempts;
use crate::engine::acquire::call::Outcome;
use crate::engine::grant::sharing::Offer;
use crate::engine::lock_ref::LockRef;
use crate::engine::retry::Pauses;

/// A call in a line. Dropping it leaves the line.
pub(crate) struct Place {
    pub(crate) line: Arc<Line>,
    ticket: Ticket,
}

/// What a call got.
pub(crate) enum Got {
    Offer(Offer),
    /// The call can perhaps join the readers of this client.
    Readers,
    Error(Error),
}

impl Place {
    /// Stands at the end of a line. `patience`: see [`State::stand`](super::state::State::stand). `attempted`: what the call attempted
    /// before, and how that ended. The line goes on with it.
    pub(crate) fn new(
        target: &Arc<LockRef>,
        terms: Terms,
        patience: Option<Duration>,
        attempted: Option<(Attempts, Outcome)>,
    ) -> Self {
        let lines = &target.engine.lines;
        let channel = match &attempted {
            Some((attempts, _)) => attempts.pending.grant.wake_channel(),
            None => Arc::clone(&target.keys.channel),
        };
        let (line, ticket) = lines.stand(target, channel, terms, patience);
        let place = Self { line, ticket };
        let attempts = attempted.map(|(attempts, outcome)| {
            place.line.change(|state, now| match outcome {
                Outcome::Failed(fault) => {
                    let mut pauses = Pauses::START;
                    let pause = pauses.after(&fault);
                    state.failed(&target.error(fault), pause, now)
                }
                Outcome::Refused(left) => {
                    state.is_held(left, now, jitter::around);
                    Effects::default()
                }
                Outcome::Granted => unreachable!("BUG: a call that was granted the lock waits for it"),
            });
            attempts.into_line()
        });
        lines.start(&place.line, attempts);
        place
    }

    /// Waits until there is something for the call.
    pub(crate) async fn next(&self) -> Got {
        poll_fn(|context| {
            let waker = context.waker().clone(); // with nothing locked, because to clone a waker can run any code
            match self.line.event(|state, _| state.poll(self.ticket, waker)) {
                Polled::Ends(error) => Poll::Ready(Got::Error(error)),
                Polled::Takes(offer) => Poll::Ready(Got::Offer(offer)),
                Polled::Joins => Poll::Ready(Got::Readers),
                Polled::Waits => Poll::Pending,
            }
        })
        .await
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

impl Drop for Place {
    fn drop(&mut self) {
        self.line.change(|state, _| state.leaves(self.ticket));
        self.line.tidy();
    }
}
