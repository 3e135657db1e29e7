//! The wait queues of this client, by the channel that wakes them.
//!
//! [`Machine`] decides who attempts and when. Here are its mutex, its clock, and the wakers of the futures that wait.
//! One subscription serves a queue. Readers and writers of a read-write lock form two queues.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use super::machine::{self, Discipline, Effects, Next, Rules, Ticket, Wakes};
use crate::base::clock::{self, Moment};
use crate::base::config::LockConfig;
use crate::base::fault::Fault;
use crate::base::jitter;
use crate::base::sync::{MutexGuard, lock, nothing_is_locked};
use crate::protocol::LockKeys;
use crate::store::Store;

/// `O`: a hold that is offered to a waiter.
type Machine<O> = machine::Machine<O, Fault>;

/// All wait queues of one client, by the channel that wakes them.
pub(crate) struct WaitQueues<O> {
    queues: Mutex<HashMap<Arc<str>, OnChannel<O>>>,
    rows: Box<[Row; ROWS]>,
}

const ROWS: usize = 1_024; // 12 KiB for each client

/// How many calls acquire, and wait for, the locks whose keys have one hash. Most locks have a row of their own. If two
/// locks share a row, their calls queue although nobody waits for their lock.
#[derive(Default)]
struct Row {
    calls: AtomicU32,
    waiters: AtomicU32,
    /// Counts all waiters that ever came.
    came: AtomicU32,
}

/// Selects the row of a lock.
#[derive(Clone, Copy)]
pub(crate) struct RowOf(usize);

impl RowOf {
    pub(crate) fn lock(key: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self(usize::try_from(hasher.finish() % ROWS as u64).unwrap_or_default())
    }
}

/// What wakes a waiter.
pub(crate) struct WakeUps<'a, O> {
    /// Where the waiters of this client wake each other.
    pub(crate) queues: &'a WaitQueues<O>,
    /// The server's messages about releases.
    pub(crate) messages: &'a Store,
}

impl<O> Clone for WakeUps<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for WakeUps<'_, O> {}

/// A call that acquires a lock.
pub(crate) struct Arrival<'a> {
    row: &'a Row,
    /// How many waiters had come to the row before this call.
    before: u32,
    /// No other call of this client was acquiring the lock when this call came, so this call attempts without a queue.
    pub(crate) is_alone: bool,
}

impl Arrival<'_> {
    /// Whether another call began to wait since this call came: a message can have reached that waiter, and not this
    /// call.
    pub(crate) fn has_followers(&self) -> bool {
        self.row.came.load(Ordering::Acquire) != self.before
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.row.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The queues of one channel. Locks can share a channel, as `a` and `{a}` do.
type OnChannel<O> = SmallVec<[Arc<WaitQueue<O>>; 1]>;

/// Selects the queue that a waiter joins.
pub(crate) struct QueueKey {
    /// The channel that wakes the waiters.
    pub(crate) channel: Arc<str>,
    /// The key of the lock.
    pub(crate) lock: Arc<str>,
    pub(crate) discipline: Discipline,
    pub(crate) row: RowOf,
}

impl QueueKey {
    fn is_shared(&self) -> bool {
        self.discipline == Discipline::Readers
    }
}

/// The waiters of one client for one lock.
pub(crate) struct WaitQueue<O> {
    pub(crate) key: QueueKey,
    state: Mutex<Waiting<O>>,
}

struct Waiting<O> {
    machine: Machine<O>,
    /// The wakers of the waiters that sleep.
    wakers: BTreeMap<Ticket, Waker>,
}

/// Whom the message about a release reached.
#[derive(Clone, Copy)]
pub(crate) enum Receivers {
    /// The number of connections, perhaps including the one of this client.
    Exactly(u32),
    PerhapsOthers,
}

impl<O> Default for WaitQueues<O> {
    fn default() -> Self {
        let rows = Box::new(std::array::from_fn(|_| Row::default()));
        Self { queues: Mutex::default(), rows }
    }
}

impl<O: Send + 'static> WaitQueues<O> {
    /// Counts a call that begins to acquire a lock. Calls that come before it has ended join the queue. So of many that
    /// come at once, one attempts outside of the queue, and one as its front.
    pub(crate) fn arrive(&self, row: RowOf) -> Arrival<'_> {
        let row = &self.rows[row.0];
        let others = row.calls.fetch_add(1, Ordering::AcqRel);
        let before = row.came.load(Ordering::Acquire);
        Arrival { row, before, is_alone: others == 0 && row.waiters.load(Ordering::Acquire) == 0 }
    }

    /// Wakes the waiters of a channel. False: it has none.
    ///
    /// Redisson sends `0` for one waiter and `1` for all; here the waiter in front attempts for all.
    pub(crate) fn wake(&self, channel: &str) -> bool {
        let queues = self.on(channel);
        queues.iter().for_each(|queue| queue.change(Machine::wakes));
        !queues.is_empty()
    }

    /// Records that messages arrive on a channel from now on. Wakes its waiters, because the lock perhaps became free
    /// before. False: the channel has no waiters.
    pub(crate) fn subscribed(&self, channel: &str) -> bool {
        let queues = self.on(channel);
        queues.iter().for_each(|queue| queue.change(|machine, now| machine.has_messages(true, now)));
        !queues.is_empty()
    }

    /// Records that messages no longer arrive on these channels.
    pub(crate) fn disconnected(&self, channels: &BTreeSet<Arc<str>>) {
        for queue in channels.iter().flat_map(|channel| self.on(channel)) {
            queue.change(|machine, now| machine.has_messages(false, now));
        }
    }

    /// Wakes the waiters of all channels.
    pub(crate) fn wake_all(&self) {
        for queue in self.all() {
            queue.change(Machine::wakes);
        }
    }

    /// Whether the waiter of a channel was woken longer than `patience` ago, and did not attempt since.
    pub(crate) fn stalled_since_wake(&self, channel: &str, patience: Duration) -> bool {
        let now = clock::now();
        self.on(channel).iter().any(|queue| lock(&queue.state).machine.stalled_since_wake(patience, now))
    }

    /// Adds a waiter to a queue. `comes_first`: its call began when nobody waited.
    pub(crate) fn enter(
        &self,
        key: QueueKey,
        config: &LockConfig,
        can_take_handoff: bool,
        comes_first: bool,
    ) -> (Arc<WaitQueue<O>>, Ticket) {
        let mut queues = lock(&self.queues);
        let row = &self.rows[key.row.0];
        row.waiters.fetch_add(1, Ordering::AcqRel);
        row.came.fetch_add(1, Ordering::AcqRel);
        let on_channel = queues.entry(Arc::clone(&key.channel)).or_default();
        let is_same = |queue: &&Arc<WaitQueue<O>>| {
            queue.key.lock == key.lock && queue.key.is_shared() == key.is_shared()
        };
        let found = on_channel.iter().find(is_same).map(Arc::clone);
        let queue = found.unwrap_or_else(|| {
            let queue = Arc::new(WaitQueue::new(key, config));
            on_channel.push(Arc::clone(&queue));
            queue
        });
        let ticket = lock(&queue.state).machine.join(can_take_handoff, comes_first, clock::now());
        (queue, ticket)
    }

    /// Removes a waiter from a queue. `leave` tells the machine. With the last waiter, the queue and its subscription
    /// end.
    pub(crate) fn leave(
        &self,
        queue: &Arc<WaitQueue<O>>,
        ticket: Ticket,
        store: &Store,
        leave: impl FnOnce(&mut Machine<O>) -> Effects<O>,
    ) {
        let _waker; // dropped with nothing locked, because to drop a waker can run any code
        let mut queues = lock(&self.queues);
        self.rows[queue.key.row.0].waiters.fetch_sub(1, Ordering::AcqRel);
        let mut state = lock(&queue.state);
        _waker = state.wakers.remove(&ticket);
        let effects = leave(&mut state.machine);
        if !state.machine.is_empty() {
            drop(queues);
            return queue.perform(state, effects);
        }
        let channel = &queue.key.channel;
        if let Entry::Occupied(mut on_channel) = queues.entry(Arc::clone(channel)) {
            let others = on_channel.get_mut();
            others.retain(|other| !Arc::ptr_eq(other, queue));
            let is_subscribed = |other: &Arc<WaitQueue<O>>| lock(&other.state).machine.is_subscribed();
            if state.machine.is_subscribed() && !others.iter().any(is_subscribed) {
                // The map of queues is locked here: another waiter on this channel subscribes only after this line, so
                // this does not end its subscription.
                store.unsubscribe(channel);
            }
            if others.is_empty() {
                on_channel.remove();
            }
        }
        drop(queues);
        queue.perform(state, effects);
    }

    /// Subscribes for a queue, unless it is subscribed already.
    fn subscribe(&self, queue: &WaitQueue<O>, store: &Store) {
        // The map of queues stays locked, as in `leave`: a queue that ends now must not end this new subscription.
        let _queues = lock(&self.queues);
        if lock(&queue.state).machine.subscribes() {
            store.subscribe(&queue.key.channel);
        }
    }

    /// Returns the queue of the waiters to which a hold of this lock can be handed over, and whether the channel has
    /// other queues, which a release wakes, too.
    pub(crate) fn exclusive_queue_of(
        &self,
        keys: &LockKeys,
        row: RowOf,
    ) -> Option<(Arc<WaitQueue<O>>, bool)> {
        if self.rows[row.0].waiters.load(Ordering::Acquire) == 0 {
            return None; // the usual case: nobody waits
        }
        let queues = lock(&self.queues);
        let on_channel = queues.get(&keys.channel)?;
        Some((queue_of(on_channel, keys, false)?, on_channel.len() > 1))
    }

    /// Returns the queue of the waiters for this lock.
    pub(crate) fn queue_of(&self, keys: &LockKeys, is_shared: bool) -> Option<Arc<WaitQueue<O>>> {
        queue_of(lock(&self.queues).get(&keys.channel)?, keys, is_shared)
    }

    fn on(&self, channel: &str) -> OnChannel<O> {
        lock(&self.queues).get(channel).cloned().unwrap_or_default()
    }

    /// All queues, in an order that is always the same.
    fn all(&self) -> Vec<Arc<WaitQueue<O>>> {
        let mut queues: Vec<_> = lock(&self.queues).values().flatten().map(Arc::clone).collect();
        queues.sort_by(|a, b| a.key.channel.cmp(&b.key.channel));
        queues
    }
}

fn queue_of<O>(on_channel: &OnChannel<O>, keys: &LockKeys, is_shared: bool) -> Option<Arc<WaitQueue<O>>> {
    let is_it =
        |queue: &&Arc<WaitQueue<O>>| queue.key.lock == keys.lock && queue.key.is_shared() == is_shared;
    on_channel.iter().find(is_it).map(Arc::clone)
}

impl<O: Send + 'static> WaitQueue<O> {
    fn new(key: QueueKey, config: &LockConfig) -> Self {
        let machine = Machine::new(Rules::new(key.discipline, config.safety_poll()));
        let state = Waiting { machine, wakers: BTreeMap::new() };
        Self { key, state: Mutex::new(state) }
    }

    /// Tells the machine of an event.
    pub(crate) fn change(&self, event: impl FnOnce(&mut Machine<O>, Moment) -> Effects<O>) {
        let mut state = lock(&self.state);
        let effects = event(&mut state.machine, clock::now());
        self.perform(state, effects);
    }

    /// Asks the machine, or tells it of an event that has no effects.
    pub(crate) fn with<T>(&self, event: impl FnOnce(&mut Machine<O>) -> T) -> T {
        event(&mut lock(&self.state).machine)
    }

    /// Wakes waiters and drops offers, with nothing locked.
    fn perform(&self, mut state: MutexGuard<'_, Waiting<O>>, Effects { wakes, dropped }: Effects<O>) {
        let wakers: SmallVec<[Waker; 1]> = match wakes {
            Wakes::Nobody => {
                drop(state);
                return drop(dropped);
            }
            Wakes::Front => {
                let front = state.machine.front();
                front.and_then(|front| state.wakers.remove(&front)).into_iter().collect()
            }
            Wakes::All => std::mem::take(&mut state.wakers).into_values().collect(),
        };
        drop(state);
        nothing_is_locked();
        wakers.into_iter().for_each(Waker::wake);
        drop(dropped);
    }

    /// Returns until when a waiter waits. Until then, `waker` is woken when the answer changes. `None`: the waiter acts
    /// now.
    pub(crate) fn poll(
        &self,
        ticket: Ticket,
        by: Option<Moment>,
        waker: &Waker,
        WakeUps { queues, messages }: WakeUps<'_, O>,
    ) -> Option<Moment> {
        let waker = waker.clone(); // with nothing locked, because to clone a waker can run any code
        let mut state = lock(&self.state);
        match state.machine.next(ticket, by, clock::now(), jitter::around) {
            Next::Act => {
                drop(state);
                None
            }
            Next::Wait { until, subscribes } => {
                let before = state.wakers.insert(ticket, waker);
                drop(state);
                drop(before);
                if subscribes {
                    queues.subscribe(self, messages);
                }
                Some(until)
            }
        }
    }

    /// Hands a hold over to the waiter in front. False: `hold` is to be released.
    pub(crate) fn offer(
        &self,
        hand_over_time: Duration,
        now: Moment,
        hold: impl FnOnce(Duration, Moment) -> Option<O>,
    ) -> bool {
        let mut state = lock(&self.state);
        let is_offered = state.machine.offers(hand_over_time, now, hold);
        if is_offered {
            self.perform(state, Effects::wakes(Wakes::Front));
        }
        is_offered
    }

    /// Keeps a hold for the waiting readers, in place of the one that was kept before.
    pub(crate) fn keep_for_readers(&self, offer: impl FnOnce() -> Option<O>) {
        self.change(|machine, _| machine.ends_offers());
        if let Some(offer) = offer() {
            self.change(|machine, now| machine.keeps(offer, now));
        }
    }

    /// Takes back the offers that nobody took, if the last one was made `STALLED` ago.
    pub(crate) fn take_back(&self, now: Moment) {
        self.change(|machine, _| machine.takes_back(now));
    }

    /// Takes the hold that is offered to a waiter.
    pub(crate) fn take_offer(&self, ticket: Ticket) -> Option<O> {
        let mut state = lock(&self.state);
        let (offer, effects) = state.machine.takes_offer(ticket);
        self.perform(state, effects);
        offer
    }

    /// Records how the release of a hold ended. `receivers`: whom its message reached. `None`: the release released
    /// nothing, or its outcome is unknown.
    pub(crate) fn release_ended(&self, receivers: Option<Receivers>) {
        self.change(|machine, now| {
            let own = u32::from(machine.gets_messages());
            let others_wait = receivers.map(|receivers| match receivers {
                Receivers::Exactly(reached) => reached > own,
                Receivers::PerhapsOthers => true,
            });
            machine.release_ended(others_wait, now)
        });
    }
}
