//! The attempts with one id after another, of a call or of a line.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::error::Result;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::timeout;
use crate::engine::acquire::call::{Outcome, WriterIntent};
use crate::engine::grant::Grant;
use crate::engine::grant::owner_grants::{Grants, OwnerGrants};
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::sharing::Offer;
use crate::engine::handle::Handle;
use crate::engine::held::HeldLock;
use crate::engine::hold::lease;
use crate::engine::line::state::Terms;
use crate::engine::lock_ref::LockRef;
use crate::protocol::{AcquireReply, Granted, IfHeld};

/// The attempts of one call on its lock, or of a line for the calls that stand in it.
pub(crate) struct Attempts {
    lease: Duration,
    caller: Caller,
    /// The owner of the call. `None`: a line attempts.
    pub(super) owner: Option<Arc<OwnerGrants>>,
    pub(crate) pending: PendingHold,
    intent: WriterIntent,
    /// The grant of the last attempt, if its outcome is unknown.
    before: Option<Arc<Grant>>,
    /// The deadline of the lease that was granted.
    until: Option<Moment>,
    /// More permits of the semaphore were available after the grant.
    pub(crate) leaves_permits: bool,
    /// When the last attempt ended, or the first began.
    pub(crate) at: Moment,
}

impl Attempts {
    /// Begins to acquire for a call. Also returns what has to end on the server before that: what the owner had, and a hold that lingers for
    /// readers of this client.
    pub(crate) fn start(handle: &Handle, caller: Caller) -> Result<(Self, Grants)> {
        let (lock, now) = (&handle.lock, clock::now());
        let (pending, mut ending) = handle.owner.start(lock, now, caller)?;
        if lock.protocol.stops_readers() {
            ending.extend(lock.engine.read_grants.end_lingering(&lock.keys.lock, now));
        }
        if pending.want > 1 && pending.grant.is_foreign(pending.part) {
            tracing::warn!(
                lock = &**handle.name(), re_entered_at = %caller,
                "a lock was re-entered from another task than the one that acquired it: a handle is one owner, so tasks must \
                 not share it"
            );
        }
        let mut attempts = Self::new(pending, handle.lease(), caller, now);
        attempts.owner = Some(Arc::clone(&handle.owner));
        Ok((attempts, ending))
    }

    /// Begins to acquire for the calls that stand in a line.
    pub(crate) fn of_line(target: &Arc<LockRef>, terms: Terms, caller: Caller) -> Self {
        let target = target.with_permits(terms.count);
        let pending = PendingHold::acquire(target, None, caller);
        Self::new(pending, terms.lease, caller, clock::now())
    }

    fn new(pending: PendingHold, lease: Duration, caller: Caller, now: Moment) -> Self {
        let lock = &pending.grant.lock;
        let stops_readers = lock.protocol.stops_readers() && !lock.engine.config.writer_turn().is_zero();
        Self {
            lease,
            caller,
            owner: None,
            pending,
            intent: WriterIntent::new(stops_readers),
            before: None,
            until: None,
            leaves_permits: false,
            at: now,
        }
    }

    /// Whether this owner already holds the lock.
    pub(crate) fn is_reentry(&self) -> bool {
        self.pending.want > 1 || self.pending.nested_in_write
    }

    /// Whether these attempts are for holds with these terms.
    pub(crate) fn serve(&self, terms: Terms) -> bool {
        self.lease == terms.lease && self.pending.grant.lock.permits.count() == terms.count
    }

    /// When the next attempt is due, whatever else happens. A waiting writer attempts when its patience is over: that attempt tells the
    /// server to stop new readers.
    pub(crate) fn acts_at(&self) -> Option<Moment> {
        self.intent.acts_at()
    }

    /// Attempts once. Unless the call is a try, the attempt also queues if the lock has a queue on the server.
    pub(crate) async fn attempt(&mut self, is_try: bool) -> Result<Outcome> {
        if let Some(before) = self.before.take() {
            // Otherwise this attempt could be refused by what the last one acquired.
            let _ = timeout(before.lock.engine.config.command_timeout(), before.until_released()).await;
        }
        loop {
            let grant = &self.pending.grant;
            let if_held = if is_try { IfHeld::Refuse } else { self.intent.if_held(clock::now) };
            let reply = match self.pending.want {
                // Pinned where it is made: to await it directly would move a large future twice.
                1 => pin!(grant.attempt(self.lease, if_held)).await,
                // If the owner's hold is gone, the server says so, and the call begins anew with a new id.
                count => pin!(grant.reenter(count, self.lease)).await,
            };
            self.at = reply.as_ref().map_or_else(|_| clock::now(), |(_, at, _)| *at);
            let lock = &self.pending.grant.lock;
            let fault = match reply {
                Ok((AcquireReply::Granted(granted), at, until)) if until > at => {
                    self.until = Some(until);
                    self.leaves_permits = matches!(granted, Granted::Permits { left: 1.., .. });
                    return Ok(Outcome::Granted);
                }
                Ok((AcquireReply::Granted(_), ..)) => {
                    let late = "the lease had almost ended when the answer came";
                    Fault::new(FaultKind::TimedOut, Sent::Unknown, late)
                }
                Ok((AcquireReply::Lost, ..)) => {
                    self.begin_anew()?;
                    continue;
                }
                Ok((AcquireReply::OtherKind, ..)) => return Err(lock.other_kind()),
                Ok((AcquireReply::NotALock, ..)) => return Err(lock.not_a_lock()),
                Ok((AcquireReply::CannotCount, ..)) => return Err(lock.cannot_count()),
                Ok((AcquireReply::TooMany { total }, ..)) => {
                    lock.has_total(total);
                    return Err(lock.too_many_permits(total));
                }
                Ok((reply, ..)) => {
                    self.intent.refused(self.at);
                    let left = if let AcquireReply::Held(left) = reply { left } else { None };
                    return Ok(Outcome::Refused(left));
                }
                Err(fault) => fault,
            };
            self.leaves_id(matches!(fault.kind, FaultKind::TooFewReplicas { .. }))?;
            return Ok(Outcome::Failed(fault));
        }
    }

    /// Takes a new id for the next attempt if the server can have something of this one. A lock that was re-entered stays held, because
    /// with a new id this owner would wait for itself. And a waiter keeps its place or intent, which a new id would not have, except if
    /// it was granted the lock with too few replicas: an attempt that finds its own hold can write nothing, and `WAIT` confirms only writes.
    fn leaves_id(&mut self, has_too_few: bool) -> Result<()> {
        let grant = &self.pending.grant;
        let keeps_id = grant.keeps_place() || self.intent.is_shown;
        if self.pending.want == 1 && (has_too_few || !keeps_id) && grant.may_exist() {
            self.before = self.begin_anew()?;
        }
        Ok(())
    }

    /// Gives up the attempts so far, and begins a grant with a new id. Returns the one before, if it has to be released: the background
    /// does so.
    fn begin_anew(&mut self) -> Result<Option<Arc<Grant>>> {
        let fresh = match &self.owner {
            Some(owner) => owner.begin(&self.pending.grant.lock, clock::now(), self.caller)?,
            None => PendingHold::acquire(Arc::clone(&self.pending.grant.lock), None, self.caller),
        };
        Ok(Self::forget(self.owner.as_deref(), &mut std::mem::replace(&mut self.pending, fresh)))
    }

    /// Turns what was granted into a hold.
    pub(crate) fn take(&mut self, handle: &Handle, start: Moment) -> Result<HeldLock> {
        let (until, at) = (self.until(), self.at);
        let held = HeldLock::take(handle, &mut self.pending, until, (start, at))?;
        if handle.can_share() && self.pending.want == 1 && !self.pending.nested_in_write {
            self.pending.grant.open_to_readers(handle.terms.linger, self.at);
        }
        handle.owner.add(&self.pending, self.at);
        Ok(held)
    }

    /// The deadline of the lease that was granted.
    pub(crate) const fn until(&self) -> Moment {
        self.until.expect("BUG: a call took a lock that was not granted")
    }

    /// Leaves what was granted to the calls that stand in the line. `None`: a shutdown gave the attempt up. A shutdown waits until this value
    /// is dropped: drop it when the offer is in the line.
    pub(crate) fn offer(&mut self) -> Option<Offer> {
        self.pending.offer(self.at)
    }

    /// Tells the line that the server granted this exclusive hold beside it. A message that came meanwhile perhaps was about this hold.
    pub(crate) fn is_granted_beside_line(&self) {
        let LockRef { engine, protocol, keys, .. } = &*self.pending.grant.lock;
        let is_exclusive = !protocol.is_shared() && !protocol.has_permits() && self.pending.want == 1;
        if let Some(until) = self.until.filter(|_| is_exclusive)
            && let Some((line, _)) = engine.lines.find(keys, false)
            && line.with(|state| {
                state.granted_beside(until.plus(lease::margin(self.lease)).minus(self.lease), self.at)
            })
        {
            self.pending.grant.close(self.at);
        }
    }

    /// Ends earlier holds of this client's owners. The server has granted an exclusive hold, so it no longer has any earlier one: nobody
    /// may join an earlier hold.
    pub(crate) fn end_earlier(&self) {
        let LockRef { engine, protocol, keys, .. } = &*self.pending.grant.lock;
        if protocol.is_read_write() && !protocol.is_shared() && self.pending.want == 1 {
            engine.read_grants.close(&keys.lock, self.at);
        }
    }

    /// Gives an attempt up. What the server can have of it can block its own owner, so the owner's next acquire waits for its release.
    fn forget(owner: Option<&OwnerGrants>, pending: &mut PendingHold) -> Option<Arc<Grant>> {
        let now = clock::now();
        pending.give_up(now).then(|| {
            owner.into_iter().for_each(|owner| owner.add(pending, now));
            Arc::clone(&pending.grant)
        })
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        Self::forget(self.owner.as_deref(), &mut self.pending);
    }
}
