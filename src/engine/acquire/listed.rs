//! Lists a call while it waits.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::base::clock;
use crate::base::timer::Instant;
use crate::engine::acquire::attempts::Attempts;
use crate::engine::grant::Grant;
use crate::engine::waits::{LONG, Wait, WaitOutcome, Waiting};

/// A call in the list of those that wait.
pub(crate) struct Listed {
    is_standby: bool,
    waiting: Option<Waiting<Grant>>,
}

impl Listed {
    pub(crate) const fn new(is_standby: bool) -> Self {
        Self { is_standby, waiting: None }
    }

    /// Returns when to list the call, if no server refuses it before: one that waits behind others of its client sends nothing.
    pub(crate) fn lists_at(&self, attempts: &Attempts<'_>) -> Option<Instant> {
        let is_unlisted = self.waiting.is_none() && attempts.handle.lock.engine.waits.is_some();
        let after = LONG.min(attempts.handle.config().watchdog_lease());
        is_unlisted.then(|| Instant::now() + after.saturating_sub(clock::now().since(attempts.start)))
    }

    /// Lists the call, because another owner holds the lock.
    pub(crate) fn refused(&mut self, attempts: &Attempts<'_>) {
        self.waits(attempts);
        if let Some(waiting) = &mut self.waiting {
            waiting.is_refused = true;
        }
    }

    /// Lists the call as one that waits.
    pub(crate) fn waits(&mut self, attempts: &Attempts<'_>) {
        let (handle, grant) = (attempts.handle, &attempts.pending.grant);
        let lock = &handle.lock;
        let Some(waits) = &lock.engine.waits else { return };
        if let Some(waiting) = &mut self.waiting {
            if waiting.wait.number == grant.number {
                return;
            }
            waiting.outcome = None;
        }
        self.waiting = None;
        let owner = Arc::downgrade(&handle.owner);
        let wait = Wait {
            number: grant.number,
            name: Arc::clone(&lock.name),
            key: Arc::clone(&lock.keys.lock),
            since: attempts.start,
            caller: attempts.caller,
            lease: (!self.is_standby).then(|| handle.config().watchdog_lease()),
            grant: Arc::downgrade(grant),
            reserve: Box::new(move |now| {
                owner.upgrade().map_or_else(Vec::new, |owner| owner.reserve_all(now))
            }),
            is_shown: AtomicBool::new(false),
            is_deadlock_reported: AtomicBool::new(false),
            holders_seen: OnceLock::new(),
        };
        self.waiting = Some(waits.begin(wait));
    }

    /// Records how the call ends.
    pub(crate) const fn ends(&mut self, outcome: WaitOutcome) {
        if let Some(waiting) = &mut self.waiting {
            waiting.outcome = Some(outcome);
        }
    }
}
