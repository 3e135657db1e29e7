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

mod claim;
mod copies;
pub(crate) mod desired;
mod lease;
pub(crate) mod owner_grants;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod sharing;
pub(crate) mod undo;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify};

use copies::{Answer, Copies};
use desired::{Desired, Joining, Locked, OwnerKey};
use sharing::Offer;

use super::hold::{self, Hold};
use super::lock_ref::LockRef;
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::config::Replication;
use crate::base::error::LockId;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::timer::timeout;
use crate::engine::wait::queue::{Receivers, WaitQueue};
use crate::protocol::{
    AcquireReply, Arg, Call, Granted, HolderRef, IfHeld, PermitIds, ReleaseReply, Reply, millis,
};
use crate::store::Connection;

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

    // --- acquiring -----------------------------------------------------------------------------------------------------

    /// Sends one attempt to hold `want` times. Returns the reply, and the deadline of what it granted.
    ///
    /// When the future is dropped the outcome is unknown, and the copies say so.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        want: u32,
        lease: Duration,
        if_held: IfHeld,
    ) -> Result<(AcquireReply, Moment), Fault> {
        let engine = &*self.lock.engine;
        let mut copies = self.copies().await?;
        self.switches.store(engine.store.switch_count(), Ordering::Relaxed);
        self.forced.store(engine.forced(), Ordering::Relaxed);
        let sync = engine.config.sync().filter(|_| want == 1);
        let mut connection = match sync {
            None => self.lock.connection().await?,
            Some(_) => self.lock.connection_of_acquires().await?,
        };
        // Before anything is sent: the server counts the lease from a later time.
        let sent = clock::now();
        let leaves_trace = self.lock.protocol.leaves_trace(if_held);
        let mut order = copies.attempts(connection.number(), want);
        self.asks_for(lease);
        if want > 1 {
            // Whatever the outcome is, the server can keep the lock for longer than the other holds last.
            self.is_outlasted(sent);
        }
        let call = self.lock.protocol.acquire(self.holder(), want, lease, if_held);
        let has_token = want == 1 && self.lock.protocol.counter(&self.lock.keys).is_some();
        let mut acknowledged = 0;
        let result = loop {
            let mut last_hop = None;
            let hops = &mut |hop: &Connection| {
                order = copies.attempts_again(order, hop.number(), want);
                last_hop = Some(hop.clone());
            };
            let reply = match sync {
                None => {
                    let limit = engine.config.command_timeout();
                    engine.store.run_and_follow(limit, &connection, &call, hops).await
                }
                // Boxed: this is rare, and its size would burden every call.
                Some(sync) => {
                    let running = Box::pin(engine.store.run_on_replicas(&connection, &call, sync, hops));
                    running.await.map(|(reply, replicas)| {
                        acknowledged = replicas;
                        reply
                    })
                }
            };
            connection = last_hop.unwrap_or(connection);
            match reply.and_then(|reply| AcquireReply::parse(&reply, has_token)) {
                Ok(AcquireReply::AttemptAgain) => {
                    order = copies.attempts_again(order, connection.number(), want);
                }
                result => break result,
            }
        };
        let answer = match &result {
            Ok(AcquireReply::Granted(_) | AcquireReply::CannotCount) => Answer::Granted,
            // This waiter perhaps has a place or an intent from an earlier attempt, so the count stays.
            Ok(AcquireReply::OtherKind | AcquireReply::NotALock) => Answer::Unchanged,
            Ok(AcquireReply::Held(_) | AcquireReply::Queued) => Answer::Has(leaves_trace.into()),
            Ok(_) => Answer::Has(0),
            Err(fault) => Answer::of_fault(fault.sent, leaves_trace),
        };
        copies.ends(connection.number(), order, answer);
        match &result {
            Ok(AcquireReply::Granted(granted)) => {
                if copies.may_run_late() {
                    self.desired().lease.outlasts = true;
                }
                match *granted {
                    Granted::Alone => {}
                    Granted::Token(token) => self.token.store(token.get(), Ordering::Relaxed),
                    Granted::Permits { total, .. } => self.lock.has_total(total),
                }
            }
            Ok(reply @ (AcquireReply::Lost | AcquireReply::Held(_) | AcquireReply::Queued)) => {
                let now = clock::now();
                if *reply == AcquireReply::Lost {
                    self.lose(self.desired(), now);
                } else if leaves_trace && self.lock.protocol.queue().is_some() {
                    self.has_place(*reply == AcquireReply::Queued, now);
                }
            }
            _ => {}
        }
        if let (Ok(AcquireReply::Granted(_)), Some(Replication { replicas, .. })) = (&result, sync)
            && acknowledged < replicas
        {
            let kind = FaultKind::TooFewReplicas { acknowledged, wanted: replicas };
            return Err(Fault::new(kind, Sent::Unknown, "too few replicas have the hold"));
        }
        result.map(|reply| (reply, hold::lease::deadline(sent, lease)))
    }

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

    // --- what the server can have --------------------------------------------------------------------------------------

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

    // --- releasing ------------------------------------------------------------------------------------------------

    /// Lowers the count on the server to the desired count, if the server can have more. `None`: there was nothing to do.
    pub(crate) async fn reconcile(self: &Arc<Self>) -> Result<Option<ReleaseReply>, Fault> {
        let mut copies = match self.copies.try_lock() {
            Ok(copies) => copies,
            Err(_) if self.desired().is_given_up => {
                return self.release_beside_attempt().await.map(Some);
            }
            Err(_) => self.copies().await?,
        };
        let (keep, given_back, is_release) = {
            let mut desired = self.desired();
            // Most grants have no holds by now, and need not read the clock.
            let now = if desired.depends_on_time() { clock::now() } else { Moment::PAST };
            let keep = desired.target_count(now);
            if copies.at_most() <= keep {
                // A re-entry or another owner took over the count of the holds that were given back, so the server is not asked about
                // those.
                desired.forget_given_back(usize::MAX);
                return Ok(None);
            }
            // An undo of an attempt is no release.
            (keep, desired.given_back.len(), keep == 0 && desired.was_held())
        };
        let mut connection = self.lock.connection().await?;
        let call = self.lock.protocol.release(self.holder(), keep);
        let is_repeated = self.lock.engine.config.sync().is_some() && !copies.owes_release(keep);
        let release = copies.releases(keep);
        let behind = is_repeated.then_some(&*copies);
        let reply = self.send_release(&mut connection, &call, is_release, behind).await;
        let reply = match reply {
            Ok(reply) => reply,
            // Another client overwrote the key, so the hold is gone.
            Err(fault) if fault.kind == FaultKind::WrongType => ReleaseReply::Gone,
            Err(fault) => {
                if fault.sent != Sent::Unknown {
                    copies.not_released(release);
                }
                return Err(fault);
            }
        };
        self.keep_release(keep, call);
        report_release(reply, &self.lock);
        let is_gone = reply == ReleaseReply::Gone;
        copies.released(connection.number(), release, is_gone);
        let mut desired = self.desired();
        if keep == 0 {
            desired.no_longer_lasts();
        }
        if is_gone && release.is_first {
            // One event for the lock, however many nested holds were given back.
            let (state, effects) = desired.with_effects();
            if state.holds().next().is_none()
                && let Some((hold, member)) = state.given_back.pop()
            {
                effects.was_gone(hold, member);
            }
            desired.forget_given_back(usize::MAX);
            self.lose(desired, clock::now());
            return Ok(Some(ReleaseReply::Gone));
        }
        desired.forget_given_back(given_back);
        Ok(Some(if is_gone { ReleaseReply::Released { receivers: 0 } } else { reply }))
    }

    /// Sends a release, and tells the waiters of this client of it. `behind`: repeats the release behind an acquire, and returns on which
    /// connection.
    async fn send_release(
        &self,
        connection: &mut Connection,
        call: &Call,
        is_release: bool,
        behind: Option<&Copies>,
    ) -> Result<ReleaseReply, Fault> {
        let waiters = if is_release { self.waiters() } else { None };
        if let Some((queue, _)) = &waiters {
            queue.with(|machine| machine.release_begins(clock::now()));
        }
        let behind = match behind {
            // Boxed: this is rare, and its size would burden every call.
            Some(copies) => Box::pin(self.release_behind_acquire(copies, call)).await,
            None => None,
        };
        let reply = match behind {
            Some((behind, reply)) => {
                *connection = behind;
                Ok(reply)
            }
            None => self.lock.run_and_tell(connection, call).await,
        };
        let reply = reply.and_then(|reply| ReleaseReply::parse(&reply));
        if let Some((queue, has_others)) = &waiters {
            // In a cluster, only those are counted that listen at the same server.
            let is_exact = !has_others && !self.lock.engine.store.is_cluster();
            queue.release_ended(match reply {
                Ok(ReleaseReply::Released { receivers }) if is_exact => Some(Receivers::Exactly(receivers)),
                Ok(ReleaseReply::Released { .. }) => Some(Receivers::PerhapsOthers),
                _ => None,
            });
        }
        reply
    }

    /// Repeats a release on the connection of an acquire that waits for replicas, if the acquire was not answered. The server runs the
    /// acquire before the release, or never. The first release uses the other connection: here it would wait for replicas, too.
    async fn release_behind_acquire(&self, copies: &Copies, call: &Call) -> Option<(Connection, Reply)> {
        let engine = &self.lock.engine;
        let connection = engine.store.opened_connection_of_acquires(self.lock.route)?;
        if !copies.may_run_late_on(connection.number()) {
            return None;
        }
        // Others wait for the copies meanwhile. While replicas are away, the release is repeated on the other connection.
        let limit = engine.config.command_timeout() / 4;
        let reply = timeout(limit, self.lock.run_and_tell(&connection, call)).await.ok()?.ok()?;
        Some((connection, reply))
    }

    /// The waiters of this client to which a hold of this grant can be handed over.
    fn waiters(&self) -> Option<(Arc<WaitQueue<Offer>>, bool)> {
        let LockRef { engine, keys, row, .. } = &*self.lock;
        let can_be = self.lock.can_be_passed_on() && !engine.config.sharing().is_zero();
        can_be.then(|| engine.wait_queues.exclusive_queue_of(keys, *row)).flatten()
    }

    /// Lowers the count on the server to the desired count while an attempt that nobody polls keeps the copies locked.
    async fn release_beside_attempt(&self) -> Result<ReleaseReply, Fault> {
        let connection = self.lock.connection().await?;
        let target = self.target_count(clock::now());
        let call = self.lock.protocol.release(self.holder(), target);
        let reply = ReleaseReply::parse(&self.lock.run_and_tell(&connection, &call).await?)?;
        self.keep_release(target, call);
        Ok(reply)
    }

    /// Keeps a full release that was confirmed, in case another master lacks it. After a partial one, the lock stays held.
    fn keep_release(&self, keep: u32, call: Call) {
        if keep == 0 {
            self.lock.engine.releases.keep(self.lock.route, call);
        }
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

/// Reports what a user should know about a release that succeeded.
pub(crate) fn report_release(reply: ReleaseReply, lock: &LockRef) {
    let is_silent = match reply {
        ReleaseReply::ReleasedInSilence => true,
        ReleaseReply::ReleasedBesideData => false,
        _ => return,
    };
    let LockId { name, key, server, .. } = lock.id();
    if is_silent {
        tracing::warn!(
            lock = name,
            key,
            server,
            "released a lock without a message to its waiters: this user may not publish on its channel"
        );
    } else {
        tracing::warn!(
            lock = name,
            key,
            server,
            "released a lock in whose key somebody else keeps data: the data was left there"
        );
    }
}
