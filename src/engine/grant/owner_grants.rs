//! What one owner holds on one name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use smallvec::SmallVec;

use crate::base::Caller;
use crate::base::clock::Moment;
use crate::base::error::{Error, Result};
use crate::base::sync::lock;
use crate::engine::grant::part::OwnerKey;
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::{Grant, Machine};
use crate::engine::lock_ref::LockRef;

impl Default for OwnerKey {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What one owner holds on one name.
#[derive(Default)]
pub(crate) struct OwnerGrants {
    pub(crate) key: OwnerKey,
    grants: Mutex<Grants>,
    /// The `Owner` to which this name belongs. `None`: a handle is the owner.
    names: Option<Arc<OwnerNames>>,
}

/// What one `Owner` holds, on all names.
#[derive(Default)]
pub(crate) struct OwnerNames(Mutex<Vec<Weak<OwnerGrants>>>);

impl OwnerNames {
    /// Adds a name.
    pub(crate) fn add(self: &Arc<Self>) -> Arc<OwnerGrants> {
        let grants = Arc::new(OwnerGrants { names: Some(Arc::clone(self)), ..OwnerGrants::default() });
        let mut names = lock(&self.0);
        if names.len() == names.capacity() {
            names.retain(|grants| grants.strong_count() > 0);
        }
        names.push(Arc::downgrade(&grants));
        grants
    }

    /// Returns what the owner has on each name.
    fn all(&self) -> Vec<Arc<OwnerGrants>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

#[derive(Default)]
struct Grants {
    /// Of a read-write lock, the write hold.
    exclusive: Option<Arc<Grant>>,
    /// Of a read-write lock, the read hold. An owner can have both.
    shared: Option<Arc<Grant>>,
    /// Dropped attempts, and ended holds that are not released yet: they can block their own owner.
    dropped: Vec<Arc<Grant>>,
}

/// The beginning of an acquire.
pub(crate) struct Start {
    pub(crate) pending: PendingHold,
    /// Earlier grants of this owner that the server possibly still has. They have to be released first.
    pub(crate) ended: SmallVec<[Arc<Grant>; 1]>,
}

impl OwnerGrants {
    /// Re-enters the owner's grant, or begins a new one.
    ///
    /// # Errors
    ///
    /// The owner has a hold on this name that excludes the new one.
    pub(crate) fn start(&self, target: &Arc<LockRef>, now: Moment, caller: Caller) -> Result<Start> {
        let is_shared = target.protocol.is_shared();
        // `over` is dropped after the mutex is unlocked: the drop of a grant can end the span of a hold, and that runs
        // code of the user.
        let mut over = SmallVec::<[_; 1]>::new();
        let mut grants = lock(&self.grants);
        // The usual case: the grant before is over, and is not asked further questions.
        let is_over = |machine: &mut Machine| machine.parts.is_empty() && !machine.owes_release(now);
        over.extend(grants.of(is_shared).take_if(|grant| grant.ask(is_over)));
        grants.check_family(self.key, target, now)?;
        let reenter = |grant| PendingHold::reenter(grant, self.key, now);
        if let Some(pending) = grants.of(is_shared).as_ref().and_then(reenter) {
            return Ok(Start { pending, ended: SmallVec::new() });
        }
        let pending = grants.begin(self.key, target, now, caller)?;
        // The list keeps earlier grants until they are released. If this call is dropped before that, the owner's next
        // acquire still finds them, and releases them first.
        let same = grants.of(is_shared).take();
        grants.dropped.extend(same);
        over.extend(grants.take_released(now));
        let is_ended = |other: &Arc<Grant>| other.live(self.key, now) == 0 && other.owes_release(now);
        let other = grants.of(!is_shared).as_ref().filter(|other| is_ended(other)).cloned();
        let ended = grants.dropped.iter().cloned().chain(other).collect();
        drop(grants);
        self.look_at_lender(&pending, now);
        Ok(Start { pending, ended })
    }

    /// Begins a new grant.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(crate) fn begin(&self, target: &Arc<LockRef>, now: Moment, caller: Caller) -> Result<PendingHold> {
        let pending = lock(&self.grants).begin(self.key, target, now, caller)?;
        self.look_at_lender(&pending, now);
        Ok(pending)
    }

    /// Schedules the end of the write hold that lends its id to a read hold: the server can keep the write hold for
    /// longer than it lasts.
    fn look_at_lender(&self, pending: &PendingHold, now: Moment) {
        if pending.nested_in_write {
            let write = lock(&self.grants).exclusive.clone();
            write.iter().for_each(|write| write.look(now));
        }
    }

    /// Sets the grant that the owner holds from now on.
    pub(crate) fn set(&self, grant: &Arc<Grant>) {
        let is_shared = grant.lock.protocol.is_shared();
        // The binding lives longer than the mutex guard of this statement, so the previous grant is dropped after
        // unlocking.
        let _before = lock(&self.grants).of(is_shared).replace(Arc::clone(grant));
    }

    /// Remembers a dropped attempt, if the next acquire has to release it first.
    pub(crate) fn add_dropped(&self, grant: Arc<Grant>, now: Moment) {
        if !grant.owes_release(now) {
            return;
        }
        let mut over = SmallVec::<[_; 1]>::new(); // dropped after unlocking, as in `start`
        let mut grants = lock(&self.grants);
        // Before the list would grow, released grants are removed. So its size follows the number of grants that still
        // need a release.
        if grants.dropped.len() == grants.dropped.capacity() {
            over.extend(grants.take_released(now));
        }
        grants.dropped.push(grant);
    }

    /// Counts the holds that can be relied on now.
    pub(crate) fn live(&self, is_shared: bool, now: Moment) -> u32 {
        lock(&self.grants).of(is_shared).as_ref().map_or(0, |grant| grant.live(self.key, now))
    }

    /// Reserves what the same `Owner` holds now, see [`Grant::reserve`]. Empty: the handle does not belong to an `Owner`.
    pub(crate) fn reserve_all(&self, now: Moment) -> Vec<Arc<Grant>> {
        self.names.iter().flat_map(|names| names.all()).flat_map(|grants| grants.reserve(now)).collect()
    }

    fn reserve(&self, now: Moment) -> Vec<Arc<Grant>> {
        let grants = lock(&self.grants);
        grants.all().filter(|grant| grant.reserve(self.key, now)).cloned().collect()
    }

    /// Whether the owner holds nothing on this name, and nothing has to be released.
    pub(crate) fn is_idle(&self, now: Moment) -> bool {
        let grants = lock(&self.grants);
        grants.all().all(|grant| grant.live(self.key, now) == 0 && !grant.is_owed(now))
            && !grants.dropped.iter().any(|grant| grant.owes_release(now))
    }
}

impl Grants {
    fn all(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.exclusive.iter().chain(&self.shared)
    }

    const fn of(&mut self, is_shared: bool) -> &mut Option<Arc<Grant>> {
        if is_shared { &mut self.shared } else { &mut self.exclusive }
    }

    /// Removes the dropped grants that are released by now.
    fn take_released(&mut self, now: Moment) -> impl Iterator<Item = Arc<Grant>> {
        self.dropped.extract_if(.., move |grant| !grant.owes_release(now))
    }

    /// Fails if the owner holds a lock of another family on this name.
    fn check_family(&self, owner: OwnerKey, target: &LockRef, now: Moment) -> Result<()> {
        let held = self.all().filter(|grant| grant.live(owner, now) > 0);
        let mut families = held.map(|grant| grant.lock.protocol.family());
        match families.find(|&found| found != target.protocol.family()) {
            Some(found) => Err(Error::WrongKind { lock: target.id(), found }),
            None => Ok(()),
        }
    }

    /// An owner that holds the write lock can also read. An owner that holds the read lock cannot write: it would wait
    /// for itself.
    fn begin(
        &self,
        owner: OwnerKey,
        target: &Arc<LockRef>,
        now: Moment,
        caller: Caller,
    ) -> Result<PendingHold> {
        let is_live = |grant: &&Arc<Grant>| grant.live(owner, now) > 0;
        if !target.protocol.is_shared() && self.shared.as_ref().is_some_and(|grant| is_live(&grant)) {
            return Err(Error::UpgradeWouldDeadlock(target.id()));
        }
        let write = self.exclusive.as_ref().filter(|write| write.lends(owner, now));
        Ok(PendingHold::acquire(Arc::clone(target), write, owner, caller))
    }
}
