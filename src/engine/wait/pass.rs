//! Handing a hold over to the next waiter of the same client.

use std::sync::Arc;

use futures_util::FutureExt;

use crate::base::clock::Moment;
use crate::engine::grant::Grant;
use crate::engine::hold::Hold;
use crate::engine::upkeep::background::Background;
use crate::engine::wait::line::IDLE;
use crate::engine::wait::queue::WaitQueue;

/// Hands a hold over to the first waiter of this client for the lock. False: the hold has to be released.
///
/// The hold stays on the server all the time, so no other client can enter in between.
pub(crate) fn hand_over(grant: &Arc<Grant>, hold: &Arc<Hold>, now: Moment) -> bool {
    let engine = &grant.lock.engine;
    let hand_over_time = engine.config.pass_time();
    if hand_over_time.is_zero() || !grant.lock.protocol.can_be_passed_on() || !hold.has_one_member() {
        return false;
    }
    let Some((queue, _)) = engine.wait_queues.line_of(&grant.lock.keys) else { return false };
    if engine.check_open().is_err() {
        return false;
    }
    let is_offered = queue.offer(hand_over_time, now, |hand_over_time, granted_at| {
        grant.hand_over(hold, hand_over_time, granted_at, now)
    });
    if is_offered {
        watch(&queue, &engine.background);
    }
    is_offered
}

/// Takes back what nobody takes out of a queue, in the background.
pub(crate) fn watch(queue: &Arc<WaitQueue>, background: &Background) {
    if queue.starts_watch() {
        let watching = Arc::clone(queue).take_back_what_nobody_takes(IDLE).map(Ok).boxed();
        if !background.run(watching) {
            queue.takes_back();
        }
    }
}
