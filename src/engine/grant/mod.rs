//! A grant: what one owner id holds, or possibly holds, on one lock of one server.
//!
//! An owner that holds nothing on a name gets a new grant with a new id when it begins to acquire. Re-entries raise the grant's
//! count and releases lower it. At zero the grant is over, and its id is never used again. So it does no harm if a command is
//! sent twice, or if an old copy of it runs late. A copy names an id and a target count, and finds either nothing or the hold
//! that it was meant for. There is one exception: a late copy of a first acquire creates a hold. The background repeats
//! [`Grant::reconcile`] until no such copy can arrive.
//!
//! A grant has two states. The *desired* state says what this process wants to hold. It changes at once, even in a `drop`. The
//! *observed* state says the most that the server can have. An attempt raises it before anything is sent, and replies correct it.
//! It is locked while a command that changes the count is under way. Reconciling lowers the hold count on the server to the
//! desired count.

mod desired;
pub(crate) mod join;
mod observed;
pub(crate) mod owner_grants;
mod passing;
pub(crate) mod pending;
mod place;
pub(crate) mod releasing;
mod renewing;
pub(crate) mod seat;
pub(crate) mod share;
mod undo;

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio::task;
use tokio::time::timeout;

use desired::Desired;
use observed::Observed;
use undo::Undo;

use super::hold::Hold;
use super::lock_ref::LockRef;
use crate::base::clock::{self, Moment};
use crate::base::config::Replication;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::sync::lock;
use crate::engine::hold::lease;
use crate::protocol::{AcquireReply, Arg, HolderRef, Waits, millis};
use crate::store::Connection;

/// What one owner id holds, or possibly holds, on one lock of one server.
pub(crate) struct Grant {
    pub(crate) lock: Arc<LockRef>,
    /// The owner, in the form of Redisson's `UUID:threadId`.
    id: Arg,
    number: u64,
    /// The task that acquired the first hold. Another task that re-enters shares a handle that it should not share.
    task: Option<task::Id>,
    /// Where in the program the first hold was acquired.
    caller: Caller,
    desired: Mutex<Desired>,
    observed: AsyncMutex<Observed>,
    undo: Undo,
    /// The longest lease that was asked for, in milliseconds.
    lease_ms: AtomicU64,
    /// The fencing token; 0: none.
    token: AtomicU64,
    /// How many switches to another master there had been when the last attempt was sent.
    switches: AtomicU64,
}

/// A source location in the program that uses this crate.
pub(crate) type Caller = &'static Location<'static>;

impl Grant {
    fn new(lock: Arc<LockRef>, write: Option<&Self>, caller: Caller) -> Self {
        let number = lock.engine.next_number();
        let id = write.map_or(Arg::Owner(lock.engine.id, number), |write| write.id.clone());
        Self {
            lock,
            id,
            number,
            task: task::try_id(),
            caller,
            desired: Mutex::new(Desired::pending()),
            observed: AsyncMutex::default(),
            undo: Undo::default(),
            lease_ms: AtomicU64::new(0),
            token: AtomicU64::new(0),
            switches: AtomicU64::new(0),
        }
    }

    /// The fencing token, if this type of lock has one.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Relaxed)).filter(|&token| token > 0)
    }

    /// Counts the holds that can be relied on now.
    pub(crate) fn live(&self, now: Moment) -> u32 {
        lock(&self.desired).live(now)
    }

    /// Whether another server became the master since the last attempt was sent: perhaps the new master lacks the hold.
    fn is_of_earlier_master(&self) -> bool {
        self.switches.load(Ordering::Relaxed) != self.lock.engine.store.switch_count()
    }

    fn keep(&self) -> u32 {
        lock(&self.desired).keep()
    }

    /// Whether another task than this one acquired the first hold.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!((self.task, task::try_id()), (Some(first), Some(this)) if first != this)
    }

    /// Whether the server had no hold of this grant, although there should have been one.
    pub(crate) fn is_gone(&self) -> bool {
        let desired = lock(&self.desired);
        desired.is_gone && desired.was_held
    }

    /// Gives a hold back: from here on, the lease is not renewed for this hold.
    pub(crate) fn give_back(self: &Arc<Self>, hold: &Arc<Hold>, now: Moment) {
        let mut desired = lock(&self.desired);
        // A hold that was lost already was reported when it was lost, so it is not reported again.
        if let Some((hold, member)) = desired.remove(hold)
            && hold.relies_on(member, now)
        {
            hold.give_back(now);
            desired.given_back.push((hold, member));
        }
        self.schedule_renewal(&mut desired, now);
    }

    /// Leaves a hold to end by itself.
    pub(crate) fn leak(self: &Arc<Self>, hold: &Arc<Hold>) {
        let now = clock::now();
        let mut desired = lock(&self.desired);
        desired.leak(hold, now);
        self.schedule_renewal(&mut desired, now);
    }

    /// Records that the server can keep the lock for longer than the holds of this grant last.
    fn is_outlasted(self: &Arc<Self>) {
        let mut desired = lock(&self.desired);
        desired.outlasts = true;
        self.schedule_renewal(&mut desired, clock::now());
    }

    /// Lends the id of this grant to a read hold of the same owner. False: this grant has no hold.
    pub(crate) fn lends(self: &Arc<Self>, now: Moment) -> bool {
        let mut desired = lock(&self.desired);
        // With the desired state locked: a hold whose id was lent is not passed on, and an id that was passed on is not lent.
        let is_live = desired.live(now) > 0;
        if is_live {
            desired.is_lent = true;
            desired.outlasts = true;
            self.schedule_renewal(&mut desired, now);
        }
        is_live
    }

    /// Loses all holds of this grant, because the server has none. Wakes the waiters of this client: perhaps no message told them
    /// that the lock is free.
    fn lose(self: &Arc<Self>, mut desired: MutexGuard<'_, Desired>) {
        let is_news = !std::mem::replace(&mut desired.is_gone, true) && desired.was_held;
        desired.lose_all();
        self.schedule_renewal(&mut desired, clock::now());
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

    /// Sends one attempt to hold `want` times. Returns the reply, and the deadline of what it granted.
    ///
    /// When the future is dropped the outcome is unknown, and the observed state says so.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        want: u32,
        lease: Duration,
        waits: Waits,
    ) -> Result<(AcquireReply, Moment), Fault> {
        let mut observed = self.observed().await?;
        self.switches.store(self.lock.engine.store.switch_count(), Ordering::Relaxed);
        let sync = self.lock.engine.config.sync().filter(|_| want == 1);
        let mut connection = match sync {
            None => self.lock.connection().await?,
            Some(_) => self.lock.connection_of_acquires().await?,
        };
        // Before anything is sent: the server counts the lease from a later time.
        let sent = clock::now();
        let before = observed.at_most;
        let leaves_trace = self.lock.protocol.leaves_trace(waits);
        observed.attempts(&connection, want);
        self.asks_for(lease);
        if want > 1 {
            // Whatever the outcome is, the server can keep the lock for longer than the other holds last.
            self.is_outlasted();
        }
        let call = self.lock.protocol.acquire(self.holder(), want, lease, waits);
        let has_token = want == 1 && self.lock.protocol.counter(&self.lock.keys).is_some();
        let mut acknowledged = 0;
        let result = loop {
            let mut last_hop = None;
            let reply = match sync {
                None => {
                    let hops = &mut |hop: &Connection| {
                        observed.not_sent(last_hop.as_ref().unwrap_or(&connection), want);
                        observed.attempts(hop, want);
                        last_hop = Some(hop.clone());
                    };
                    self.lock.run_first_acquire(&connection, &call, hops).await
                }
                // Boxed: this is rare, and its size would burden every call.
                Some(sync) => {
                    let running = Box::pin(self.lock.run_on_replicas(&connection, &call, sync));
                    running.await.map(|(reply, replicas)| {
                        acknowledged = replicas;
                        reply
                    })
                }
            };
            connection = last_hop.unwrap_or(connection);
            match reply.and_then(|reply| AcquireReply::parse(&reply, has_token)) {
                Ok(AcquireReply::AttemptAgain) => {}
                result => break result,
            }
        };
        match &result {
            Ok(AcquireReply::Granted(token)) => {
                observed.answered(&connection, before.max(want));
                if observed.may_be_copied() {
                    lock(&self.desired).outlasts = true;
                }
                if let Some(token) = *token {
                    self.token.store(token.get(), Ordering::Relaxed);
                }
            }
            Ok(AcquireReply::Lost) => {
                observed.answered(&connection, 0);
                self.lose(lock(&self.desired));
            }
            Ok(reply @ (AcquireReply::Held(_) | AcquireReply::Queued)) if leaves_trace => {
                observed.answered(&connection, 1); // the place or the intent
                if self.lock.protocol.queue().is_some() {
                    self.has_place(*reply == AcquireReply::Queued);
                }
            }
            Ok(AcquireReply::CannotCount) => observed.answered(&connection, before.max(want)),
            // This waiter perhaps has a place or an intent from an earlier attempt, so the count stays.
            Ok(AcquireReply::OtherKind | AcquireReply::NotALock) => observed.answered(&connection, before),
            Ok(_) => observed.answered(&connection, 0),
            Err(fault) => match fault.sent {
                Sent::No => observed.not_sent(&connection, want),
                Sent::Refused => observed.refused(&connection, before, leaves_trace),
                Sent::Unknown => {}
            },
        }
        if let (Ok(AcquireReply::Granted(_)), Some(Replication { replicas, .. })) = (&result, sync)
            && acknowledged < replicas
        {
            let kind = FaultKind::TooFewReplicas { acknowledged, wanted: replicas };
            return Err(Fault::new(kind, Sent::Unknown, "too few replicas have the hold"));
        }
        let margin = self.lock.engine.config.margin();
        result.map(|reply| (reply, lease::deadline(sent, lease, margin)))
    }

    /// Waits for the command under way, but not for ever: perhaps it belongs to a future that nobody polls.
    async fn observed(&self) -> Result<AsyncMutexGuard<'_, Observed>, Fault> {
        if let Ok(observed) = self.observed.try_lock() {
            return Ok(observed);
        }
        let limit = self.lock.engine.config.command_timeout();
        let late = |_| {
            Fault::new(FaultKind::TimedOut, Sent::Unknown, "another command about this hold is under way")
        };
        timeout(limit, self.observed.lock()).await.map_err(late)
    }

    /// Whether the server has no more holds than desired, and no late copy of a command can add one. False while a command is
    /// under way.
    pub(crate) fn is_reconciled(&self) -> bool {
        self.observed.try_lock().is_ok_and(|observed| observed.at_most <= self.keep())
    }

    /// Whether the server can have more holds than desired, and has not answered a release of them yet. False while an undo is
    /// repeated only because a late copy of an attempt can arrive.
    pub(crate) fn owes_release(&self) -> bool {
        self.observed.try_lock().map_or(true, |observed| observed.owes_release(self.keep()))
    }

    /// Whether the server can have anything of this grant: a hold, or a place in a queue.
    pub(crate) fn may_be_known(&self) -> bool {
        self.observed.try_lock().map_or(true, |observed| observed.at_most > 0)
    }

    /// Whether a first acquire possibly ran without an answer, or a copy of it can still run.
    pub(crate) fn may_be_copied(&self) -> bool {
        self.observed.try_lock().map_or(true, |observed| observed.may_be_copied())
    }

    /// Whether the server refused every attempt. False while a command is under way.
    fn was_only_refused(&self) -> bool {
        self.observed.try_lock().is_ok_and(|observed| observed.was_only_refused())
    }

    fn asks_for(&self, lease: Duration) {
        self.lease_ms.fetch_max(millis(lease), Ordering::Relaxed);
        if lease > self.lock.engine.config.watchdog_lease()
            && let Some(share) = &lock(&self.desired).share
        {
            // The longer lease is for this owner. Who comes later gets a hold of its own.
            share.close();
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
}
