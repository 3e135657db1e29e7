//! A grant: one owner id on one lock of one server, and who has it.
//!
//! An owner that holds nothing on a name gets a new grant with a new id when it begins to acquire. Its re-entries use the
//! same grant. When nobody needs the hold any more, the grant is over, and its id is never used again.
//!
//! **What the server can have of an id is in exactly one place.** A [`PendingHold`](pending::PendingHold) acquires it, guards and an
//! [`Offer`](sharing::Offer) have it, and an [`Owed`](owed::Owed) releases it. Dropping the last of those that need it makes an
//! `Owed`, and dropping an `Owed` hands it to the background. So a future can be dropped anywhere, and nothing else looks after its
//! commands.
//!
//! **An id has at most one acquire without an answer, and none after a grant.** A refused one can be repeated. After an unknown outcome,
//! the id is released, and the next attempt has a new one. Only a waiter that has a place in a queue, or a writer that stops readers,
//! attempts again with the same id, because it would lose its place. An acquire says until when it may run. So an `Owed` is released once,
//! or if an acquire was not answered, once at once and once after that time.
//!
//! The rules are pure: [`on_server`] says what the server can have, [`state`] who needs it, [`lease`] when the watchdog acts, and
//! [`lingering`] how long readers find a hold that nobody reads under. [`attempt`], [`owed`] and [`upkeep`] send commands. After
//! each event, [`Grant::change`] schedules what is due, and then reports what happened, with no mutex locked. Time is an argument.

mod attempt;
#[cfg(test)]
mod explorer;
mod lease;
mod lingering;
mod on_server;
pub(crate) mod owed;
pub(crate) mod owner_grants;
pub(crate) mod pending;
pub(crate) mod sharing;
mod state;
mod upkeep;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use owed::Owed;
pub(crate) use state::PartKey;
use state::{Began, Effects, Epoch, Owing, State};
use tokio::sync::Notify;
use tokio::task;

use super::hold::Hold;
use super::hold::lease::{Rules, due_after};
use super::lock_ref::LockRef;
use super::scheduler::Slot;
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::base::timer::sleep;
use crate::protocol::{Arg, HolderRef, PermitIds};
use crate::telemetry::Renewing;

/// One owner id on one lock of one server.
pub(crate) struct Grant {
    pub(crate) lock: Arc<LockRef>,
    /// The owner, in the form of Redisson's `UUID:threadId`.
    id: Arg,
    pub(crate) number: u64,
    shell: Mutex<Shell>,
    /// Wakes those who wait for the answer to a release.
    released: Notify,
}

/// What is decided, and what is scheduled because of that.
#[derive(Default)]
struct Shell {
    state: State,
    renewal: Slot,
    renewing: Renewing,
    heartbeat: Slot,
    /// The key of which the server tells changes.
    tracked: Option<Arc<str>>,
}

/// How often the job that keeps a lock reads the clock: timers stop while the host is suspended.
const LOOK: Duration = Duration::from_secs(1);

impl Grant {
    /// Makes a grant. `same`: an existing grant whose owner id the new one shares.
    fn new(lock: Arc<LockRef>, same: Option<&Self>) -> Self {
        let count = lock.permits.count();
        let number = lock.engine.next_number(count);
        let id = same.map_or_else(|| lock.protocol.id(lock.engine.id, number, count), |same| same.id.clone());
        Self { lock, id, number, shell: Mutex::default(), released: Notify::new() }
    }

    /// Asks about the state, or changes it in a way from which nothing follows.
    fn ask<T>(&self, question: impl FnOnce(&mut State) -> T) -> T {
        question(&mut lock(&self.shell).state)
    }

    /// Changes the state, and does what follows. What is owed goes to the background.
    fn event<T>(self: &Arc<Self>, now: Moment, event: impl FnOnce(&mut State) -> T) -> T {
        self.change(now, |shell| event(&mut shell.state)).0
    }

    /// Changes the state, and does what follows. If nobody needs the hold from here on, the caller has to release it.
    fn change<T>(self: &Arc<Self>, now: Moment, change: impl FnOnce(&mut Shell) -> T) -> (T, Option<Owed>) {
        let mut shell = lock(&self.shell);
        let result = change(&mut shell);
        let owed = shell.state.is_owed(now).then(|| Owed::new(self));
        self.schedule(&mut shell, now);
        let Effects { ended, is_free } = std::mem::take(&mut shell.state.effects);
        drop(shell);
        ended.iter().for_each(|hold| hold.tell_loss(now));
        if is_free {
            // The server lost the hold, perhaps without a message. So this client wakes its own waiters.
            let LockRef { engine, protocol, keys, .. } = &*self.lock;
            if protocol.queue().is_some() {
                engine.heartbeats.rush();
            } else {
                engine.lines.wake(&keys.channel);
            }
        }
        (result, owed)
    }

    /// Schedules the next renewal and heartbeat.
    fn schedule(self: &Arc<Self>, shell: &mut Shell, now: Moment) {
        let LockRef { engine, keys, .. } = &*self.lock;
        let Shell { state, renewal, heartbeat, tracked, .. } = shell;
        if std::mem::take(&mut state.is_moved) {
            let wanted = state.wanted(now, self.rules());
            let due = state.lease.due(&wanted, now, self.rules());
            engine.renewals.set(renewal, due, || Arc::clone(self));
            if !wanted.has_guards
                && let Some(key) = tracked.take_if(|_| !renewal.is_set())
            {
                engine.tracked.remove(&key, self);
            }
        }
        match (state.has_place, heartbeat.is_set()) {
            (true, false) => {
                let due = due_after(engine.periods.heartbeat(), &keys.lock, now);
                engine.heartbeats.set(heartbeat, Some(due), || Arc::clone(self));
            }
            (false, true) => engine.heartbeats.set(heartbeat, None, || Arc::clone(self)),
            _ => {}
        }
    }

    /// Until when an acquire can run for whose answer nobody waits from now on. It carries its end in whole seconds of the server's
    /// clock. A tenth of a second is for clocks that drift.
    fn late_until(&self, now: Moment) -> Moment {
        now.plus(self.lock.engine.config.command_timeout() + Duration::from_millis(1_100))
    }

    fn rules(&self) -> &Rules {
        self.lock.engine.rules(self.is_shared())
    }

    fn epoch(&self) -> Epoch {
        let engine = &self.lock.engine;
        engine.store.switch_count() + engine.forced()
    }

    /// Lets no other owner of this client get the hold. If it lingered, it ends with its readers.
    pub(crate) fn close(self: &Arc<Self>, now: Moment) {
        self.event(now, State::closes);
    }

    /// Keeps the lock held until then, even if `hold` is given back before. A shutdown waits for the end. Without a runtime, the lease ends the
    /// hold: it lasts for the minimum hold time.
    pub(crate) fn lasts_until(self: &Arc<Self>, until: Moment, hold: &Hold, now: Moment) {
        let lease = hold.renewed_lease(self.lock.engine.config.watchdog_lease());
        self.event(now, |state| state.lasts_until(until, lease));
        self.lock.engine.background.run(Arc::clone(self).kept(until));
    }

    async fn kept(self: Arc<Self>, until: Moment) {
        let engine = &self.lock.engine;
        loop {
            let (now, is_closing) = (clock::now(), engine.is_closing());
            let left = until.since(now);
            if left.is_zero() {
                return self.event(now, |_| {});
            }
            let is_long = || left > engine.config.retry_timeout() / 2;
            if is_closing && (is_long() || self.ask(|state| state.has_guards())) {
                return; // a shutdown does not wait for so long, nor for a guard, and the lease ends the hold
            }
            tokio::select! {
                biased;
                () = engine.closing(), if !is_closing => {}
                () = sleep(left.min(LOOK)) => {}
            }
        }
    }

    /// Leaves a hold to end with its lease.
    pub(crate) fn leak(self: &Arc<Self>, part: PartKey, hold: &Arc<Hold>, now: Moment) {
        self.event(now, |state| state.leaks(part, hold));
    }

    /// Gives the acquires under way up at a shutdown, because nobody polls them. Whatever they acquired is released.
    pub(crate) fn give_up(self: &Arc<Self>, now: Moment) {
        let late = self.late_until(now);
        self.event(now, |state| state.gives_up(late));
    }

    /// The fencing token, if this type of lock has one.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.ask(|state| state.token)).filter(|&token| token > 0)
    }

    /// The ids of the permits, if this is a grant of a semaphore.
    pub(crate) const fn permits(&self) -> Option<PermitIds> {
        if let Arg::Permits(ids) = self.id { Some(ids) } else { None }
    }

    /// Counts the holds that an owner has, and that can be relied on now.
    pub(crate) fn live(&self, part: PartKey, now: Moment) -> u32 {
        self.ask(|state| state.live(part, now))
    }

    /// Whether an answer said that the server has nothing.
    pub(crate) fn is_gone(&self) -> bool {
        self.ask(|state| state.is_gone)
    }

    /// Whether an owner has a hold, or acquires.
    pub(crate) fn has(&self, part: PartKey) -> bool {
        self.ask(|state| state.has(part))
    }

    /// Whether another task than this one acquired the first hold of an owner.
    pub(crate) fn is_foreign(&self, part: PartKey) -> bool {
        let this = task::try_id();
        self.ask(|state| state.is_foreign(part, this))
    }

    /// Whether an owner holds nothing, and nothing has to be released.
    fn is_over(&self, part: PartKey, now: Moment) -> bool {
        self.ask(|state| state.owing != Owing::Release && state.live(part, now) == 0)
    }

    /// Ends the hold if nobody needs it any more. Returns whether a release is under way, and no answer says yet that it has ended.
    fn ends(self: &Arc<Self>, now: Moment) -> bool {
        let may_exist = self.ask(|state| state.on_server.may_exist());
        may_exist && {
            self.event(now, |_| {});
            self.blocks()
        }
    }

    /// Whether a release of the hold is under way, and no answer says yet that it has ended.
    pub(crate) fn blocks(&self) -> bool {
        self.ask(|state| state.owing == Owing::Release)
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

    /// Whether other clients can shorten the lease, as Java's watchdog does to a read-write lock.
    pub(crate) fn is_shared(&self) -> bool {
        self.lock.protocol.is_shared()
    }

    /// The owner, without the id of the client. `None`: the grant is of permits, which have no owner.
    pub(crate) fn short_owner(&self) -> Option<Arc<str>> {
        let field = self.permits().is_none().then(|| self.field())?;
        field.split_once(':').map(|(_, owner)| owner.into())
    }

    /// Reserves the grant for this owner: from here on, no other owner of the process joins the hold or takes it over. False:
    /// another one has it, too.
    fn reserve(self: &Arc<Self>, part: PartKey, now: Moment) -> bool {
        self.event(now, |state| state.reserves(part, now))
    }

    /// Where in the program the lock was acquired, and since when, if an owner of this client holds it.
    pub(crate) fn held_at(&self, now: Moment) -> Option<(Caller, Moment)> {
        self.ask(|state| state.held_at(now).zip(state.lease.granted_at))
    }
}

/// Describes an acquire that the current task begins.
fn began(at: Caller) -> Began {
    Began { task: task::try_id(), at }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.is_shared() {
            self.lock.engine.read_grants.forget(&self.lock.keys.lock);
        }
    }
}
