//! What one owner holds on one name.

use std::sync::{Arc, Mutex, Weak};

use smallvec::SmallVec;

use crate::base::Caller;
use crate::base::clock::Moment;
use crate::base::error::{Error, Result};
use crate::base::sync::lock;
use crate::engine::grant::pending::PendingHold;
use crate::engine::grant::{Grant, PartKey};
use crate::engine::lock_ref::LockRef;

/// What one owner holds on one name.
#[derive(Default)]
pub(crate) struct OwnerGrants {
    /// The grants that the owner holds, and those whose release is under way: they can block their own owner. It can hold a write lock and
    /// a read lock.
    grants: Mutex<SmallVec<[Held; 1]>>,
    /// The `Owner` to which this name belongs. `None`: a handle is the owner.
    names: Option<Arc<OwnerNames>>,
}

pub(crate) type Grants = SmallVec<[Arc<Grant>; 1]>;

/// What the owner has of one grant.
#[derive(Clone)]
struct Held {
    grant: Arc<Grant>,
    part: PartKey,
}

impl Held {
    fn is(&self, pending: &PendingHold) -> bool {
        Arc::ptr_eq(&self.grant, &pending.grant) && self.part == pending.part
    }

    fn live(&self, now: Moment) -> u32 {
        self.grant.live(self.part, now)
    }

    fn is_over(&self, now: Moment) -> bool {
        self.grant.is_over(self.part, now)
    }
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

impl OwnerGrants {
    /// Re-enters the owner's grant, or begins a new one. Also returns earlier grants of this owner, whose release is under way: the acquire
    /// waits for their end.
    ///
    /// # Errors
    ///
    /// The owner has a hold on this name that excludes the new one.
    pub(crate) fn start(
        &self,
        target: &Arc<LockRef>,
        now: Moment,
        caller: Caller,
    ) -> Result<(PendingHold, Grants)> {
        let all = self.all();
        let is_same = |of: &LockRef| {
            of.protocol.is_shared() == target.protocol.is_shared()
                && of.protocol.family() == target.protocol.family()
        };
        let reenter = |held: &Held| PendingHold::reenter(&held.grant, held.part, now);
        if let Some(pending) = all.iter().filter(|held| is_same(&held.grant.lock)).find_map(reenter) {
            return Ok((pending, Grants::new()));
        }
        let pending = self.begin_beside(&all, target, now, caller)?;
        Ok((pending, all.into_iter().map(|held| held.grant).filter(|grant| grant.ends(now)).collect()))
    }

    /// Begins a new grant.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(crate) fn begin(&self, target: &Arc<LockRef>, now: Moment, caller: Caller) -> Result<PendingHold> {
        self.begin_beside(&self.all(), target, now, caller)
    }

    /// An owner that holds the write lock can also read. An owner that holds the read lock cannot write: it would wait for itself.
    fn begin_beside(
        &self,
        all: &[Held],
        target: &Arc<LockRef>,
        now: Moment,
        caller: Caller,
    ) -> Result<PendingHold> {
        let (family, is_shared) = (target.protocol.family(), target.protocol.is_shared());
        let mut write = None;
        for Held { grant, part } in all.iter().filter(|held| held.live(now) > 0) {
            let found = grant.lock.protocol.family();
            if found != family {
                return Err(Error::WrongKind { lock: target.id(), found });
            }
            if grant.is_shared() && !is_shared {
                return Err(Error::UpgradeWouldDeadlock(target.id()));
            }
            if !grant.is_shared() && is_shared && grant.lends(*part, now) {
                write = Some(grant);
            }
        }
        Ok(PendingHold::acquire(Arc::clone(target), write, caller))
    }

    fn all(&self) -> SmallVec<[Held; 1]> {
        lock(&self.grants).clone()
    }

    /// Adds a grant that the owner holds, or whose release has to end before its next acquire. Forgets those that are over.
    pub(crate) fn add(&self, pending: &PendingHold, now: Moment) {
        let mut all = lock(&self.grants);
        let (mut kept, over): (SmallVec<[Held; 1]>, SmallVec<[Held; 1]>) =
            all.drain(..).partition(|held| !held.is(pending) && !held.is_over(now));
        kept.push(Held { grant: Arc::clone(&pending.grant), part: pending.part });
        *all = kept;
        drop(all);
        drop(over); // with nothing locked: the drop of a grant can run code of the user
    }

    /// Counts the holds that can be relied on now.
    pub(crate) fn live(&self, is_shared: bool, now: Moment) -> u32 {
        let all = self.all();
        all.iter().filter(|held| held.grant.is_shared() == is_shared).map(|held| held.live(now)).sum()
    }

    /// Reserves what the same `Owner` holds now, see [`Grant::reserve`]. Empty: the handle does not belong to an `Owner`.
    pub(crate) fn reserve_all(&self, now: Moment) -> Vec<Arc<Grant>> {
        self.names.iter().flat_map(|names| names.all()).flat_map(|grants| grants.reserve(now)).collect()
    }

    fn reserve(&self, now: Moment) -> impl Iterator<Item = Arc<Grant>> + use<> {
        let all = self.all().into_iter();
        all.filter(move |held| held.grant.reserve(held.part, now)).map(|held| held.grant)
    }

    /// Whether the owner holds nothing on this name, and nothing has to be released.
    pub(crate) fn is_idle(&self, now: Moment) -> bool {
        self.all().iter().all(|held| held.is_over(now))
    }
}
