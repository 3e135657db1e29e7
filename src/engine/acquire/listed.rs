//! Lists a call while it waits.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::base::clock;
use crate::base::timer::Instant;
use crate::engine::acquire::round::PendingMembers;
use crate::engine::grant::Grant;
use crate::engine::waits::{LONG, Reserve, Wait, WaitOutcome, Waiting};

/// A call in the list of those that wait, and the member for which it waits.
pub(crate) struct Listed {
    is_standby: bool,
    waiting: Option<(usize, Waiting<Grant>)>,
}

impl Listed {
    pub(crate) const fn new(is_standby: bool) -> Self {
        Self { is_standby, waiting: None }
    }

    /// Returns when to list the call, if no server refuses it before: one that waits behind others of its client asks no server.
    pub(crate) fn lists_at(&self, members: &PendingMembers<'_>, member: usize) -> Option<Instant> {
        let is_unlisted = self.waiting.is_none() && members.pending[member].grant.lock.engine.waits.is_some();
        let after = LONG.min(members.handle.config().watchdog_lease());
        is_unlisted.then(|| Instant::now() + after.saturating_sub(clock::now().since(members.start)))
    }

    /// Lists the call, because another owner holds a member.
    pub(crate) fn refused(&mut self, members: &PendingMembers<'_>, member: usize) {
        self.waits(members, member);
        if let Some((_, waiting)) = &mut self.waiting {
            waiting.is_refused = true;
        }
    }

    /// Lists the call as one that waits for a member.
    pub(crate) fn waits(&mut self, members: &PendingMembers<'_>, member: usize) {
        let grant = &members.pending[member].grant;
        if let Some((listed, waiting)) = &mut self.waiting {
            if (*listed, waiting.wait.number) == (member, grant.number) {
                return;
            }
            waiting.outcome = None;
        }
        self.waiting = None;
        let (handle, lock) = (members.handle, &grant.lock);
        let Some(waits) = &lock.engine.waits else { return };
        // Only a lock of one member names its owner: a call for several members perhaps succeeds without this one, so nobody must follow
        // the wait to what the owner holds.
        let reserve = (handle.members.len() == 1).then(|| -> Reserve<Grant> {
            let owner = Arc::downgrade(&handle.members[member].owner);
            Box::new(move |now| owner.upgrade().map_or_else(Vec::new, |owner| owner.reserve_all(now)))
        });
        let wait = Wait {
            number: grant.number,
            name: Arc::clone(handle.name()),
            member: Arc::clone(&lock.name),
            key: Arc::clone(&lock.keys.lock),
            since: members.start,
            caller: members.caller,
            lease: (!self.is_standby).then(|| handle.config().watchdog_lease()),
            grant: Arc::downgrade(grant),
            reserve,
            is_shown: AtomicBool::new(false),
            is_deadlock_reported: AtomicBool::new(false),
            holders_seen: OnceLock::new(),
        };
        self.waiting = Some((member, waits.begin(wait)));
    }

    /// Records how the call ends.
    pub(crate) const fn ends(&mut self, outcome: WaitOutcome) {
        if let Some((_, waiting)) = &mut self.waiting {
            waiting.outcome = Some(outcome);
        }
    }
}
