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
use crate::engine::acquire::call::{Anew, Answer, Call, CallKind, Has, Judged, Round};
use crate::engine::grant::Grant;
use crate::engine::grant::pending::PendingHold;
use crate::engine::handle::Handle;
use crate::engine::held::HeldLock;
use crate::engine::held::release::{MemberHold, PendingRelease};
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;
use crate::engine::members::{PerMember, gather};
use crate::engine::wait::machine::Discipline;
use crate::engine::wait::queue::QueueKey;
use crate::protocol::{AcquireReply, Granted, IfHeld};

/// Back-off after a split round: several owners acquired some members each, and none acquired enough.
const SPLITS: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));

/// How long a failed round waits for the release of the members that it acquired. The background does the rest.
const RELEASE_WAIT: Duration = Duration::from_millis(50);

/// The members of a lock, while one owner acquires them.
pub(crate) struct PendingMembers<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) caller: Caller,
    /// The call does not wait for other owners.
    is_try: bool,
    pub(crate) pending: PerMember<PendingHold>,
    pub(crate) call: Call,
    /// When the call began.
    pub(crate) start: Moment,
    /// When the last round ended, or the first began.
    pub(crate) at: Moment,
    splits: Backoff,
}

/// The reply of one member, and the deadline of the hold that it granted.
type Reply = Result<(AcquireReply, Moment), Fault>;

impl<'a> PendingMembers<'a> {
    /// Begins to acquire all members. Also returns the earlier grants of this owner that the server possibly still has.
    pub(crate) fn start(handle: &'a Handle, caller: Caller, is_try: bool) -> Result<(Self, PendingRelease)> {
        let (mut pending, mut ended) = (PerMember::new(), PendingRelease::default());
        let now = clock::now();
        for member in &handle.members {
            let start = member.owner.start(&member.lock, now, caller)?;
            pending.push(start.pending);
            ended.extend(start.ended);
            if member.lock.protocol.stops_readers()
                && let Some(idle) = member.lock.engine.read_grants.end_idle(&member.lock.keys.lock, now)
            {
                ended.add_attended(idle);
            }
        }
        let is_foreign = |hold: &PendingHold| hold.want > 1 && hold.grant.is_foreign(hold.owner);
        if pending.iter().any(is_foreign) {
            tracing::warn!(
                lock = &**handle.name(), re_entered_at = %caller,
                "a lock was re-entered from another task than the one that acquired it: a handle is one owner, so tasks must \
                 not share it"
            );
        }
        let stops_readers =
            handle.members[0].lock.protocol.stops_readers() && !handle.config().writer_turn().is_zero();
        let call = Call::new(pending.len(), handle.quorum, stops_readers);
        Ok((Self { handle, caller, is_try, pending, call, start: now, at: now, splits: SPLITS }, ended))
    }

    /// Makes the members of a call whose lock has one member, and whose hold another owner of this client gave.
    pub(crate) fn given(
        handle: &'a Handle,
        caller: Caller,
        pending: PendingHold,
        until: Moment,
        now: Moment,
    ) -> Self {
        let mut call = Call::new(1, 1, false);
        call.is_given(until);
        let pending = smallvec![pending];
        Self { handle, caller, is_try: false, pending, call, start: now, at: now, splits: SPLITS }
    }

    /// Returns what the call does if another owner holds the lock.
    pub(crate) fn kind(&self) -> CallKind {
        match self.is_try {
            true => CallKind::Try,
            false if self.is_reentry() => CallKind::ReEntry,
            false => CallKind::Wait,
        }
    }

    /// Whether this owner already holds a member.
    pub(crate) fn is_reentry(&self) -> bool {
        self.pending.iter().any(|hold| hold.want > 1 || hold.nested_in_write)
    }

    /// Returns the key of the queue in which waiters for a member stand.
    pub(crate) fn queue_key(&self, member: usize) -> QueueKey {
        let LockRef { protocol, keys, row, .. } = &*self.handle.members[member].lock;
        QueueKey {
            channel: self.wake_channel(member),
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

    /// Whether the last round acquired this member.
    pub(crate) fn is_granted(&self, member: usize) -> bool {
        self.call.granted_until(member).is_some()
    }

    /// Whether a copy of a first acquire can still run, or an attempt has an unknown outcome.
    pub(crate) fn may_run_late(&self) -> bool {
        self.pending.iter().any(|hold| hold.grant.may_run_late())
    }

    pub(crate) fn wake_channel(&self, member: usize) -> Arc<str> {
        self.pending[member].grant.wake_channel()
    }

    /// Attempts each member once. Unless the call is a try, the attempt also queues where a member has a queue on the
    /// server.
    pub(crate) async fn round(&mut self, waits_for: Option<usize>) -> Result<Round> {
        loop {
            let if_held = if self.is_try { IfHeld::Refuse } else { self.call.if_held(clock::now) };
            let answers = match self.pending.len() {
                1 => smallvec![(0, self.read(0, self.attempt(0, if_held).await)?)],
                _ if self.handle.needs_all() => self.attempt_in_order(if_held).await?,
                _ => self.attempt_together(if_held).await?,
            };
            self.at = clock::now();
            if let [(0, answer)] = &answers[..]
                && self.call.is_granted_alone(answer, self.at)
            {
                return Ok(Round::Granted);
            }
            let has = |member: usize| match &self.pending[member] {
                hold if hold.want > 1 => Has::Hold,
                hold if hold.grant.may_exist_on_server() => Has::Trace,
                _ => Has::Nothing,
            };
            let Judged { round, anew, is_split } = self.call.judge(answers, waits_for, has, self.at);
            let mut given_back = Vec::new();
            for Anew { member, is_given_back } in anew {
                let before = self.begin_anew(member)?;
                if is_given_back {
                    given_back.push(before);
                }
            }
            if !given_back.is_empty() {
                // The call waits at most `RELEASE_WAIT` for these releases. Then the background continues them.
                let _ = timeout(RELEASE_WAIT, PendingRelease::new(given_back).try_but(0)).await;
            }
            if is_split {
                // After a split round, every owner releases the members that it acquired. A random pause lets one owner
                // attempt before the others. Without the pause, they would split again.
                sleep(jitter::within(self.splits.pause() * 2)).await;
            }
            if let Some(round) = round {
                return Ok(round);
            }
        }
    }

    async fn attempt_together(&self, if_held: IfHeld) -> Result<PerMember<(usize, Answer)>> {
        let attempt = async |member| self.read(member, self.attempt(member, if_held).await);
        let attempts = (0..self.pending.len()).map(attempt);
        let is_enough = |answers: &[(usize, Result<Answer>)]| {
            // An error that ends the call does not count as an answer here: the call first waits for the other members,
            // and then returns the error.
            self.call.is_enough(answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()))
        };
        let answers = gather(attempts, is_enough).await;
        answers.into_iter().map(|(member, answer)| Ok((member, answer?))).collect()
    }

    async fn attempt_in_order(&mut self, if_held: IfHeld) -> Result<PerMember<(usize, Answer)>> {
        let mut answers = PerMember::new();
        for member in self.call.order() {
            let answer = self.read(member, self.attempt(member, if_held).await)?;
            let is_granted = matches!(answer, Answer::Granted { .. });
            answers.push((member, answer));
            if !is_granted {
                break;
            }
        }
        Ok(answers)
    }

    async fn attempt(&self, member: usize, if_held: IfHeld) -> Reply {
        let hold = &self.pending[member];
        let lease = self.handle.lease(&hold.grant.lock.engine.config);
        match hold.want {
            1 => hold.grant.attempt(lease, if_held).await,
            // If the owner's hold is gone, the server says so, and the call begins anew with a new id.
            count => hold.grant.reenter(count, lease).await,
        }
    }

    /// Reads the reply of one member.
    ///
    /// # Errors
    ///
    /// The reply ends the call, such as data of another type in the key.
    fn read(&self, member: usize, reply: Reply) -> Result<Answer> {
        let (reply, until) = match reply {
            Ok(reply) => reply,
            Err(fault) => return Ok(Answer::Failed(fault)),
        };
        let lock = &self.pending[member].grant.lock;
        let needs_all = self.handle.needs_all();
        Ok(match reply {
            AcquireReply::Granted(granted) => Answer::Granted {
                until,
                leaves_permits: matches!(granted, Granted::Permits { left: 1.., .. }),
            },
            AcquireReply::Lost => Answer::Gone,
            AcquireReply::OtherKind if needs_all => return Err(lock.other_kind()),
            AcquireReply::NotALock if needs_all => return Err(lock.not_a_lock()),
            AcquireReply::CannotCount if needs_all => return Err(lock.cannot_count()),
            AcquireReply::TooMany { total } => {
                lock.has_total(total);
                return Err(lock.too_many_permits(total));
            }
            // A lock that needs only a majority can be acquired without this member. So an unusable key is a fault of
            // this member, and does not end the call.
            AcquireReply::OtherKind | AcquireReply::NotALock | AcquireReply::CannotCount => {
                let used = "the key is in use as something else";
                Answer::Failed(Fault::new(FaultKind::WrongType, Sent::Refused, used))
            }
            AcquireReply::Held(left) => Answer::Held(left),
            _ => Answer::Held(None),
        })
    }

    /// Returns how long a waiting writer still lets new readers in. `None`: the call need not attempt at the end of
    /// this time.
    pub(crate) fn patience_left(&self) -> Option<Duration> {
        self.call.patience_left(clock::now)
    }

    /// Gives up the attempts on a member so far, and begins a grant with a new id. Returns the grant before.
    fn begin_anew(&mut self, member: usize) -> Result<Arc<Grant>> {
        let place = &self.handle.members[member];
        let fresh = place.owner.begin(&place.lock, clock::now(), self.caller)?;
        let before = std::mem::replace(&mut self.pending[member], fresh);
        Ok(Arc::clone(&before.grant))
    }

    /// Leaves the queues on all servers, and removes the writer's intent, so that readers are admitted again. Waits at
    /// most half of `command_timeout`.
    pub(crate) async fn leave_queues(&mut self) {
        let has_queue = self.handle.members.iter().any(|member| member.lock.protocol.queue().is_some());
        if !has_queue && !self.call.is_shown() {
            return;
        }
        let grants = self.pending.drain(..).map(|hold| Arc::clone(&hold.grant)).collect::<Vec<_>>();
        let limit = self.handle.config().command_timeout() / 2;
        let _ = timeout(limit, PendingRelease::new(grants).try_but(self.handle.spare())).await;
    }

    /// Turns the members that were granted into a hold.
    pub(crate) fn take(&mut self) -> Result<HeldLock> {
        let handle = self.handle;
        if handle.is_closing() {
            return Err(Error::Closed); // after a shutdown, nothing would renew the hold
        }
        let until = |member| self.call.granted_until(member);
        let subject = handle.subject((0..self.pending.len()).filter(|&member| until(member).is_some()));
        let deadlines = (0..self.pending.len()).map(|member| until(member).unwrap_or(Moment::PAST));
        let metrics = handle.metrics.granted(self.start, self.at);
        let hold = Arc::new(Hold::new(deadlines, handle.quorum, handle.term(self.at), subject, metrics));
        let mut held = PerMember::new();
        let mut is_given_up = false;
        for (member, pending) in self.pending.iter_mut().enumerate() {
            let Some(until) = self.call.granted_until(member) else { continue };
            if !pending.take(&hold, member, until, self.at) {
                is_given_up = true;
                continue;
            }
            if handle.can_share() && pending.want == 1 && !pending.nested_in_write {
                pending.grant.open_to_readers(handle.linger(), self.at);
            }
            handle.members[member].owner.set(&pending.grant);
            held.push(MemberHold { grant: Arc::clone(&pending.grant), owner: pending.owner, member });
        }
        let min_hold = handle.min_hold(self.at).filter(|_| !is_given_up);
        let held = HeldLock::new(Arc::clone(handle.name()), hold, held, min_hold, self.at);
        if is_given_up { Err(Error::Closed) } else { Ok(held) }
    }
}

/// An attempt that did not become a hold can block its own owner. So the owner's next acquire releases this attempt
/// first.
impl Drop for PendingMembers<'_> {
    fn drop(&mut self) {
        for (pending, member) in self.pending.drain(..).zip(&self.handle.members) {
            if let Some(grant) = pending.give_up() {
                member.owner.add_dropped(grant, clock::now());
            }
        }
    }
}
