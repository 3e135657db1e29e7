//! A grant: what one owner id holds, or possibly holds, on one lock of one server.
//!
//! An owner that holds nothing on a name gets a new grant with a new id when it begins to acquire. Re-entries raise the grant's
//! count and releases lower it. At zero the grant is over, and its id is never used again. So it does no harm if a command is
//! sent twice, or if an old copy of it runs late. A copy names an id and a target count, and finds either nothing or the hold
//! that it was meant for. There is one exception: a late copy of a first acquire creates a hold. The background repeats
//! [`Grant::reconcile`] until no such copy can arrive.
//!
//! A grant has two states. The *desired* state says what this process wants to hold. It changes at once, even in a `drop`. The
//! *copies* say the most that the server can have, because of the newest answer and of what was not answered. An attempt is recorded
//! before anything is sent. The copies are locked while a command that changes the count is in flight. Reconciling lowers the hold count
//! on the server to the desired count.
//!
//! A release never lowers the count below the current holds plus the pending acquires: both are counted while the mutex of the desired
//! state is held. The copies know the numbers of the connections on which an acquire can still run, because a first acquire with
//! `sync_replicas`, a redirect and a failover use other connections than the key selects.
//!
//! Time is an argument. Only what awaits reads the clock: before it sends, and after the answer. A `drop` reads the clock, too.

mod attempt;
mod copies;
pub(crate) mod desired;
mod lease;
pub(crate) mod owner_grants;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod release;
pub(crate) mod sharing;
pub(crate) mod undo;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify};

use copies::Copies;
use desired::{Desired, Joining, Locked, OwnerKey};

use super::hold::Hold;
use super::lock_ref::LockRef;
use crate::base::Caller;
use crate::base::clock::Moment;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::timeout;
use crate::protocol::{Arg, HolderRef, PermitIds, millis};

/// What one owner id holds, or possibly holds, on one lock of one server.
pub(crate) struct Grant {
    pub(crate) lock: Arc<LockRef>,
    /// The owner, in the form of Redisson's `UUID:threadId`.
    id: Arg,
    pub(crate) number: u64,
    desired: Mutex<Desired>,
    copies: AsyncMutex<Copies>,
    undo: Undo,
    /// The longest lease that was asked for, in milliseconds.
    lease_ms: AtomicU64,
    /// The fencing token; 0: none.
    token: AtomicU64,
    /// How many switches to another master there had been when the last attempt was sent.
    switches: AtomicU64,
    /// How often this client had begun to release holds by force when the last attempt was sent.
    forced: AtomicU64,
}

/// The job that reconciles a grant in the background. A grant has one such job at most.
#[derive(Default)]
pub(crate) struct Undo {
    is_running: AtomicBool,
    /// Counts how often there was something to do.
    requests: AtomicU32,
    /// Ends its pause: there is more to do.
    stir: Notify,
}

impl Grant {
    /// `same`: a grant whose owner id it shares.
    fn new(lock: Arc<LockRef>, same: Option<&Self>, owner: OwnerKey, caller: Caller) -> Self {
        let count = lock.permits.count();
        let number = lock.engine.next_number(count);
        let id = same.map_or_else(|| lock.protocol.id(lock.engine.id, number, count), |same| same.id.clone());
        Self {
            lock,
            id,
            number,
            desired: Mutex::new(Desired::pending(owner, caller)),
            copies: AsyncMutex::default(),
            undo: Undo::default(),
            lease_ms: AtomicU64::new(0),
            token: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            forced: AtomicU64::new(0),
        }
    }

    /// The fencing token, if this type of lock has one.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Relaxed)).filter(|&token| token > 0)
    }

    /// The ids of its permits, if it is one of a semaphore.
    pub(crate) const fn permits(&self) -> Option<PermitIds> {
        if let Arg::Permits(ids) = self.id { Some(ids) } else { None }
    }

    /// Counts the holds that an owner has, and that can be relied on now.
    pub(crate) fn live(&self, owner: OwnerKey, now: Moment) -> u32 {
        self.desired().live(owner, now)
    }

    /// Whether another server became the master since the last attempt was sent: perhaps the new master lacks the hold.
    fn is_of_earlier_master(&self) -> bool {
        self.switches.load(Ordering::Relaxed) != self.lock.engine.store.switch_count()
    }

    /// Whether the hold is perhaps gone although no reply said so: another server is the master, or this client released it by force,
    /// perhaps before the answer to its attempt was read. Then nobody shares it.
    fn is_perhaps_gone(&self) -> bool {
        self.is_of_earlier_master() || self.forced.load(Ordering::Relaxed) != self.lock.engine.forced()
    }

    fn desired(&self) -> Locked<'_> {
        Locked::new(&self.desired)
    }

    fn target_count(&self, now: Moment) -> u32 {
        self.desired().target_count(now)
    }

    /// Whether another task than this one acquired the first hold of an owner.
    pub(crate) fn is_foreign(&self, owner: OwnerKey) -> bool {
        self.desired().is_foreign(owner)
    }

    /// Whether the server had no hold of this grant, although there should have been one.
    pub(crate) fn is_gone(&self) -> bool {
        let desired = self.desired();
        desired.is_gone && desired.was_held()
    }

    // --- holds ---------------------------------------------------------------------------------------------------------

    /// Adds a hold that the server granted until `until`, for an acquire under way. False: a shutdown gave that up meanwhile.
    fn add_hold(
        self: &Arc<Self>,
        owner: OwnerKey,
        (hold, member): (&Arc<Hold>, usize),
        until: Moment,
        now: Moment,
    ) -> bool {
        let mut desired = self.desired();
        if desired.is_given_up {
            return false;
        }
        let Some(part) = desired.part(owner) else { return false };
        part.pending -= 1;
        part.holds.push((Arc::clone(hold), member));
        self.leave_queue(&mut desired);
        // Perhaps another hold made the server's lease longer than this hold lasts.
        desired.lease.outlasts |= desired.was_held();
        if desired.lease.since.is_none() {
            (desired.lease.since, desired.lease.granted_at) = (Some(now), now);
        }
        desired.lease.until = desired.lease.until.max(until);
        self.renew_in_time(&mut desired, hold, until, now);
        true
    }

    /// The hold that the server granted is perhaps gone already, so it is too old to be handed over.
    pub(crate) fn is_not_handed_over(&self) {
        self.desired().lease.since = Some(Moment::PAST);
    }

    /// From here on, the watchdog renews the holds that were added.
    pub(crate) fn begin_renewals(self: &Arc<Self>, now: Moment) {
        self.schedule_renewal(&mut self.desired(), now);
        if self.is_of_earlier_master() {
            // The renewals of the switch perhaps came before the hold was scheduled.
            self.lock.engine.renewals.rush();
        }
    }

    /// Removes a hold that was given back: from here on, the lease is not renewed for it.
    pub(crate) fn remove_hold(self: &Arc<Self>, hold: &Arc<Hold>, now: Moment) {
        let mut desired = self.desired();
        desired.forget_stay(now);
        // The loss of a hold that was lost already was told, so the server is not asked about it. While other owners stand on the grant,
        // the server is not asked, either.
        if let Some((owner, member)) = desired.remove(hold)
            && hold.relies_on(member, now)
            && desired.is_only_of(owner)
        {
            desired.given_back.push((Arc::clone(hold), member));
        }
        self.schedule_renewal(&mut desired, now);
    }

    /// Does not release the last hold before that.
    pub(crate) fn stays_until(&self, until: Moment) {
        self.desired().stays_until(until);
    }

    /// Leaves a hold to end by itself.
    pub(crate) fn leak(self: &Arc<Self>, hold: &Arc<Hold>, now: Moment) {
        let mut desired = self.desired();
        let is_left = desired.leak(hold, now);
        if !desired.is_in_use(now) {
            desired.no_longer_lasts();
        }
        self.schedule_renewal(&mut desired, now);
        drop(desired);
        if !is_left {
            // It has ended, and another hold perhaps made the server's lease longer.
            self.reconcile_later(now);
        }
    }

    /// An acquire of an owner has ended without a hold.
    fn ends_pending(self: &Arc<Self>, owner: OwnerKey) {
        let mut desired = self.desired();
        desired.ends_pending(owner);
        self.leave_queue(&mut desired);
    }

    /// Undoes the acquires under way, which nobody polls, at a shutdown.
    pub(crate) fn give_up(self: Arc<Self>, now: Moment) {
        let mut desired = self.desired();
        if !desired.is_wanted() {
            return;
        }
        desired.is_given_up = true;
        self.leave_queue(&mut desired);
        drop(desired);
        self.reconcile_later(now);
    }

    /// Records that the server can keep the lock for longer than the holds of this grant last.
    fn is_outlasted(self: &Arc<Self>, now: Moment) {
        let mut desired = self.desired();
        desired.lease.outlasts = true;
        self.schedule_renewal(&mut desired, now);
    }

    /// Lends the id of this grant to a read hold of the same owner. False: the owner has no hold here.
    pub(crate) fn lends(self: &Arc<Self>, owner: OwnerKey, now: Moment) -> bool {
        let mut desired = self.desired();
        // With the desired state locked: a hold whose id was lent is not handed over, and an offered hold does not lend its id.
        let is_live = desired.live(owner, now) > 0;
        if is_live {
            desired.is_lent = true;
            desired.lease.outlasts = true;
            self.schedule_renewal(&mut desired, now);
        }
        is_live
    }

    /// Loses all holds of this grant, because the server has none. Wakes the waiters of this client: perhaps no message told them
    /// that the lock is free.
    fn lose(self: &Arc<Self>, mut desired: Locked<'_>, now: Moment) {
        let is_news = !std::mem::replace(&mut desired.is_gone, true) && desired.was_held();
        let (lost, effects) = desired.with_effects();
        lost.lose_all(effects);
        desired.no_longer_lasts();
        self.schedule_renewal(&mut desired, now);
        drop(desired);
        let LockRef { engine, protocol, keys, .. } = &*self.lock;
        if !is_news {
            // It was an attempt, or the waiters were woken before.
        } else if protocol.queue().is_some() {
            engine.heartbeats.rush();
        } else {
            engine.wait_queues.wake(&keys.channel);
        }
    }

    // --- what the server can have --------------------------------------------------------------------------------------

    /// Waits for the command under way, but not for ever: perhaps it belongs to a future that nobody polls.
    async fn copies(&self) -> Result<AsyncMutexGuard<'_, Copies>, Fault> {
        if let Ok(copies) = self.copies.try_lock() {
            return Ok(copies);
        }
        let limit = self.lock.engine.config.command_timeout();
        let late = |_| {
            Fault::new(FaultKind::TimedOut, Sent::Unknown, "another command about this hold is under way")
        };
        timeout(limit, self.copies.lock()).await.map_err(late)
    }

    /// What is known of the server. `None` while a command is under way.
    fn known<T>(&self, of: impl FnOnce(&Copies) -> T) -> Option<T> {
        self.copies.try_lock().ok().map(|copies| of(&copies))
    }

    /// Whether the server has no more holds than desired, and no late copy of a command can add one. False while a command is
    /// under way.
    pub(crate) fn is_reconciled(&self, now: Moment) -> bool {
        self.known(|copies| copies.at_most() <= self.target_count(now)).unwrap_or(false)
    }

    /// Whether the server can have more holds than desired, and has not answered a release of them yet. False while an undo is
    /// repeated only because a late copy of an attempt can arrive.
    pub(crate) fn owes_release(&self, now: Moment) -> bool {
        self.known(|copies| copies.owes_release(self.target_count(now))).unwrap_or(true)
    }

    /// Whether the server can have anything of this grant: a hold, or a place in a queue.
    pub(crate) fn may_exist_on_server(&self) -> bool {
        self.known(|copies| copies.at_most() > 0).unwrap_or(true)
    }

    /// Whether a first acquire possibly ran without an answer, or a copy of it can still run.
    pub(crate) fn may_run_late(&self) -> bool {
        self.known(Copies::may_run_late).unwrap_or(true)
    }

    /// Whether the server refused every attempt. False while a command is under way.
    fn was_only_refused(&self) -> bool {
        self.known(Copies::was_only_refused).unwrap_or(false)
    }

    /// Whether the server has one hold at most, and every command about it was answered. False while a command is under way.
    fn is_certainly_held_once(&self) -> bool {
        self.known(Copies::is_certainly_one).unwrap_or(false)
    }

    fn asks_for(&self, lease: Duration) {
        self.lease_ms.fetch_max(millis(lease), Ordering::Relaxed);
        if self.lock.protocol.is_shared() && lease > self.lock.engine.config.watchdog_lease() {
            // The longer lease is for this owner. Readers that come later get a hold of their own.
            self.close_to_readers();
        }
    }

    fn longest_lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::Relaxed))
    }

    /// The channel that wakes the waiter of this grant.
    pub(crate) fn wake_channel(&self) -> Arc<str> {
        let shared = || Arc::clone(&self.lock.keys.channel);
        self.lock.protocol.queue().map_or_else(shared, |queue| queue.channel(self.holder()))
    }

    /// The field of the lock's hash for this grant.
    pub(crate) fn field(&self) -> String {
        self.lock.protocol.field(self.holder()).to_string()
    }

    fn holder(&self) -> HolderRef<'_> {
        self.lock.holder(&self.id, self.number)
    }

    // --- who holds it --------------------------------------------------------------------------------------------------

    /// Whether other clients can shorten its lease, as Java's watchdog does to a read-write lock.
    pub(crate) fn is_shared(&self) -> bool {
        self.lock.protocol.is_shared()
    }

    /// The owner, without the id of the client. `None`: it holds permits, which have no owner.
    pub(crate) fn short_owner(&self) -> Option<Arc<str>> {
        let field = self.permits().is_none().then(|| self.field())?;
        field.split_once(':').map(|(_, owner)| owner.into())
    }

    /// The owner, without the id of the client, if only this owner of the process stands on the grant. From here on, no other one does:
    /// others can rely on it that this owner and no other one holds the lock.
    pub(crate) fn reserve(&self, owner: OwnerKey, now: Moment) -> Option<Arc<str>> {
        {
            let mut desired = self.desired();
            if desired.live(owner, now) == 0 || desired.owners.len() > 1 || desired.offers > 0 {
                return None;
            }
            desired.is_reserved = true;
            desired.joining = Joining::Closed;
        }
        self.short_owner()
    }

    /// Where in the program the lock was acquired, if somebody here holds it.
    pub(crate) fn held_at(&self, now: Moment) -> Option<Caller> {
        self.desired().held_at(now)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let joining = self.desired.get_mut().unwrap_or_else(PoisonError::into_inner).joining;
        let LockRef { engine, protocol, keys, .. } = &*self.lock;
        if protocol.is_shared() && joining != Joining::NotYet {
            engine.read_grants.forget(&keys.lock);
        }
    }
}
