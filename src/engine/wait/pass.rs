//! Passing a hold on to the next waiter of the same client.

use std::sync::Arc;

use futures_util::FutureExt;

use crate::base::clock::Moment;
use crate::engine::grant::Grant;
use crate::engine::hold::Hold;
use crate::engine::upkeep::background::Background;
use crate::engine::wait::line::IDLE;
use crate::engine::wait::queue::WaitQueue;

/// Passes a hold on to the first waiter of this client for the lock. False: the hold has to be released.
///
/// The hold stays on the server all the time, so no other client can enter in between.
pub(crate) fn pass_on(grant: &Arc<Grant>, hold: &Arc<Hold>, now: Moment) -> bool {
    let engine = &grant.lock.engine;
    let pass_time = engine.config.pass_time();
    if pass_time.is_zero() || !grant.lock.protocol.can_be_passed_on() || !hold.has_one_member() {
        return false;
    }
    let Some((queue, _)) = engine.wait_queues.line_of(&grant.lock.keys) else { return false };
    if engine.check_open().is_err() {
        return false;
    }
    let is_passed =
        queue.offer(pass_time, now, |pass_time, granted_at| grant.pass_on(hold, pass_time, granted_at, now));
    if is_passed {
        watch(&queue, &engine.background);
    }
    is_passed
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
