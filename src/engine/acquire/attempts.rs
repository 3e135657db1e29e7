//! The attempts of one call on its lock.

use std::pin::pin;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::error::Result;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::timeout;
use crate::engine::acquire::call::{Outcome, WriterIntent};
use crate::engine::grant::Grant;
use crate::engine::grant::owed::Owed;
use crate::engine::grant::owner_grants::Start;
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::sharing::Given;
use crate::engine::handle::Handle;
use crate::engine::held::HeldLock;
use crate::engine::lock_ref::LockRef;
use crate::engine::wait::machine::Discipline;
use crate::engine::wait::queue::QueueKey;
use crate::protocol::{AcquireReply, Granted, IfHeld};

/// The attempts of one call on its lock.
pub(crate) struct Attempts<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) caller: Caller,
    /// The call does not wait for other owners.
    is_try: bool,
    pub(crate) pending: PendingHold,
    pub(crate) intent: WriterIntent,
    /// The grant of the last attempt, if its outcome is unknown.
    before: Option<Arc<Grant>>,
    /// The deadline of the lease that was granted.
    until: Option<Moment>,
    /// More permits of the semaphore were available after the grant.
    pub(crate) leaves_permits: bool,
    /// When the call began.
    pub(crate) start: Moment,
    /// When the last attempt ended, or the first began.
    pub(crate) at: Moment,
}

impl<'a> Attempts<'a> {
    /// Begins to acquire. Also returns what has to end on the server before that.
    pub(crate) fn start(handle: &'a Handle, caller: Caller, is_try: bool) -> Result<(Self, Before)> {
        let (lock, now) = (&handle.lock, clock::now());
        let Start { pending, ending } = handle.owner.start(lock, now, caller)?;
        let stops_readers = lock.protocol.stops_readers();
        let idle = if stops_readers { lock.engine.read_grants.end_idle(&lock.keys.lock, now) } else { None };
        if pending.want > 1 && pending.grant.is_foreign(pending.part) {
            tracing::warn!(
                lock = &**handle.name(), re_entered_at = %caller,
                "a lock was re-entered from another task than the one that acquired it: a handle is one owner, so tasks must \
                 not share it"
            );
        }
        let intent = WriterIntent::new(stops_readers && !handle.config().writer_turn().is_zero());
        let mut attempts = Self::given(handle, caller, pending, None, now);
        (attempts.is_try, attempts.intent) = (is_try, intent);
        Ok((attempts, Before { ending, idle }))
    }

    /// Makes the attempts of a call. `until`: another owner of this client gave its hold, which has this deadline.
    pub(crate) fn given(
        handle: &'a Handle,
        caller: Caller,
        pending: PendingHold,
        until: Option<Moment>,
        now: Moment,
    ) -> Self {
        let (is_try, intent, leaves_permits) = (false, WriterIntent::default(), false);
        Self {
            handle,
            caller,
            is_try,
            pending,
            intent,
            before: None,
            until,
            leaves_permits,
            start: now,
            at: now,
        }
    }

    /// Whether this owner already holds the lock.
    pub(crate) fn is_reentry(&self) -> bool {
        self.pending.want > 1 || self.pending.nested_in_write
    }

    /// Returns the key of the queue in which waiters for the lock stand.
    pub(crate) fn queue_key(&self) -> QueueKey {
        let LockRef { protocol, keys, row, .. } = &*self.handle.lock;
        QueueKey {
            channel: self.pending.grant.wake_channel(),
            lock: Arc::clone(&keys.lock),
            discipline: match () {
                () if protocol.queue().is_some() => Discipline::Places,
                () if protocol.has_permits() => Discipline::Permits,
                () if protocol.is_shared() => Discipline::Readers,
                () => Discipline::Exclusive,
            },
            row: *row,
        }
    }

    /// Attempts once. Unless the call is a try, the attempt also queues if the lock has a queue on the server.
    pub(crate) async fn attempt(&mut self) -> Result<Outcome> {
        if let Some(before) = self.before.take() {
            // Otherwise this attempt could be refused by what the last one acquired.
            let _ = timeout(self.handle.config().command_timeout(), before.until_released()).await;
        }
        loop {
            let (grant, lease) = (&self.pending.grant, self.handle.lease());
            let if_held = if self.is_try { IfHeld::Refuse } else { self.intent.if_held(clock::now) };
            let reply = match self.pending.want {
                // Pinned where it is made: to await it directly would move a large future twice.
                1 => pin!(grant.attempt(lease, if_held)).await,
                // If the owner's hold is gone, the server says so, and the call begins anew with a new id.
                count => pin!(grant.reenter(count, lease)).await,
            };
            self.at = clock::now();
            let lock = &self.handle.lock;
            let fault = match reply {
                Ok((AcquireReply::Granted(granted), until)) if until > self.at => {
                    self.until = Some(until);
                    self.leaves_permits = matches!(granted, Granted::Permits { left: 1.., .. });
                    return Ok(Outcome::Granted);
                }
                Ok((AcquireReply::Granted(_), _)) => {
                    let late = "the lease had almost ended when the answer came";
                    Fault::new(FaultKind::TimedOut, Sent::Unknown, late)
                }
                Ok((AcquireReply::Lost, _)) => {
                    self.begin_anew()?;
                    continue;
                }
                Ok((AcquireReply::OtherKind, _)) => return Err(lock.other_kind()),
                Ok((AcquireReply::NotALock, _)) => return Err(lock.not_a_lock()),
                Ok((AcquireReply::CannotCount, _)) => return Err(lock.cannot_count()),
                Ok((AcquireReply::TooMany { total }, _)) => {
                    lock.has_total(total);
                    return Err(lock.too_many_permits(total));
                }
                Ok((reply, _)) => {
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
    pub(crate) fn leaves_id(&mut self, has_too_few: bool) -> Result<()> {
        let grant = &self.pending.grant;
        let keeps_id = grant.keeps_place() || self.intent.is_shown();
        if self.pending.want == 1 && (has_too_few || !keeps_id) && grant.may_exist() {
            self.before = self.begin_anew()?;
        }
        Ok(())
    }

    /// Gives up the attempts so far, and begins a grant with a new id. Returns the one before, if it has to be released: the background
    /// does so.
    fn begin_anew(&mut self) -> Result<Option<Arc<Grant>>> {
        let fresh = self.handle.owner.begin(&self.handle.lock, clock::now(), self.caller)?;
        Ok(Self::forget(self.handle, &mut std::mem::replace(&mut self.pending, fresh)))
    }

    /// Leaves the queue on the server, and removes the writer's intent, so that readers are admitted again.
    pub(crate) async fn leave_queue(&mut self) {
        if let Some(before) = Self::forget(self.handle, &mut self.pending) {
            let _ = timeout(self.handle.config().command_timeout() / 2, before.until_released()).await;
        }
    }

    /// Turns what was granted into a hold.
    pub(crate) fn take(&mut self) -> Result<HeldLock> {
        let Self { handle, pending, until, start, at: now, .. } = self;
        let until = until.expect("BUG: a call took a lock that was not granted");
        let held = HeldLock::take(handle, pending, until, (*start, *now))?;
        if handle.can_share() && pending.want == 1 && !pending.nested_in_write {
            pending.grant.open_to_readers(handle.terms.linger, *now);
        }
        handle.owner.set(pending);
        Ok(held)
    }

    /// Replaces what this call attempted by the hold of another owner of this client.
    pub(crate) fn hold_instead(&mut self, given: Given) {
        (self.until, self.leaves_permits) = (Some(given.until), false);
        self.at = clock::now();
        Self::forget(self.handle, &mut std::mem::replace(&mut self.pending, PendingHold::given(given)));
    }

    /// Gives an attempt up. What the server can have of it can block its own owner, so the owner's next acquire waits for its release.
    fn forget(handle: &Handle, pending: &mut PendingHold) -> Option<Arc<Grant>> {
        let owed = pending.give_up(clock::now())?;
        handle.owner.remembers(owed.grant());
        Some(Arc::clone(owed.grant()))
    }
}

/// What has to end on the server before an acquire.
pub(crate) struct Before {
    /// Earlier grants of the owner, whose release is under way.
    ending: SmallVec<[Arc<Grant>; 1]>,
    /// A hold that lingered for readers of this client.
    idle: Option<Owed>,
}

impl Before {
    pub(crate) fn is_empty(&self) -> bool {
        self.ending.is_empty() && self.idle.is_none()
    }

    /// Waits until it has ended.
    pub(crate) async fn end(&mut self) {
        if let Some(idle) = &mut self.idle {
            let _ = idle.release().await;
        }
        for grant in &self.ending {
            grant.until_released().await;
        }
    }
}

impl Drop for Attempts<'_> {
    fn drop(&mut self) {
        Self::forget(self.handle, &mut self.pending);
    }
}
