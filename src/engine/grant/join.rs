//! Joining the readers of the same client that hold a lock.

use std::sync::Arc;

use crate::base::clock::Moment;
use crate::engine::grant::share::Share;
use crate::engine::lock_ref::LockRef;

/// Joins the readers of this client, if the server granted their hold a short time ago and no writer of this client waits.
pub(crate) fn join(lock: &LockRef, now: Moment) -> Option<Arc<Share>> {
    let LockRef { engine, keys, .. } = lock;
    let half = engine.config.watchdog_lease() / 2;
    engine.shares.join(&keys.lock, engine.config.read_share(), half, now, |tenure| {
        tenure.switches == engine.store.switch_count()
            && engine.wait_queues.line_of(keys).is_none()
            && engine.check_open().is_ok()
    })
}
