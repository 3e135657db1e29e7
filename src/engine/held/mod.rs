//! A lock that is held, and how it is released.
//!
//! [`release`] sends the releases to all servers.

pub(crate) mod release;

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use release::{MemberHold, PendingRelease};
use tracing::Span;

use crate::base::clock::{self, Moment};
use crate::base::error::{Error, LockId, Lost, Result};
use crate::base::fault::Fault;
use crate::base::options;
use crate::base::timer::sleep;
use crate::engine::grant::Grant;
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;
use crate::engine::members::{PerMember, vote};
use crate::engine::retry::Tries;
use crate::protocol::PermitIds;
use crate::telemetry::inside;

/// How often `wanted` asks the server whether somebody waits.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(250);

/// One hold on a lock. Dropping it releases the lock in the background.
#[allow(unnameable_types, unreachable_pub, reason = "the sealed part of a public trait takes it")]
#[allow(missing_debug_implementations, reason = "nobody outside has one")]
pub struct HeldLock {
    name: Arc<str>,
    hold: Arc<Hold>,
    members: PerMember<MemberHold>,
}

impl HeldLock {
    /// `min_hold`: until when the lock stays held, even if the guard is released before, or the hold is lost for this
    /// client.
    pub(crate) fn new(
        name: Arc<str>,
        hold: Arc<Hold>,
        members: PerMember<MemberHold>,
        min_hold: Option<Moment>,
        now: Moment,
    ) -> Self {
        if let Some(until) = min_hold {
            members.iter().for_each(|member| member.grant.stays_until(until, &hold, now));
        }
        Self { name, hold, members }
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.members.iter().map(|member| &member.grant)
    }

    /// Puts later events about the hold into this span.
    pub(crate) fn begins(&self, span: Span) {
        self.hold.begins(span);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn lock(&self) -> LockId {
        self.hold.lock()
    }

    pub(crate) fn loss(&self) -> Lost {
        self.hold.loss()
    }

    /// The fencing token of the first member, if it has one.
    pub(crate) fn token(&self) -> Option<u64> {
        self.members.first()?.grant.token()
    }

    /// The ids of the permits, if this is a hold of a semaphore.
    pub(crate) fn permits(&self) -> Option<PermitIds> {
        self.members.first()?.grant.permits()
    }

    /// The fields of the holds in the locks' hashes.
    pub(crate) fn owner_id(&self) -> String {
        let ids: Vec<String> = self.members.iter().map(|member| member.grant.field()).collect();
        ids.join(", ")
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.hold.is_found_lost(clock::now())
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.hold.deadline().since(clock::now())
    }

    /// Counts the holds of this owner that can be relied on.
    pub(crate) fn holds(&self) -> u32 {
        let now = clock::now();
        self.members.iter().map(|member| member.grant.live(member.owner, now)).max().unwrap_or(0)
    }

    pub(crate) fn times(&self) -> HoldTimes {
        HoldTimes(Arc::downgrade(&self.hold))
    }

    /// Waits until the hold is released or lost.
    pub(crate) fn ended(&self) -> impl Future<Output = Result<(), Lost>> + Send + 'static {
        let hold = Arc::clone(&self.hold);
        async move { if hold.ended().await { Ok(()) } else { Err(hold.loss()) } }
    }

    /// Waits until another owner waits for one of its locks, or the hold has ended.
    pub(crate) fn wanted(&self) -> impl Future<Output = ()> + Send + 'static {
        let hold = Arc::clone(&self.hold);
        let locks: PerMember<Arc<LockRef>> =
            self.members.iter().map(|member| Arc::clone(&member.grant.lock)).collect();
        let is_wanted = async move {
            loop {
                for lock in &locks {
                    if lock.has_waiters().await {
                        return;
                    }
                }
                sleep(BETWEEN_QUESTIONS).await;
            }
        };
        async move {
            tokio::select! {
                biased;
                _ = hold.ended() => {}
                () = is_wanted => {}
            }
        }
    }

    /// Releases the hold. Fails if the hold was gone. If the client already knows so, fails at once, and the background
    /// releases what the servers can still have.
    pub(crate) async fn unlock(mut self) -> Result<()> {
        let (now, quorum) = (clock::now(), self.hold.quorum());
        let was_lost = self.hold.is_found_lost(now);
        let releasing = self.start_release(now);
        let was_held = if was_lost {
            false
        } else if releasing.is_empty() {
            true // handed over or lingering: the server keeps the hold for others
        } else {
            let released = inside(&self.hold.span(), pin!(releasing.release(quorum))).await;
            released.map_err(|fault| Error::of_lock(self.lock(), fault))?
        };
        if was_held { Ok(()) } else { Err(Error::NotHeld(self.loss())) }
    }

    /// Leaves the hold to end with its lease.
    pub(crate) fn leak(mut self) {
        let now = clock::now();
        self.hold.give_back(now);
        for member in self.members.drain(..) {
            member.grant.leak(&self.hold, now);
        }
    }

    /// Renews the lease for a time that the caller chose.
    pub(crate) async fn extend(&self, lease: Duration) -> Result<()> {
        let lost = || Err(Error::Lost(self.loss()));
        if self.is_lost() {
            return lost();
        }
        let invalid = |problem| Error::InvalidDuration { argument: "lease", problem };
        let lease = options::asked_lease(lease).map_err(invalid)?;
        let extends = self.members.iter().map(|member| self.extend_member(member, lease));
        let extended = inside(&self.hold.span(), pin!(vote(extends, self.hold.quorum()))).await;
        if self.is_lost() {
            return lost();
        }
        match extended {
            Ok(true) => Ok(()),
            Ok(false) => lost(),
            Err(fault) => Err(Error::of_lock(self.lock(), fault)),
        }
    }

    /// Renews the lease of one member. False: the server no longer has the hold of this member.
    async fn extend_member(&self, member: &MemberHold, lease: Duration) -> Result<bool, Fault> {
        let MemberHold { grant, member, .. } = member;
        grant.lock.check_runtime()?;
        let mut tries = Tries::new(grant.lock.engine.config.retry_timeout());
        loop {
            match grant.extend(&self.hold, *member, lease).await {
                Err(fault) => tries.again(fault).await?,
                Ok(()) => return Ok(self.hold.relies_on(*member, clock::now())),
            }
        }
    }

    /// Hands the hold over, lets it linger, or begins its release. The result sends the release; it is empty if the
    /// server keeps the hold for others.
    fn start_release(&mut self, now: Moment) -> PendingRelease {
        self.hold.give_back(now);
        if let [only] = &self.members[..]
            && (only.grant.hand_over(&self.hold, now) || only.grant.leave_to_linger(&self.hold, now))
        {
            self.members.clear();
        }
        PendingRelease::of_attended(self.members.drain(..).map(|member| {
            member.grant.give_back(&self.hold, now);
            member.grant
        }))
    }
}

/// Says until when a hold can be relied on, and does not keep the hold. Weak, because a hold keeps its client alive.
#[derive(Clone)]
pub(crate) struct HoldTimes(Weak<Hold>);

impl HoldTimes {
    /// Whether the hold is lost, or was released.
    pub(crate) fn is_lost(&self) -> bool {
        self.kept().is_none_or(|hold| hold.is_found_lost(clock::now()))
    }

    /// Returns how long the hold can be relied on. Zero: the hold is lost, or was released.
    pub(crate) fn remaining(&self) -> Duration {
        self.kept().map_or(Duration::ZERO, |hold| hold.deadline().since(clock::now()))
    }

    /// Returns the hold until its guard ends. The reference alone does not say so: a future that waits for the loss, or
    /// a release under way, can keep the hold for longer.
    fn kept(&self) -> Option<Arc<Hold>> {
        self.0.upgrade().filter(|hold| !hold.is_given_back())
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Without members, the hold was released or leaked already, and there is no need to read the clock.
        if !self.members.is_empty() {
            drop(self.start_release(clock::now()));
        }
    }
}
