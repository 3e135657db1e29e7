//! A lock that stays held for its minimum hold time after its guard was given back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::Grant;
use crate::base::clock::{self, Moment};
use crate::base::timer::sleep;

/// How often the job reads the clock: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_secs(1);

impl Grant {
    /// Starts a job that keeps the lock until then. Never waits. A shutdown waits for the job.
    ///
    /// Without a runtime there is no job, and the lease ends the hold: the lease lasts for the minimum hold time.
    pub(super) fn keep(self: &Arc<Self>, until: Moment) {
        let job = Arc::clone(self).kept(until).map(Ok);
        self.lock.engine.background.run(job.boxed());
    }

    async fn kept(self: Arc<Self>, until: Moment) {
        let engine = &self.lock.engine;
        loop {
            let now = clock::now();
            let left = until.since(now);
            if left.is_zero() {
                return self.change(now, |state, _| {
                    state.is_kept = false;
                    state.machine.ends_stay(now);
                });
            }
            if engine.is_closing() {
                // A shutdown does not wait long for a minimum hold time. If more than this is left, the job ends, and
                // the lease ends the hold.
                if left > engine.config.retry_timeout() / 2 {
                    return;
                }
                sleep(left.min(LOOK)).await;
                continue;
            }
            tokio::select! {
                biased;
                () = engine.closing() => {}
                () = sleep(left.min(LOOK)) => {}
            }
        }
    }
}
