//! Lists a call while it waits.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::timer::Instant;
use crate::engine::grant::Grant;
use crate::engine::grant::sharing::Offer;
use crate::engine::handle::Handle;
use crate::engine::line::place::Place;
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

    /// Returns when to list the call, if no server refused it before: one that waits behind others of its client sends nothing.
    pub(crate) fn lists_at(&self, handle: &Handle, start: Moment) -> Option<Instant> {
        let is_unlisted = self.waiting.is_none() && handle.lock.engine.waits.is_some();
        let after = LONG.min(handle.config().watchdog_lease());
        is_unlisted.then(|| Instant::now() + after.saturating_sub(clock::now().since(start)))
    }

    /// Lists the call as one that waits.
    pub(crate) fn waits(&mut self, handle: &Handle, caller: Caller, start: Moment, place: &Place<Offer>) {
        let lock = &handle.lock;
        let Some(waits) = &lock.engine.waits else { return };
        let (owner, line) = (Arc::downgrade(&handle.owner), Arc::downgrade(&place.line));
        let (number, of) = (lock.engine.next_number(1), Arc::clone(lock));
        let wait = Wait {
            number,
            owner: lock.short_owner(number),
            name: Arc::clone(&lock.name),
            key: Arc::clone(&lock.keys.lock),
            since: start,
            caller,
            lease: (!self.is_standby).then(|| handle.config().watchdog_lease()),
            place: Box::new(move || of.place(&line.upgrade()?.channel())),
            reserve: Box::new(move |now| {
                owner.upgrade().map_or_else(Vec::new, |owner| owner.reserve_all(now))
            }),
            is_shown: AtomicBool::new(false),
            is_deadlock_reported: AtomicBool::new(false),
            holders_seen: OnceLock::new(),
        };
        self.waiting = Some(waits.begin(wait, place.is_answered()));
    }

    /// Records how the call ends.
    pub(crate) const fn ends(&mut self, outcome: WaitOutcome) {
        if let Some(waiting) = &mut self.waiting {
            waiting.outcome = outcome;
        }
    }
}
