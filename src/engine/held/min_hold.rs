//! Keeps a lock held for its minimum hold time: its guard was given back, and the background keeps the hold until the time is over.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::base::clock::{self, Moment};
use crate::base::timer::sleep;
use crate::engine::held::release::{MemberHold, PendingRelease};
use crate::engine::hold::Hold;
use crate::engine::members::PerMember;
use crate::engine::shared::Engine;

/// How often the clock is read: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_secs(1);

/// Until when a lock stays held.
#[derive(Clone, Copy)]
pub(crate) struct MinHold(Moment);

impl MinHold {
    pub(crate) const fn new(until: Moment) -> Self {
        Self(until)
    }

    /// Until then, the lock stays on the servers, although its hold perhaps ends for this client.
    pub(crate) fn begin(self, members: &[MemberHold]) {
        for member in members {
            member.grant.stays_until(self.0);
        }
    }

    pub(crate) fn is_over(self, now: Moment) -> bool {
        self.0 <= now
    }

    /// Keeps a hold. Never waits. The owner does not have it any more: its next attempt is refused like that of another owner.
    ///
    /// Without a runtime, the lease ends the hold: it lasts for the minimum hold time.
    pub(crate) fn hold(self, hold: Arc<Hold>, members: PerMember<MemberHold>) {
        let Some(first) = members.first() else { return };
        let engine = Arc::clone(&first.grant.lock.engine);
        let until = self.0;
        let job = {
            let engine = Arc::clone(&engine);
            async move {
                let is_over = wait(&engine, until).await;
                let now = clock::now();
                for MemberHold { grant, .. } in &members {
                    if is_over { grant.remove_hold(&hold, now) } else { grant.leak(&hold, now) }
                }
                // Dropped, so the background releases them.
                drop(PendingRelease::new(members.into_iter().map(|member| member.grant)));
                Ok(())
            }
        };
        engine.background.run(job.boxed());
    }
}

/// Waits until then. False: the client was shut down, and waits no longer than for other releases.
async fn wait(engine: &Engine, until: Moment) -> bool {
    loop {
        let left = until.since(clock::now());
        if left.is_zero() {
            return true;
        }
        if engine.is_closing() {
            if left > engine.config.retry_timeout() / 2 {
                return false;
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
