//! What one owner holds on one name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use smallvec::SmallVec;

use crate::base::Caller;
use crate::base::clock::Moment;
use crate::base::error::{Error, Result};
use crate::base::sync::lock;
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::{Grant, OwnerKey, PartKey};
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
    held: BothSides,
    /// Grants whose release is under way: they can block their own owner.
    ending: Vec<Arc<Grant>>,
}

/// What the owner holds exclusively, and of a read-write lock its read hold. An owner can have both.
type BothSides = [Option<Held>; 2];

/// What the owner has of one grant.
#[derive(Clone)]
struct Held {
    grant: Arc<Grant>,
    part: PartKey,
}

impl Held {
    fn live(&self, now: Moment) -> u32 {
        self.grant.live(self.part, now)
    }
}

/// The beginning of an acquire.
pub(crate) struct Start {
    pub(crate) pending: PendingHold,
    /// Earlier grants of this owner, whose release is under way. The acquire waits for their end.
    pub(crate) ending: SmallVec<[Arc<Grant>; 1]>,
}

impl OwnerGrants {
    /// Re-enters the owner's grant, or begins a new one.
    ///
    /// # Errors
    ///
    /// The owner has a hold on this name that excludes the new one.
    pub(crate) fn start(&self, target: &Arc<LockRef>, now: Moment, caller: Caller) -> Result<Start> {
        let side = usize::from(target.protocol.is_shared());
        let held = self.held();
        check_family(&held, target, now)?;
        let reenter = |held: &Held| PendingHold::reenter(&held.grant, held.part, now);
        if let Some(pending) = held[side].as_ref().and_then(reenter) {
            return Ok(Start { pending, ending: SmallVec::new() });
        }
        let pending = self.begin_beside(&held, target, now, caller)?;
        let mut ending: SmallVec<[_; 1]> = held.into_iter().flatten().map(|held| held.grant).collect();
        // Dropped after unlocking: the drop of a grant can run code of the user.
        let _before = {
            let mut grants = lock(&self.grants);
            ending.extend(grants.ending.drain(..));
            grants.held[side].take()
        };
        ending.retain(|grant| grant.ends(now));
        if !ending.is_empty() {
            // If this call is dropped before they have ended, the owner's next acquire still finds them.
            lock(&self.grants).ending.extend(ending.iter().cloned());
        }
        Ok(Start { pending, ending })
    }

    /// Begins a new grant.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(crate) fn begin(&self, target: &Arc<LockRef>, now: Moment, caller: Caller) -> Result<PendingHold> {
        let held = self.held();
        check_family(&held, target, now)?;
        self.begin_beside(&held, target, now, caller)
    }

    /// An owner that holds the write lock can also read. An owner that holds the read lock cannot write: it would wait for itself.
    fn begin_beside(
        &self,
        [exclusive, shared]: &BothSides,
        target: &Arc<LockRef>,
        now: Moment,
        caller: Caller,
    ) -> Result<PendingHold> {
        let write = match target.protocol.is_shared() {
            true => exclusive.as_ref().filter(|write| write.grant.lends(write.part, now)),
            false if shared.as_ref().is_some_and(|read| read.live(now) > 0) => {
                return Err(Error::UpgradeWouldDeadlock(target.id()));
            }
            false => None,
        };
        Ok(PendingHold::acquire(Arc::clone(target), write.map(|write| &write.grant), self.key, caller))
    }

    fn held(&self) -> BothSides {
        lock(&self.grants).held.clone()
    }

    /// Sets the grant that the owner holds from now on.
    pub(crate) fn set(&self, pending: &PendingHold) {
        let side = usize::from(pending.grant.lock.protocol.is_shared());
        let held = Held { grant: Arc::clone(&pending.grant), part: pending.part };
        // The binding lives longer than the mutex guard of this statement, so the previous grant is dropped after
        // unlocking.
        let _before = lock(&self.grants).held[side].replace(held);
    }

    /// Remembers an attempt that was given up: its release has to end before the next acquire.
    pub(crate) fn remembers(&self, grant: &Arc<Grant>) {
        if grant.blocks() {
            // Those that have ended are dropped after unlocking.
            let before = std::mem::take(&mut lock(&self.grants).ending);
            let (mut ending, _ended): (Vec<_>, Vec<_>) = before.into_iter().partition(|grant| grant.blocks());
            ending.push(Arc::clone(grant));
            lock(&self.grants).ending = ending;
        }
    }

    /// Counts the holds that can be relied on now.
    pub(crate) fn live(&self, is_shared: bool, now: Moment) -> u32 {
        self.held()[usize::from(is_shared)].as_ref().map_or(0, |held| held.live(now))
    }

    /// Reserves what the same `Owner` holds now, see [`Grant::reserve`]. Empty: the handle does not belong to an `Owner`.
    pub(crate) fn reserve_all(&self, now: Moment) -> Vec<Arc<Grant>> {
        self.names.iter().flat_map(|names| names.all()).flat_map(|grants| grants.reserve(now)).collect()
    }

    fn reserve(&self, now: Moment) -> impl Iterator<Item = Arc<Grant>> + use<> {
        let held = self.held().into_iter().flatten();
        held.filter(move |held| held.grant.reserve(held.part, now)).map(|held| held.grant)
    }

    /// Whether the owner holds nothing on this name, and nothing has to be released.
    pub(crate) fn is_idle(&self, now: Moment) -> bool {
        let (held, ending) = {
            let grants = lock(&self.grants);
            (grants.held.clone(), grants.ending.clone())
        };
        held.iter().flatten().all(|held| held.live(now) == 0 && !held.grant.blocks())
            && !ending.iter().any(|grant| grant.blocks())
    }
}

/// Fails if the owner holds a lock of another family on this name.
fn check_family(held: &BothSides, target: &LockRef, now: Moment) -> Result<()> {
    for held in held.iter().flatten() {
        let found = held.grant.lock.protocol.family();
        if found != target.protocol.family() && held.live(now) > 0 {
            return Err(Error::WrongKind { lock: target.id(), found });
        }
    }
    Ok(())
}
