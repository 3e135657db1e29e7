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

/// A call that waits behind others of its client asks no server, so no server refuses it. The observer is told of such
/// a call after this time, or after a lease if that is shorter.
const BEHIND: Duration = Duration::from_secs(1);

/// What the observer is told of one call.
pub(crate) struct ObservedCall {
    is_standby: bool,
    /// There is an observer, and it was told nothing of this call yet.
    is_untold: bool,
    /// The member for which the call waits, and the wait that the observer was told of.
    waiting: Option<(usize, Waiting)>,
}

impl ObservedCall {
    pub(crate) fn new(handle: &Handle, is_standby: bool) -> Self {
        let is_untold = handle.members.iter().any(|member| member.lock.engine.observer.is_some());
        Self { is_standby, is_untold, waiting: None }
    }

    /// Returns when to tell the observer that the call waits, if no server refuses the call before.
    pub(crate) fn tells_at(&self, members: &PendingMembers<'_>) -> Option<Instant> {
        let after = BEHIND.min(members.handle.config().watchdog_lease());
        self.is_untold.then(|| Instant::now() + after.saturating_sub(clock::now().since(members.start)))
    }

    /// Tells the observer that another owner holds a member, and that the call waits for that member.
    pub(crate) fn refused(&mut self, members: &PendingMembers<'_>, member: usize) {
        self.waits(members, member);
        if let Some((_, waiting)) = &mut self.waiting {
            waiting.is_refused = true;
        }
    }

    /// Tells the observer that the call waits for a member.
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
        // Only a lock of one member names its owner: a call for several members perhaps succeeds without this one, so
        // the observer must not follow the wait to what the owner holds.
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

    /// Records how the call ends. The observer is told when this value is dropped.
    pub(crate) const fn ends(&mut self, outcome: Outcome) {
        if let Some((_, waiting)) = &mut self.waiting {
            waiting.outcome = Some(outcome);
        }
    }
}

/// What the observer can ask about a waiting call.
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
