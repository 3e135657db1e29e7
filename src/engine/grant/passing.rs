//! How a hold moves from one owner to another: the former owner's grant ends, and the next owner's begins with the same id.
//!
//! For the server this is one hold all the time. An id that was passed on was not released, so the rule stays that a released id is
//! never used again. Only a hold whose commands were all answered is passed on: then the observed state of the next grant begins with a
//! count of one and no copies.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::task;

use super::desired::{Desired, Passing};
use super::observed::Observed;
use super::undo::Undo;
use super::{Caller, Grant};
use crate::base::clock::Moment;
use crate::base::sync::lock;
use crate::engine::grant::seat::{Former, Seat, Tenure};
use crate::engine::grant::share::Share;
use crate::engine::hold::Hold;
use crate::engine::lock_ref::LockRef;

impl Grant {
    /// Ends a hold here, for another owner. `None`: this hold has to be released.
    pub(crate) fn pass_on(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        pass_time: Duration,
        granted_at: Moment,
        now: Moment,
    ) -> Option<Seat> {
        let mut desired = lock(&self.desired);
        let since =
            desired.held_since.filter(|since| now.since(*since) < pass_time && *since >= granted_at)?;
        let lease = self.lock.engine.config.watchdog_lease();
        let half = lease / 2;
        let is_fit = desired.has_only(hold)
            && hold.is_watched()
            && hold.ends().is_none()
            // An owner that made the lease longer wants that for itself: if this process dies, others wait for it.
            && self.longest_lease() <= lease
            && hold.left(0, now) >= half
            && hold.relies_on(0, now);
        // A release under way keeps the observed state locked.
        let is_certain = self.observed.try_lock().is_ok_and(|observed| observed.is_certainly_one());
        if !is_fit || !is_certain || self.is_of_earlier_master() {
            return None;
        }
        desired.remove(hold);
        desired.passing = Passing::Offered;
        desired.offered = Some(Arc::clone(hold));
        // Its end is no loss from here on.
        hold.give_back(now);
        let tenure = Tenure { renew_at: desired.renew_at.take(), ..self.tenure(since, hold.deadline()) };
        self.schedule_renewal(&mut desired, now);
        Some(Seat::new(tenure, Arc::<Self>::clone(self)))
    }

    fn tenure(&self, since: Moment, until: Moment) -> Tenure {
        Tenure {
            id: self.id.clone(),
            number: self.number,
            since,
            until,
            renew_at: None,
            lease_ms: self.lease_ms.load(Ordering::Relaxed),
            switches: self.switches.load(Ordering::Relaxed),
        }
    }

    /// Lets other readers of this client share the hold that the server granted just now.
    pub(crate) fn opens_share(&self, until: Moment) {
        let LockRef { engine, keys, .. } = &*self.lock;
        let mut desired = lock(&self.desired);
        let is_certain = self.observed.try_lock().is_ok_and(|observed| observed.is_certainly_one());
        if let (true, None, Some(since)) = (is_certain, &desired.share, desired.held_since) {
            // The others keep the hold on the server, so the end of a leaked hold has to be noticed here.
            desired.outlasts = true;
            desired.share = Some(engine.shares.open(&keys.lock, self.tenure(since, until)));
        }
    }

    /// Begins the grant of a reader that joins others, as an acquire that was granted already.
    pub(crate) fn join(lock_ref: Arc<LockRef>, share: Arc<Share>, caller: Caller) -> Self {
        let grant = Self::succeed(lock_ref, share.tenure().clone(), caller);
        lock(&grant.desired).share = Some(share);
        grant
    }

    /// Begins the grant of the next owner, as an acquire that was granted already.
    pub(crate) fn succeed(lock: Arc<LockRef>, tenure: Tenure, caller: Caller) -> Self {
        let mut desired = Desired::pending();
        desired.was_held = true;
        desired.held_since = Some(tenure.since);
        desired.renew_at = tenure.renew_at;
        // Perhaps the former owner asked for a longer lease.
        desired.outlasts = true;
        Self {
            lock,
            id: tenure.id,
            number: tenure.number,
            task: task::try_id(),
            caller,
            desired: Mutex::new(desired),
            observed: AsyncMutex::new(Observed::one()),
            undo: Undo::default(),
            lease_ms: tenure.lease_ms.into(),
            token: 0.into(),
            switches: tenure.switches.into(),
        }
    }
}

impl Former for Grant {
    fn is_succeeded(&self) {
        let mut desired = lock(&self.desired);
        desired.passing = Passing::Succeeded;
        desired.offered = None;
    }

    fn take_back(self: Arc<Self>) {
        let mut desired = lock(&self.desired);
        desired.passing = Passing::No;
        let hold = desired.offered.take();
        desired.given_back.extend(hold.map(|hold| (hold, 0)));
        drop(desired);
        self.reconcile_later();
    }
}
