//! What the waiters of one queue do for each other.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::engine::grant::offer::Offer;
use crate::engine::wait::line::{IDLE, Told};
use crate::engine::wait::queue::WaitQueue;

impl WaitQueue {
    /// Puts a hold here, for the waiter in front. False: `hold` is to be released.
    pub(crate) fn offer(
        &self,
        hand_over_time: Duration,
        now: Moment,
        hold: impl FnOnce(Duration, Moment) -> Option<Offer>,
    ) -> bool {
        let mut state = lock(&self.state);
        let is_polled = state.woken_at.is_none_or(|at| now.since(at) < IDLE);
        // While the front attempts, or after a message, the server has perhaps granted the lock anew.
        let is_certain = !state.is_attempting && !state.line.is_disturbed;
        if state.waiters == 0
            || state.line.unable > 0
            || state.line.offer.is_some()
            || !is_polled
            || !is_certain
        {
            return false;
        }
        let Some(offer) =
            hold(state.line.pass_time(hand_over_time), state.line.granted_at.unwrap_or(Moment::PAST))
        else {
            return false;
        };
        state.line.offer = Some(offer);
        state.line.offers += 1;
        state.woken_at.get_or_insert(now);
        drop(state);
        self.wake.notify_one();
        true
    }

    pub(crate) fn has_offer(&self) -> bool {
        !self.key.is_shared && lock(&self.state).line.offer.is_some()
    }

    /// Takes the hold that is offered to the waiter in front.
    pub(crate) fn take_offer(&self) -> Option<Offer> {
        let mut state = lock(&self.state);
        let offer = state.line.offer.take()?;
        state.woken_at = None;
        let is_disturbed = state.line.is_disturbed;
        drop(state);
        // Perhaps the hold was removed. Then the server says who is next. Dropped with the queue unlocked.
        (!is_disturbed).then_some(offer)
    }

    /// Whether the caller has to watch for holds that nobody takes.
    pub(crate) fn starts_watch(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).line.is_watched, true)
    }

    /// Takes back a hold that nobody took for `patience`: perhaps the waiter in front is a future that nobody polls.
    pub(crate) async fn take_back_what_nobody_takes(self: Arc<Self>, patience: Duration) {
        let mut offers = 0;
        loop {
            sleep(patience).await;
            let so_far = lock(&self.state).line.offers;
            if so_far == offers {
                break;
            }
            offers = so_far;
        }
        self.takes_back();
    }

    pub(crate) fn takes_back(&self) {
        let _left; // released after the queue is unlocked
        let mut state = lock(&self.state);
        state.line.is_watched = false;
        _left = state.line.offer.take();
    }

    /// Whether others wait here than the one that asks.
    pub(crate) fn has_followers(&self) -> bool {
        lock(&self.state).waiters > 1
    }

    /// Keeps a hold for the readers that wait here, so that they can join it.
    pub(crate) fn keeps(&self, offer: Offer) {
        let mut state = lock(&self.state);
        state.line.offers += 1;
        let before = state.line.offer.replace(offer);
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
