//! What the observer is told of one call.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::base::timer::Instant;
use crate::engine::acquire::attempts::Attempts;
use crate::engine::grant::Grant;
use crate::engine::grant::owner_grants::OwnerGrants;
use crate::engine::handle::Handle;
use crate::engine::observer::{Outcome, SeenWait, SeenWaiter, Waiting};
use crate::protocol::Call;

/// A call that waits behind others of its client asks no server, so no server refuses it. The observer is told of such
/// a call after this time, or after a lease if that is shorter.
const BEHIND: Duration = Duration::from_secs(1);

/// What the observer is told of one call.
pub(crate) struct ObservedCall {
    is_standby: bool,
    /// There is an observer, and it was told nothing of this call yet.
    is_untold: bool,
    /// The wait that the observer was told of.
    waiting: Option<Waiting>,
}

impl ObservedCall {
    pub(crate) fn new(handle: &Handle, is_standby: bool) -> Self {
        Self { is_standby, is_untold: handle.lock.engine.observer.is_some(), waiting: None }
    }

    /// Returns when to tell the observer that the call waits, if no server refuses the call before.
    pub(crate) fn tells_at(&self, attempts: &Attempts<'_>) -> Option<Instant> {
        let after = BEHIND.min(attempts.handle.config().watchdog_lease());
        self.is_untold.then(|| Instant::now() + after.saturating_sub(clock::now().since(attempts.start)))
    }

    /// Tells the observer that another owner holds the lock, and that the call waits.
    pub(crate) fn refused(&mut self, attempts: &Attempts<'_>) {
        self.waits(attempts);
        if let Some(waiting) = &mut self.waiting {
            waiting.is_refused = true;
        }
    }

    /// Tells the observer that the call waits.
    pub(crate) fn waits(&mut self, attempts: &Attempts<'_>) {
        self.is_untold = false;
        let (handle, grant) = (attempts.handle, &attempts.pending.grant);
        let lock = &handle.lock;
        let Some(observer) = &lock.engine.observer else { return };
        if let Some(waiting) = &mut self.waiting {
            if waiting.number == grant.number {
                return;
            }
            waiting.outcome = None;
        }
        self.waiting = None;
        let wait = SeenWait {
            number: grant.number,
            name: &lock.name,
            key: &lock.keys.lock,
            since: attempts.start,
            caller: attempts.caller,
            lease: (!self.is_standby).then(|| handle.config().watchdog_lease()),
            waiter: Box::new(WaitsAs { grant: Arc::downgrade(grant), owner: Arc::downgrade(&handle.owner) }),
        };
        self.waiting = Some(Waiting::begin(observer, wait));
    }

    /// Records how the call ends. The observer is told when this value is dropped.
    pub(crate) const fn ends(&mut self, outcome: Outcome) {
        if let Some(waiting) = &mut self.waiting {
            waiting.outcome = Some(outcome);
        }
    }
}

/// What the observer can ask about a waiting call.
struct WaitsAs {
    grant: Weak<Grant>,
    owner: Weak<OwnerGrants>,
}

impl SeenWaiter for WaitsAs {
    fn owner(&self) -> Option<Arc<str>> {
        self.grant.upgrade()?.short_owner()
    }

    fn place(&self) -> Option<Call> {
        self.grant.upgrade()?.place()
    }

    fn reserve(&self, now: Moment) -> Vec<Arc<str>> {
        self.owner.upgrade().map_or_else(Vec::new, |owner| owner.reserve_all(now))
    }
}
