//! A lock handle: a lock, its owner, and how long a hold lasts.

use std::sync::Arc;
use std::time::Duration;

use super::hold::Term;
use super::line;
use super::lock_ref::LockRef;
use crate::base::clock::{self, Moment};
use crate::base::config::LockConfig;
use crate::base::error::{ConfigError, Result};
use crate::base::options::{Lease, LockOptions, Terms};
use crate::engine::grant::owner_grants::OwnerGrants;
use crate::protocol::{LockType, Protocol};
use crate::telemetry::OfLock;

/// One lock on one server, for one owner.
pub(crate) struct Handle {
    pub(crate) lock: Arc<LockRef>,
    pub(crate) owner: Arc<OwnerGrants>,
    pub(crate) terms: Terms,
    pub(crate) metrics: OfLock,
    /// It is acquired together with others, so it shares no hold with other owners, and takes none over.
    pub(crate) is_member: bool,
}

impl Handle {
    /// Makes the handle for the other side of a read-write lock, for the same owner.
    pub(crate) fn other_side(&self, protocol: &'static dyn Protocol) -> Self {
        Self::of(LockRef { protocol, ..LockRef::clone(&self.lock) }, Arc::clone(&self.owner))
    }

    pub(crate) fn of(lock: LockRef, owner: Arc<OwnerGrants>) -> Self {
        let metrics = lock.engine.metrics.of(lock.protocol.lock_type(), None);
        Self { lock: Arc::new(lock), owner, terms: Terms::default(), metrics, is_member: false }
    }

    /// Makes a handle with the same terms for this lock. The handle is a new owner.
    pub(crate) fn for_lock(&self, lock: Arc<LockRef>) -> Self {
        let metrics = self.metrics.clone();
        Self { lock, owner: Arc::default(), terms: self.terms, metrics, is_member: false }
    }

    pub(crate) fn set_options(&mut self, options: &LockOptions) {
        self.terms = options.terms();
        self.metrics = self.lock.engine.metrics.of(self.lock_type(), options.shared_group());
    }

    /// The name, as the user gave it.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.lock.name
    }

    pub(crate) fn lock_type(&self) -> LockType {
        self.lock.protocol.lock_type()
    }

    pub(crate) fn config(&self) -> &LockConfig {
        &self.lock.engine.config
    }

    /// Counts the holds that can be relied on now.
    pub(crate) fn hold_count(&self) -> u32 {
        self.owner.live(self.is_shared(), clock::now())
    }

    /// Refuses names and types that cannot be used, and clients that are closed.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_lock()?;
        self.lock.engine.check_open()
    }

    /// Refuses a name that cannot be used, a type of lock that the server does not support, and an option that has no effect on
    /// this type.
    pub(crate) fn check_lock(&self) -> Result<()> {
        if self.terms.linger.is_some() && (self.is_member || !self.lock.protocol.is_read_write()) {
            return Err(ConfigError::new("linger", "has an effect on read locks only").into());
        }
        self.lock.check_name()?;
        self.lock.check_type()
    }

    /// The lease that an attempt asks for.
    pub(crate) fn lease(&self) -> Duration {
        self.terms.first_lease(self.config().watchdog_lease())
    }

    /// What the call of this handle waits for in a line. A hold of another owner has the lease of the watchdog.
    pub(crate) fn standing(&self) -> line::state::Terms {
        let can_take_over = self.lock.can_be_passed_on() && !self.is_member && self.terms.are_usual();
        line::state::Terms {
            lease: self.lease(),
            count: self.lock.permits.count(),
            is_usual: can_take_over || self.can_share(),
            linger: self.terms.linger,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.lock.protocol.is_shared()
    }

    /// Whether readers of this handle share a hold with other readers of the client.
    pub(crate) fn can_share(&self) -> bool {
        self.is_shared() && !self.is_member && self.terms.are_usual() && !self.config().sharing().is_zero()
    }

    /// How long a hold lasts if it begins now.
    pub(crate) fn term(&self, now: Moment) -> Term {
        let Terms { lease, max_hold, is_of_leader, .. } = self.terms;
        // If the first lease lasts until `max_hold` is over, the watchdog has nothing to renew.
        let is_bounded = max_hold.is_some_and(|most| most <= self.lease());
        let lease = if is_bounded { Lease::Fixed(self.lease()) } else { lease };
        let ends = max_hold.map(|most| now.plus(most));
        Term { lease, ends, is_bounded, is_of_leader, is_member: self.is_member }
    }
}
