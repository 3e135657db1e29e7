//! What the observer is told of one call.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::base::timer::Instant;
use crate::engine::acquire::round::PendingMembers;
use crate::engine::grant::Grant;
use crate::engine::grant::owner_grants::OwnerGrants;
use crate::engine::handle::Handle;
use crate::engine::observer::{Outcome, SeenWait, SeenWaiter, Waiting};
use crate::protocol::Call;

/// A call that stands behind others of its client asks no server, so nobody refuses it. It is told after this time, or after a lease.
const BEHIND: Duration = Duration::from_secs(1);

/// What the observer is told of one call.
pub(crate) struct ObservedCall {
    is_standby: bool,
    /// Somebody observes the call, and was told nothing yet.
    is_untold: bool,
    /// The member for which it waits.
    waiting: Option<(usize, Waiting)>,
}

impl ObservedCall {
    pub(crate) fn new(handle: &Handle, is_standby: bool) -> Self {
        let is_untold = handle.members.iter().any(|member| member.lock.engine.observer.is_some());
        Self { is_standby, is_untold, waiting: None }
    }

    /// When to tell that the call waits, if nobody refuses it before.
    pub(crate) fn tells_at(&self, members: &PendingMembers<'_>) -> Option<Instant> {
        let after = BEHIND.min(members.handle.config().watchdog_lease());
        self.is_untold.then(|| Instant::now() + after.saturating_sub(clock::now().since(members.start)))
    }

    /// Another owner holds a member, and the call waits for that member.
    pub(crate) fn refused(&mut self, members: &PendingMembers<'_>, member: usize) {
        self.waits(members, member);
        if let Some((_, waiting)) = &mut self.waiting {
            waiting.is_refused = true;
        }
    }

    /// The call waits for a member.
    pub(crate) fn waits(&mut self, members: &PendingMembers<'_>, member: usize) {
        self.is_untold = false;
        let grant = &members.pending[member].grant;
        if let Some((told, waiting)) = &mut self.waiting {
            if (*told, waiting.number) == (member, grant.number) {
                return;
            }
            waiting.outcome = None;
        }
        self.waiting = None;
        let (handle, lock) = (members.handle, &grant.lock);
        let Some(observer) = &lock.engine.observer else { return };
        // Of several members, nobody knows whether the call needs this one.
        let owner = (handle.members.len() == 1).then(|| Arc::downgrade(&handle.members[member].owner));
        let wait = SeenWait {
            number: grant.number,
            name: handle.name(),
            member: &lock.name,
            key: &lock.keys.lock,
            since: members.start,
            caller: members.caller,
            lease: (!self.is_standby).then(|| handle.config().watchdog_lease()),
            waiter: Box::new(WaitsAs { grant: Arc::downgrade(grant), owner }),
        };
        self.waiting = Some((member, Waiting::begin(observer, wait)));
    }

    /// The call ends in this way. Told when it is dropped.
    pub(crate) const fn ends(&mut self, outcome: Outcome) {
        if let Some((_, waiting)) = &mut self.waiting {
            waiting.outcome = Some(outcome);
        }
    }
}

/// As what a call waits.
struct WaitsAs {
    grant: Weak<Grant>,
    owner: Option<Weak<OwnerGrants>>,
}

impl SeenWaiter for WaitsAs {
    fn owner(&self) -> Option<Arc<str>> {
        self.grant.upgrade()?.short_owner()
    }

    fn place(&self) -> Option<Call> {
        self.grant.upgrade()?.place()
    }

    fn reserve(&self, now: Moment) -> Vec<Arc<str>> {
        self.owner.as_ref().and_then(Weak::upgrade).map_or_else(Vec::new, |owner| owner.reserve_all(now))
    }
}
