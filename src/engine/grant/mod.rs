//! A grant: what one owner id holds, or possibly holds, on one lock of one server.
//!
//! An owner that holds nothing on a name gets a new grant with a new id when it begins to acquire. Its re-entries use the
//! same grant. When nobody needs the hold any more, the grant is over, and its id is never used again. So it does no
//! harm if a command is sent twice, or if an old copy of it runs late. A copy names an id, and finds either nothing or
//! the hold that it was meant for. There is one exception: a late copy of a first acquire creates a
//! hold. The background repeats the release until no such copy can arrive.
//!
//! [`machine`] decides, and is pure. Its parts are in files of their own: what this client wants is [`part`], what the
//! server can have is [`copies`], what the owners of the client give each other is [`passing`], and what readers leave
//! for those that come is [`lingering`]. [`attempt`], [`release`] and [`undo`] send commands, and tell the machine how
//! they ended. After each event, [`Grant::change`] schedules what is due, hands what is owed to the background, and
//! then reports what happened, with no mutex locked.
//!
//! Time is an argument. Only what awaits reads the clock: before it sends, and after the answer. A `drop` reads the
//! clock, too.
//!
//! # The explorer
//!
//! `explorer.rs` runs the machine against a model of the server, of two connections, and of the futures, the background
//! and the watchdog. One owner acquires, re-enters and gives back, a second one takes its hold over or joins it, and
//! another client takes the lock whenever it is free. In each run one or two things go wrong: a future is dropped at an
//! await, a connection breaks and leaves copies, a command is refused, the hold is removed, a shutdown gives up, a
//! guard is leaked, or a step is late. It visits sixteen configurations as a whole, and `scripts/nightly` twenty larger
//! ones. It checks:
//!
//! - Until somebody removes the hold, a guard that can be relied on has it on the server, and no other client has the lock.
//! - The server has nothing that the copies do not count. Whatever is owed is attended, asked of the background, or due.
//! - A loss is told only of a hold that was lost, and a hold that was removed under a guard is told.
//! - A lock stays held for its minimum hold time.
//! - An end can be reached from every state.
//!
//! It does not cover places in a fair queue, several permits, leases of their own, switches to another master,
//! and threads that swap commands between the machine and the connection. The simulated worlds and the
//! tests with shuttle do.

mod attempt;
mod copies;
mod kept;
mod lease;
pub(crate) mod lingering;
mod machine;
pub(crate) mod owner_grants;
pub(crate) mod part;
mod passing;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod release;
pub(crate) mod sharing;
pub(crate) mod undo;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task;

use machine::{Epoch, Joining};
use part::{Began, OwnerKey};

use super::hold::Hold;
use super::hold::deadline::Deadline;
use super::hold::lease::{Rules, due_after};
use super::lock_ref::LockRef;
use super::scheduler::Slot;
use crate::base::Caller;
use crate::base::clock::Moment;
use crate::base::sync::{lock, nothing_is_locked};
use crate::protocol::{Arg, HolderRef, PermitIds};
use crate::telemetry::Renewing;

type Machine = machine::Machine<Arc<Hold>>;
type Effects = super::hold::effects::Effects<Arc<Hold>>;

/// What one owner id holds, or possibly holds, on one lock of one server.
pub(crate) struct Grant {
    pub(crate) lock: Arc<LockRef>,
    /// The owner, in the form of Redisson's `UUID:threadId`.
    id: Arg,
    pub(crate) number: u64,
    state: Mutex<State>,
}

struct State {
    machine: Machine,
    renewal: Slot,
    renewing: Renewing,
    heartbeat: Slot,
    confirmation: Slot,
    /// The key of which the server tells changes.
    tracked: Option<Arc<str>>,
    /// Set while the background works on this grant. Wakes the job.
    undoing: Option<Arc<Notify>>,
    /// The background keeps the lock for its minimum hold time.
    is_kept: bool,
}

impl Grant {
    /// Makes a grant. `same`: an existing grant whose owner id the new one shares.
    fn new(lock: Arc<LockRef>, same: Option<&Self>, owner: OwnerKey, caller: Caller) -> Self {
        let count = lock.permits.count();
        let number = lock.engine.next_number(count);
        let id = same.map_or_else(|| lock.protocol.id(lock.engine.id, number, count), |same| same.id.clone());
        let state = State {
            machine: Machine::new(owner, began(caller)),
            renewal: Slot::default(),
            renewing: Renewing::default(),
            heartbeat: Slot::default(),
            confirmation: Slot::default(),
            tracked: None,
            undoing: None,
            is_kept: false,
        };
        Self { lock, id, number, state: Mutex::new(state) }
    }

    /// Asks the machine, or tells it of an event from which nothing follows.
    fn ask<T>(&self, question: impl FnOnce(&mut Machine) -> T) -> T {
        question(&mut lock(&self.state).machine)
    }

    /// Tells the machine of an event, and does what follows from it.
    fn event<T>(self: &Arc<Self>, now: Moment, event: impl FnOnce(&mut Machine, &mut Effects) -> T) -> T {
        self.change(now, |state, effects| event(&mut state.machine, effects))
    }

    /// Changes the state, and does what follows from that.
    fn change<T>(self: &Arc<Self>, now: Moment, change: impl FnOnce(&mut State, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let mut state = lock(&self.state);
        let result = change(&mut state, &mut effects);
        let after = self.settle(&mut state, &mut effects, now);
        drop(state);
        if let Some(after) = after {
            self.perform(effects, after);
        }
        result
    }

    /// Schedules the next renewal, confirmation and heartbeat. Returns what has to be done after unlocking, if
    /// anything.
    fn settle(self: &Arc<Self>, state: &mut State, effects: &mut Effects, now: Moment) -> Option<After> {
        let LockRef { engine, keys, .. } = &*self.lock;
        let due = state.machine.due(now, self.rules());
        if state.renewal.is_to_be_set(due) {
            engine.renewals.set(&mut state.renewal, due, || Arc::clone(self));
        }
        if !state.machine.has_holds()
            && let Some(key) = state.tracked.take_if(|_| !state.renewal.is_set())
        {
            engine.tracked.remove(&key, self);
        }
        let due = state.machine.confirms_at();
        if state.confirmation.is_to_be_set(due) {
            engine.confirmations.set(&mut state.confirmation, due, || Arc::clone(self));
        }
        match (state.machine.has_place, state.heartbeat.is_set()) {
            (true, false) => {
                let due = due_after(engine.periods.heartbeat(), &keys.lock, now);
                engine.heartbeats.set(&mut state.heartbeat, Some(due), || Arc::clone(self));
            }
            (false, true) => engine.heartbeats.set(&mut state.heartbeat, None, || Arc::clone(self)),
            _ => {}
        }
        let is_asked = state.machine.asks_background(now, effects);
        let keeps = state.machine.kept_until().filter(|_| !state.is_kept);
        if !is_asked && keeps.is_none() && effects.is_empty() {
            return None; // the usual case: nothing follows
        }
        state.is_kept |= keeps.is_some();
        Some(After {
            renewing: effects.renewed.map(|outcome| state.renewing.ends(outcome)),
            starts: is_asked && state.undoing.is_none(),
            job: is_asked.then(|| Arc::clone(state.undoing.get_or_insert_default())),
            keeps,
        })
    }

    /// Starts jobs and reports what happened, with nothing locked.
    fn perform(self: &Arc<Self>, effects: Effects, After { renewing, starts, job, keeps }: After) {
        // Start the background job first: the code of the user that runs below can panic, and the job must not be lost.
        match job {
            Some(job) if starts => self.undo(job),
            Some(job) => job.notify_one(),
            None => {}
        }
        if let Some(until) = keeps {
            self.keep(until);
        }
        let (renewed, is_free) = (effects.renewed, effects.is_free);
        effects.perform();
        if let (Some(renewing), Some(outcome)) = (renewing, renewed) {
            nothing_is_locked();
            renewing.tell(outcome);
        }
        if is_free {
            // The server lost the hold, perhaps without a message. So this client wakes its own waiters.
            let LockRef { engine, protocol, keys, .. } = &*self.lock;
            if protocol.queue().is_some() {
                engine.heartbeats.rush();
            } else {
                engine.wait_queues.wake(&keys.channel);
            }
        }
    }

    fn rules(&self) -> &Rules {
        self.lock.engine.rules(self.is_shared())
    }

    fn epoch(&self) -> Epoch {
        let engine = &self.lock.engine;
        Epoch { switches: engine.store.switch_count(), forced: engine.forced() }
    }

    /// Adds a hold that the server granted until `until`, for an acquire under way. From here on, the watchdog renews
    /// it. False: a shutdown gave the acquire up meanwhile.
    fn add_hold(self: &Arc<Self>, owner: OwnerKey, hold: &Arc<Hold>, until: Moment, now: Moment) -> bool {
        let (hold, rules) = (Arc::clone(hold), self.rules());
        let (is_added, epoch) =
            self.event(now, |machine, _| (machine.holds(owner, hold, (until, now), rules), machine.epoch));
        if is_added && epoch.switches != self.lock.engine.store.switch_count() {
            // Another server became the master during the attempt. Its rush of renewals perhaps ran before this hold
            // was scheduled, so everything is renewed once more.
            self.lock.engine.renewals.rush();
        }
        is_added
    }

    /// Records the fencing token that the server granted.
    fn sets_token(&self, token: u64) {
        self.ask(|machine| machine.token = token);
    }

    /// Records that the granted hold is perhaps gone already, so it must not be handed over.
    pub(crate) fn forbids_hand_over(&self) {
        self.ask(|machine| machine.lease.is_unsure = true);
    }

    /// Removes a hold that was given back: from here on, the lease is not renewed for it. The caller sends the release,
    /// and calls [`no_longer_attended`](Self::no_longer_attended) when it stops.
    pub(crate) fn give_back(self: &Arc<Self>, hold: &Arc<Hold>, now: Moment) {
        self.event(now, |machine, _| machine.gives_back(hold, true, now));
    }

    /// Records that a future attends to this grant, and so sends what is owed.
    pub(crate) fn attended(&self) {
        self.ask(|machine| machine.attended());
    }

    /// Records that a future no longer attends to this grant. False: something is left, and [`look`](Self::look) has to
    /// hand it to the background.
    pub(crate) fn no_longer_attended(&self) -> bool {
        let mut state = lock(&self.state);
        state.machine.no_longer_attended();
        let (is_over, job) = (!state.machine.copies.may_exist(), state.undoing.clone());
        drop(state);
        if let Some(job) = job {
            job.notify_one(); // the job rests while a future attends to the release
        }
        is_over
    }

    /// Keeps the lock held until then, even if `hold` is given back before.
    pub(crate) fn stays_until(self: &Arc<Self>, until: Moment, hold: &Arc<Hold>, now: Moment) {
        let lease = hold.renewed_lease(self.lock.engine.config.watchdog_lease());
        self.event(now, |machine, _| machine.stays_until(until, lease));
    }

    /// Leaves a hold to end with its lease.
    pub(crate) fn leak(self: &Arc<Self>, hold: &Arc<Hold>, now: Moment) {
        self.event(now, |machine, _| machine.leaks(hold, now));
    }

    /// Lends the id of this grant to a read hold of the same owner. False: the owner has no hold here.
    /// [`look`](Self::look) has to follow, with nothing locked.
    fn lends(&self, owner: OwnerKey, now: Moment) -> bool {
        self.ask(|machine| machine.lends(owner, now))
    }

    /// Records that an acquire of an owner ended without a hold.
    fn ends_pending(self: &Arc<Self>, owner: OwnerKey, now: Moment) {
        self.event(now, |machine, _| machine.ends_pending(owner));
    }

    /// Gives the acquires under way up at a shutdown, because nobody polls them. Whatever they acquired is undone.
    pub(crate) fn give_up(self: &Arc<Self>, now: Moment) {
        self.event(now, |machine, _| machine.gives_up());
    }

    /// Schedules and hands over what has become due since the last event.
    pub(crate) fn look(self: &Arc<Self>, now: Moment) {
        self.event(now, |_, _| {});
    }

    /// The fencing token, if this type of lock has one.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.ask(|machine| machine.token)).filter(|&token| token > 0)
    }

    /// The ids of the permits, if this is a grant of a semaphore.
    pub(crate) const fn permits(&self) -> Option<PermitIds> {
        if let Arg::Permits(ids) = self.id { Some(ids) } else { None }
    }

    /// Counts the holds that an owner has, and that can be relied on now.
    pub(crate) fn live(&self, owner: OwnerKey, now: Moment) -> u32 {
        self.ask(|machine| machine.live(owner, now))
    }

    /// Whether another task than this one acquired the first hold of an owner.
    pub(crate) fn is_foreign(&self, owner: OwnerKey) -> bool {
        let this = task::try_id();
        self.ask(|machine| machine.part(owner).is_some_and(|part| part.is_foreign(this)))
    }

    /// Whether the server had no hold of this grant, although there should have been one.
    pub(crate) fn is_gone(&self) -> bool {
        self.ask(|machine| machine.was_lost())
    }

    /// Whether the hold seems gone, and the answer to another release that is under way can still explain that.
    pub(crate) fn is_perhaps_gone(&self) -> bool {
        self.ask(|machine| machine.was_perhaps_lost())
    }

    /// Whether the server can have a hold that is not needed, or a late copy of an attempt can create one, or a count is
    /// not shown.
    pub(crate) fn is_owed(&self, now: Moment) -> bool {
        self.ask(|machine| machine.is_owed(now))
    }

    /// Whether the server can have a hold that is not needed, and has not answered a release of it yet. False while an
    /// undo is repeated only because a late copy of an attempt can arrive.
    pub(crate) fn owes_release(&self, now: Moment) -> bool {
        self.ask(|machine| machine.owes_release(now))
    }

    /// Whether a first acquire possibly ran without an answer, or a copy of it can still run.
    pub(crate) fn may_run_late(&self) -> bool {
        self.ask(|machine| machine.copies.may_run_late())
    }

    /// Forgets that a count is not shown. False: a release is owed.
    fn shows_no_more(&self, now: Moment) -> bool {
        lock(&self.state).machine.shows_no_more(now)
    }

    fn longest_lease(&self) -> Duration {
        self.ask(|machine| machine.lease.longest)
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

    /// Reserves the grant for this owner, if no other owner of the process stands on it: from here on, none joins the
    /// hold or takes it over. False: another one does.
    pub(crate) fn reserve(&self, owner: OwnerKey, now: Moment) -> bool {
        lock(&self.state).machine.reserves(owner, now)
    }

    /// Where in the program the lock was acquired, and since when, if an owner of this client holds it.
    pub(crate) fn held_at(&self, now: Moment) -> Option<(Caller, Moment)> {
        self.ask(|machine| machine.held_at(now).zip(machine.lease.granted_at))
    }
}

/// Describes an acquire that the current task begins.
fn began(at: Caller) -> Began {
    Began { task: task::try_id(), at }
}

/// What has to be done for an event after unlocking.
struct After {
    renewing: Option<Renewing>,
    /// The background has no job for the grant yet, and starts one.
    starts: bool,
    /// Wakes the job, which has something to do.
    job: Option<Arc<Notify>>,
    /// Until when the background has to keep the lock.
    keeps: Option<Moment>,
}

impl Drop for Grant {
    fn drop(&mut self) {
        let joining = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).machine.joining;
        let LockRef { engine, protocol, keys, .. } = &*self.lock;
        if protocol.is_shared() && joining != Joining::NotYet {
            engine.read_grants.forget(&keys.lock);
        }
    }
}
