//! A lock that is held.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::base::error::{Error, Lost, Result};
use crate::base::options;
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::{Grant, PartKey};
use crate::engine::handle::Handle;
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;
use crate::engine::retry::retried;
use crate::telemetry::inside;

/// One hold on a lock. Dropping it releases the lock in the background.
#[allow(unnameable_types, unreachable_pub, reason = "the sealed part of a public trait takes it")]
#[allow(missing_debug_implementations, reason = "nobody outside has one")]
pub struct HeldLock {
    pub(crate) hold: Arc<Hold>,
    pub(crate) grant: Arc<Grant>,
    part: PartKey,
    /// The hold was released or leaked.
    is_over: bool,
}

impl HeldLock {
    /// Turns what the server granted until `until` into a hold. The call of this handle began at `start`.
    pub(crate) fn take(
        handle: &Handle,
        granted: &mut PendingHold,
        until: Moment,
        (start, now): (Moment, Moment),
    ) -> Result<Self> {
        if handle.lock.engine.is_closing() {
            return Err(Error::Closed); // after a shutdown, nothing would renew the hold
        }
        let lock = Arc::<LockRef>::clone(&handle.lock);
        let metrics = match handle.is_member {
            true => handle.metrics.granted_to_member(),
            false => handle.metrics.granted(start, now),
        };
        let hold = Arc::new(Hold::new(until, handle.term(now), lock, metrics));
        if !granted.take(&hold, until, now) {
            return Err(Error::Closed);
        }
        if let Some(least) = handle.terms.min_hold {
            granted.grant.lasts_until(now.plus(least), &hold, now);
        }
        Ok(Self { hold, grant: Arc::clone(&granted.grant), part: granted.part, is_over: false })
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.hold.is_found_lost(clock::now())
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.hold.deadline().since(clock::now())
    }

    /// Counts the holds of this owner that can be relied on.
    pub(crate) fn holds(&self) -> u32 {
        self.grant.live(self.part, clock::now())
    }

    pub(crate) fn times(&self) -> HoldTimes {
        HoldTimes(Arc::downgrade(&self.hold))
    }

    /// Waits until the hold is released or lost.
    pub(crate) fn ended(&self) -> impl Future<Output = Result<(), Lost>> + Send + use<> {
        let hold = Arc::clone(&self.hold);
        async move { if hold.ended().await { Ok(()) } else { Err(hold.loss()) } }
    }

    /// Waits until another owner waits for the lock.
    pub(crate) fn wanted(&self) -> impl Future<Output = ()> + Send + use<> {
        let lock = Arc::clone(&self.grant.lock);
        async move { lock.wanted().until(|is_wanted| is_wanted > 0).await }
    }

    /// Releases the hold. Fails if the hold was gone. If the client already knows so, fails at once, and the background
    /// releases what the server can still have.
    pub(crate) async fn unlock(mut self) -> Result<()> {
        let now = clock::now();
        let was_lost = self.hold.give_back(now);
        self.is_over = true;
        let owed = self.grant.give_back(self.part, &self.hold, now);
        self.hold.tell_end(now);
        if was_lost || self.hold.is_lost(now) {
            // Perhaps the watchdog found it meanwhile. The background releases what the server can still have.
            self.hold.tell_gone(now);
            return Err(Error::NotHeld(self.hold.loss()));
        }
        // Pinned where it is made, as it is large.
        let releasing = pin!(async {
            match owed {
                Some(owed) => owed.release_for_guard().await.map(|()| !self.hold.is_removed()),
                // The owner has outer holds: their number is to be shown. Boxed, as an unlock of the last hold has no use for it.
                None if self.grant.has(self.part) => Box::pin(self.grant.show(self.part)).await,
                None => Ok(true),
            }
        });
        match inside(&self.hold.span(), releasing).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::NotHeld(self.hold.loss())),
            Err(fault) => Err(Error::of_lock(self.hold.lock(), fault)),
        }
    }

    /// Leaves the hold to end with its lease.
    pub(crate) fn leak(mut self) {
        let now = clock::now();
        self.hold.give_back(now);
        self.is_over = true;
        self.grant.leak(self.part, &self.hold, now);
        self.hold.tell_end(now);
    }

    /// Renews the lease for a time that the caller chose.
    pub(crate) async fn extend(&self, lease: Duration) -> Result<()> {
        let lost = || Err(Error::Lost(self.hold.loss()));
        if self.is_lost() {
            return lost();
        }
        let invalid = |problem| Error::InvalidDuration { argument: "lease", problem };
        let lease = options::asked_lease(lease).map_err(invalid)?;
        let extended = async {
            self.grant.lock.check_runtime()?;
            let patience = self.grant.lock.engine.config.retry_timeout();
            retried(patience, || self.grant.extend(&self.hold, lease)).await
        };
        let extended = inside(&self.hold.span(), pin!(extended)).await;
        if self.is_lost() {
            return lost();
        }
        extended.map_err(|fault| Error::of_lock(self.hold.lock(), fault))
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
        if !self.is_over {
            let now = clock::now();
            self.hold.give_back(now);
            drop(self.grant.give_back(self.part, &self.hold, now));
            self.hold.tell_end(now);
        }
    }
}
