//! One attempt on each member of a lock.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::error::{Error, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::jitter::{self, Backoff};
use crate::base::timer::{sleep, timeout};
use crate::engine::acquire::decision::{CallKind, Round};
use crate::engine::acquire::writer_intent::WriterIntent;
use crate::engine::grant::Grant;
use crate::engine::grant::pending::PendingHold;
use crate::engine::handle::Handle;
use crate::engine::held::HeldLock;
use crate::engine::held::release::{MemberHold, PendingRelease};
use crate::engine::hold::Hold;
use crate::engine::hold::lease::quorum_deadline;
use crate::engine::lock_ref::LockRef;
use crate::engine::members::{PerMember, gather, is_decided};
use crate::engine::wait::queue::QueueKey;
use crate::protocol::{AcquireReply, Granted, IfHeld};

/// Back-off after a split round: several owners acquired some members each, and none acquired enough.
const SPLITS: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));

/// A failed round waits this long for the release of the members that it was granted. The background does the rest.
const RELEASE_WAIT: Duration = Duration::from_millis(50);

/// If this many rounds in a row released something, a lock that needs all members pauses after each further such round.
const ROUNDS_BEFORE_PAUSE: u32 = 3;

/// The members of a lock, while one owner acquires them.
pub(crate) struct PendingMembers<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) caller: Caller,
    /// The call does not wait for other owners.
    is_try: bool,
    pub(crate) pending: PerMember<PendingMember>,
    /// When the call began.
    pub(crate) start: Moment,
    /// When the last round ended, or the first began.
    pub(crate) at: Moment,
    /// Rounds in a row that were granted some members, and released them.
    given_back: u32,
    splits: Backoff,
    /// The member that gave no answer in the last round.
    silent: Option<usize>,
    writer_intent: WriterIntent,
}

pub(crate) struct PendingMember {
    pub(crate) hold: PendingHold,
    /// The deadline of the lease that the last round was granted for this member.
    pub(crate) granted_until: Option<Moment>,
    /// More permits of the semaphore were available when the last round was granted some.
    pub(crate) leaves_permits: bool,
    /// The last round was granted it, and too few replicas have the hold: too little to rely on.
    pub(crate) is_unreplicated: bool,
}

/// The reply of one member, and the deadline of what it granted.
type Reply = Result<(AcquireReply, Moment), Fault>;

impl<'a> PendingMembers<'a> {
    /// Begins with all members. Also returns the earlier grants of this owner that the server possibly still has.
    pub(crate) fn start(handle: &'a Handle, caller: Caller, is_try: bool) -> Result<(Self, PendingRelease)> {
        let (mut pending, mut ended) = (PerMember::new(), PendingRelease::default());
        let now = clock::now();
        for member in &handle.members {
            let start = member.owner.start(&member.lock, now, caller)?;
            pending.push(PendingMember {
                hold: start.pending,
                granted_until: None,
                leaves_permits: false,
                is_unreplicated: false,
            });
            ended.extend(start.ended);
        }
        let is_foreign =
            |member: &PendingMember| member.hold.want > 1 && member.hold.grant.is_foreign(member.hold.owner);
        if pending.iter().any(is_foreign) {
            tracing::warn!(
                lock = &**handle.name(), re_entered_at = %caller,
                "a lock was re-entered from another task than the one that acquired it: a handle is one owner, so tasks must \
                 not share it"
            );
        }
        let members = Self {
            handle,
            caller,
            is_try,
            pending,
            start: now,
            at: now,
            given_back: 0,
            splits: SPLITS,
            silent: None,
            writer_intent: WriterIntent::default(),
        };
        Ok((members, ended))
    }

    /// What the call does if another owner has the lock.
    pub(crate) fn kind(&self) -> CallKind {
        match self.is_try {
            true => CallKind::Try,
            false if self.is_reentry() => CallKind::ReEntry,
            false => CallKind::Wait,
        }
    }

    /// Whether this owner holds a member already.
    pub(crate) fn is_reentry(&self) -> bool {
        self.pending.iter().any(|member| member.hold.want > 1 || member.hold.nested_in_write)
    }

    /// The queue in which waiters for a member stand.
    pub(crate) fn queue_key(&self, member: usize) -> QueueKey {
        let LockRef { protocol, keys, row, .. } = &*self.handle.members[member].lock;
        QueueKey {
            channel: self.wake_channel(member),
            lock: Arc::clone(&keys.lock),
            is_shared: protocol.is_shared(),
            has_place: protocol.queue().is_some(),
            has_permits: protocol.has_permits(),
            row: *row,
        }
    }

    /// Whether the last round was granted this member.
    pub(crate) fn is_granted(&self, member: usize) -> bool {
        self.pending[member].granted_until.is_some()
    }

    /// Whether a copy of a first acquire can still run, or an attempt has an unknown outcome.
    pub(crate) fn may_run_late(&self) -> bool {
        self.pending.iter().any(|member| member.hold.grant.may_run_late())
    }

    pub(crate) fn wake_channel(&self, member: usize) -> Arc<str> {
        self.pending[member].hold.grant.wake_channel()
    }

    /// Attempts each member once. Unless the call is a try, the attempt also queues where a member has a queue on the server.
    pub(crate) async fn round(&mut self, waits_for: Option<usize>) -> Result<Round> {
        loop {
            let if_held = if self.is_try { IfHeld::Refuse } else { self.writer_intent.if_held() };
            let replies = match self.pending.len() {
                1 => smallvec![(0, self.attempt(0, if_held).await)],
                _ if self.handle.needs_all() => self.attempt_in_order(if_held).await,
                _ => self.attempt_together(if_held).await,
            };
            if let Some(round) = self.judge(replies, waits_for).await? {
                return Ok(round);
            }
        }
    }

    async fn attempt_together(&self, if_held: IfHeld) -> PerMember<(usize, Reply)> {
        let (all, quorum) = (self.pending.len(), self.handle.quorum);
        let attempts = (0..all).map(|member| self.attempt(member, if_held));
        gather(attempts, |replies| {
            let granted = replies.iter().filter(|(_, reply)| is_granted(reply)).count();
            // Faults do not decide: perhaps the answers of the other servers are enough.
            let answered = replies.iter().filter(|(_, reply)| reply.is_ok()).count();
            is_decided(granted, answered - granted, quorum, all)
        })
        .await
        .into()
    }

    /// The order of the members is the same for all clients, so the owner that is granted the first member continues with the
    /// next. But a member that gave no answer is attempted first, so that nobody holds the others while that member is silent.
    async fn attempt_in_order(&mut self, if_held: IfHeld) -> PerMember<(usize, Reply)> {
        let silent = self.silent.take();
        let others = (0..self.pending.len()).filter(|&member| Some(member) != silent);
        let mut replies = PerMember::new();
        for member in silent.into_iter().chain(others) {
            let reply = self.attempt(member, if_held).await;
            let is_granted = is_granted(&reply);
            replies.push((member, reply));
            if !is_granted {
                break;
            }
        }
        replies
    }

    fn attempt(&self, member: usize, if_held: IfHeld) -> impl Future<Output = Reply> + Send {
        let hold = &self.pending[member].hold;
        let lease = self.handle.lease(&hold.grant.lock.engine.config);
        // A re-entry does not wait: if its hold is gone, the call begins anew.
        let if_held = if hold.want > 1 { IfHeld::Refuse } else { if_held };
        hold.grant.attempt(hold.want, lease, if_held)
    }

    /// How long a writer still lets new readers in. `None`: the time of the next attempt does not depend on that.
    pub(crate) fn patience_left(&self) -> Option<Duration> {
        self.writer_intent.left()
    }

    /// Decides what the replies mean. `None`: a hold that the call wanted to re-enter is gone, so begin anew.
    async fn judge(
        &mut self,
        replies: PerMember<(usize, Reply)>,
        waits_for: Option<usize>,
    ) -> Result<Option<Round>> {
        let mut refused: Option<(usize, Option<Duration>)> = None;
        let mut failed: Option<(usize, Fault)> = None;
        let (mut faults, mut is_lost) = (0, false);
        // A call that waits for one member continues to wait for that member, as long as that member refuses.
        let replaces = |known: Option<usize>, member| known.is_none() || waits_for == Some(member);
        for (member, reply) in replies {
            let lock = &self.handle.members[member].lock;
            let fault = match reply {
                Ok((AcquireReply::Granted(granted), until)) => {
                    let pending = &mut self.pending[member];
                    pending.granted_until = Some(until);
                    pending.leaves_permits = matches!(granted, Granted::Permits { left: 1.., .. });
                    continue;
                }
                Ok((AcquireReply::Lost, _)) => {
                    self.replace_grant(member)?;
                    is_lost = true;
                    continue;
                }
                Ok((AcquireReply::OtherKind, _)) if self.handle.needs_all() => return Err(lock.other_kind()),
                Ok((AcquireReply::NotALock, _)) if self.handle.needs_all() => return Err(lock.not_a_lock()),
                Ok((AcquireReply::CannotCount, _)) if self.handle.needs_all() => {
                    return Err(lock.cannot_count());
                }
                Ok((AcquireReply::TooMany { total }, _)) => {
                    lock.has_total(total);
                    return Err(lock.too_many_permits(total));
                }
                // A majority can do without this member.
                Ok((AcquireReply::OtherKind | AcquireReply::NotALock | AcquireReply::CannotCount, _)) => {
                    Fault::new(FaultKind::WrongType, Sent::Refused, "the key is in use as something else")
                }
                Ok((reply, _)) => {
                    let left = if let AcquireReply::Held(left) = reply { left } else { None };
                    if replaces(refused.map(|(known, _)| known), member) {
                        refused = Some((member, left));
                    }
                    continue;
                }
                Err(fault) => fault,
            };
            self.pending[member].is_unreplicated = matches!(fault.kind, FaultKind::TooFewReplicas { .. });
            faults += 1;
            if replaces(failed.as_ref().map(|(known, _)| *known), member) {
                failed = Some((member, fault));
            }
        }
        self.at = clock::now();
        let deadlines = self.pending.iter().map(|member| member.granted_until.unwrap_or(Moment::PAST));
        if quorum_deadline(deadlines, self.handle.quorum) > self.at {
            return Ok(Some(Round::Granted));
        }
        if is_lost {
            return Ok(None);
        }
        if refused.is_some() {
            self.writer_intent.refused(self.handle, self.at);
        }
        self.release_partial_round(refused.map(|(member, _)| member)).await?;
        self.silent = failed.as_ref().map(|(member, _)| *member);
        // With so many faults there is no quorum, even if the member that refused becomes free.
        let is_hopeless = self.pending.len() - faults < self.handle.quorum;
        Ok(Some(match (refused, failed) {
            (Some((member, left)), None) => Round::Refused { member, left },
            (Some((member, left)), Some(_)) if !is_hopeless => Round::Refused { member, left },
            (_, Some((member, fault))) => Round::Failed { member, fault },
            (None, None) => {
                let late = "the lease had almost ended when the answer came";
                let fault = Fault::new(FaultKind::TimedOut, Sent::Unknown, late);
                Round::Failed { member: waits_for.unwrap_or(0), fault }
            }
        }))
    }

    /// Releases the members that were granted in a failed round. So while the owner waits for one member, it keeps nothing except
    /// its place in that member's queue. The next attempt uses new ids, because a late copy of these releases can still run. If
    /// no member refused, a member that gave no answer is attempted again with the same id.
    ///
    /// A member that was re-entered stays held: with a new id, this owner would wait for itself.
    async fn release_partial_round(&mut self, waits_for: Option<usize>) -> Result<()> {
        let mut granted = Vec::new();
        for member in 0..self.pending.len() {
            let PendingMember { hold, granted_until, is_unreplicated, .. } = &mut self.pending[member];
            // A hold that too few replicas have is released, too. Then the next attempt writes again: `WAIT` waits only for writes.
            let was_granted = granted_until.take().is_some() || std::mem::take(is_unreplicated);
            let may_be_held =
                waits_for.is_some_and(|other| other != member) && hold.grant.may_exist_on_server();
            if hold.want == 1 && (was_granted || may_be_held) {
                let given_up = self.replace_grant(member)?;
                if was_granted {
                    granted.push(given_up);
                }
            }
        }
        self.given_back = if granted.is_empty() { 0 } else { self.given_back + 1 };
        let is_split = self.given_back > if self.handle.needs_all() { ROUNDS_BEFORE_PAUSE } else { 0 };
        // The background continues with releases that take longer than this.
        let _ = timeout(RELEASE_WAIT, PendingRelease::new(granted).try_but(0)).await;
        if is_split {
            // Other owners hold the other members, and release them now. The first owner that tries again is granted all members.
            // A lock that needs all members pauses only after several such rounds: the order of the members prevents a split if
            // all clients use the same order.
            sleep(jitter::within(self.splits.pause() * 2)).await;
        }
        Ok(())
    }

    /// Gives up the attempts on a member so far, and begins with a new grant.
    fn replace_grant(&mut self, member: usize) -> Result<Arc<Grant>> {
        let place = &self.handle.members[member];
        let fresh = place.owner.begin(&place.lock, clock::now(), self.caller)?;
        let before = std::mem::replace(&mut self.pending[member].hold, fresh);
        Ok(Arc::clone(&before.grant))
    }

    /// Leaves all queues on servers, and lets readers in again. Does not wait for long.
    pub(crate) async fn leave_queues(&mut self) {
        let has_queue = self.handle.members.iter().any(|member| member.lock.protocol.queue().is_some());
        if !has_queue && !self.writer_intent.is_shown() {
            return;
        }
        let grants = self.pending.drain(..).map(|member| Arc::clone(&member.hold.grant)).collect::<Vec<_>>();
        let limit = self.handle.config().command_timeout() / 2;
        let _ = timeout(limit, PendingRelease::new(grants).try_but(self.handle.spare())).await;
    }

    /// Turns the members that were granted into a hold.
    pub(crate) fn take(&mut self) -> Result<HeldLock> {
        let handle = self.handle;
        if handle.is_closing() {
            return Err(Error::Closed); // nothing would renew it
        }
        let is_granted = |&member: &usize| self.pending[member].granted_until.is_some();
        let subject = handle.subject((0..self.pending.len()).filter(is_granted));
        let deadlines = self.pending.iter().map(|member| member.granted_until.unwrap_or(Moment::PAST));
        let metrics = handle.metrics.granted(self.start, self.at);
        let hold = Arc::new(Hold::new(deadlines, handle.quorum, handle.term(self.at), subject, metrics));
        let mut held = PerMember::new();
        let mut is_given_up = false;
        for (member, pending) in self.pending.iter_mut().enumerate() {
            let Some(until) = pending.granted_until else { continue };
            if !pending.hold.take(&hold, member, until, self.at) {
                is_given_up = true;
                continue;
            }
            if handle.can_share() && pending.hold.want == 1 && !pending.hold.nested_in_write {
                pending.hold.grant.open_to_readers();
            }
            handle.members[member].owner.set(&pending.hold.grant);
            held.push(MemberHold {
                grant: Arc::clone(&pending.hold.grant),
                owner: pending.hold.owner,
                member,
            });
        }
        let min_hold = handle.min_hold(self.at).filter(|_| !is_given_up);
        let held = HeldLock::new(Arc::clone(handle.name()), hold, held, min_hold, self.at);
        if is_given_up { Err(Error::Closed) } else { Ok(held) }
    }
}

/// An attempt that did not become a hold can block its own owner. So the owner's next acquire releases this attempt first.
impl Drop for PendingMembers<'_> {
    fn drop(&mut self) {
        for (pending, member) in self.pending.drain(..).zip(&self.handle.members) {
            if let Some(grant) = pending.hold.give_up() {
                member.owner.add_dropped(grant, clock::now());
            }
        }
    }
}

const fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Ok((AcquireReply::Granted(_), _)))
}
