//! What the waiters of one queue do for each other.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::engine::grant::seat::Seat;
use crate::engine::wait::line::{Claim, IDLE, Told};
use crate::engine::wait::queue::WaitQueue;

impl WaitQueue {
    /// Puts a hold here, for the waiter in front. False: `hold` is to be released.
    pub(crate) fn offer(
        &self,
        pass_time: Duration,
        now: Moment,
        hold: impl FnOnce(Duration, Moment) -> Option<Seat>,
    ) -> bool {
        let mut state = lock(&self.state);
        let is_polled = state.woken_at.is_none_or(|at| now.since(at) < IDLE);
        if state.waiters == 0 || state.line.unable > 0 || state.line.seat.is_some() || !is_polled {
            return false;
        }
        let Some(seat) = hold(state.line.pass_time(pass_time), state.line.granted_at.unwrap_or(Moment::PAST))
        else {
            return false;
        };
        state.line.seat = Some(seat);
        state.line.passes += 1;
        state.woken_at.get_or_insert(now);
        drop(state);
        self.wake.notify_one();
        true
    }

    pub(crate) fn has_seat(&self) -> bool {
        lock(&self.state).line.seat.is_some()
    }

    pub(crate) fn take_seat(&self) -> Option<Seat> {
        let mut state = lock(&self.state);
        let seat = state.line.seat.take()?;
        state.woken_at = None;
        Some(seat)
    }

    /// Whether the caller has to watch for holds that nobody takes.
    pub(crate) fn starts_watch(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).line.is_watched, true)
    }

    /// Takes back a hold that nobody took for `patience`: perhaps the waiter in front is a future that nobody polls.
    pub(crate) async fn take_back_what_nobody_takes(self: Arc<Self>, patience: Duration) {
        let mut passes = 0;
        loop {
            sleep(patience).await;
            let so_far = lock(&self.state).line.passes;
            if so_far == passes {
                break;
            }
            passes = so_far;
        }
        self.takes_back();
    }

    pub(crate) fn takes_back(&self) {
        let _left; // released after the queue is unlocked
        let mut state = lock(&self.state);
        state.line.is_watched = false;
        _left = (state.line.seat.take(), state.line.claim.take());
    }

    /// Whether others wait here than the one that asks.
    pub(crate) fn has_followers(&self) -> bool {
        lock(&self.state).waiters > 1
    }

    /// Keeps a hold for those who wait here, so that they can join it.
    pub(crate) fn keeps(&self, claim: Claim) {
        let mut state = lock(&self.state);
        state.line.passes += 1;
        let before = state.line.claim.replace(claim);
        drop(state);
        drop(before); // with the queue unlocked
    }

    /// The server granted the lock to a waiter of this client.
    pub(crate) fn granted_anew(&self, at: Moment) {
        lock(&self.state).line.granted_at = Some(at);
    }

    /// The lock is about to be released on the server.
    pub(crate) fn releases(&self) {
        lock(&self.state).line.releases(clock::now());
    }

    /// The release ended. `told`: whom its message reached. `None`: it released nothing, or that is not certain.
    pub(crate) fn release_ended(&self, told: Option<Told>) {
        let mut state = lock(&self.state);
        let own = u32::from(state.has_messages);
        state.line.release_ended(told.map(|told| told.reached_others(own)), clock::now());
    }

    /// How long other clients still come first.
    pub(crate) fn yields(&self) -> Duration {
        lock(&self.state).line.yields(clock::now())
    }
}
