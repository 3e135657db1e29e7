//! The wait queues of this client: which waiters there are for a lock, and which of them is woken.
//!
//! The waiters for one lock form a queue. The waiter in front has the turn and attempts. If no waiter in the queue attempted
//! before, it attempts at once. Otherwise it attempts when it is woken or a poll is due. The other waiters cost nothing. One
//! subscription serves the queue.
//!
//! Readers and writers of a read-write lock form two queues. A reader attempts at once, and waits for the turn only if it is
//! refused. When one reader is granted the lock, all readers in the queue attempt at once.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::sleep;

use crate::base::clock::{self, Moment};
use crate::base::config::LockConfig;
use crate::base::fault::Fault;
use crate::base::jitter;
use crate::base::sync::{Watched, lock};
use crate::engine::wait::line::Line;
use crate::protocol::LockKeys;
use crate::store::{Listener, Store};

/// How often a waiter attempts by itself while there are no messages.
const POLL_WITHOUT_MESSAGES: Duration = Duration::from_millis(250);

/// The same for a waiter whose heartbeat tells it when its turn has come.
const POLL_BESIDE_HEARTBEAT: Duration = Duration::from_secs(3_600);

/// All wait queues of one client, by the channel that wakes them.
#[derive(Default)]
pub(crate) struct WaitQueues(Mutex<HashMap<Arc<str>, OnChannel>>);

/// The queues of one channel. Locks can share a channel, as `a` and `{a}` do.
type OnChannel = SmallVec<[Arc<WaitQueue>; 1]>;

/// Selects the queue that a waiter joins.
pub(crate) struct QueueKey {
    /// The channel that wakes the waiters.
    pub(crate) channel: Arc<str>,
    /// The key of the lock.
    pub(crate) lock: Arc<str>,
    /// Several owners can hold the lock together.
    pub(crate) is_shared: bool,
    /// A waiter also has a place in a queue on the server, and a heartbeat that tells it when its turn has come.
    pub(crate) has_place: bool,
}

/// The turn of the waiter in front. Dropping it passes the turn to the next waiter.
pub(crate) struct Turn(Arc<WaitQueue>);

pub(crate) struct WaitQueue {
    pub(crate) key: QueueKey,
    /// The one permit of this semaphore is the turn. The semaphore is fair: first come, first served. A waiter that leaves does
    /// not disturb the others.
    turn: Semaphore,
    /// Set when the lock is perhaps free. The flag wakes the waiter in front. If none waits at that moment, the flag stays set
    /// for the next one. However often it was set, it wakes once.
    pub(crate) wake: Notify,
    /// Counts the calls to all waiters, where several owners can hold the lock together.
    pub(crate) everyone: Option<Watched<u64>>,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) waiters: usize,
    /// A waiter was refused, so it is known that the lock is held.
    is_answered: bool,
    /// Several owners can hold the lock together, and a waiter of this queue was granted it.
    is_open: bool,
    is_subscribed: bool,
    /// Messages arrive.
    pub(crate) has_messages: bool,
    /// When an attempt was last sent, or since when a second waiter waits. `None` with one waiter, where it is not needed.
    attempted_at: Option<Moment>,
    /// An attempt was sent, and its answer was not seen yet.
    pub(crate) is_attempting: bool,
    /// When the queue was woken, if no waiter attempted since.
    pub(crate) woken_at: Option<Moment>,
    /// When to attempt without a message: the lease of the holder has ended, or the pause after a fault.
    retry_at: Option<Moment>,
    /// Since when attempts fail, and the fault of the last one.
    failing: Option<(Moment, Fault)>,
    pub(crate) line: Line,
}

impl WaitQueues {
    /// Wakes the waiters of a channel.
    pub(crate) fn wake(&self, channel: &str) {
        for queue in self.on(channel) {
            queue.wake_up();
        }
    }

    /// Wakes the waiters of all channels.
    pub(crate) fn wake_all(&self) {
        for queue in self.all() {
            queue.wake_up();
        }
    }

    /// Whether the waiter of a channel was woken longer than `patience` ago, and did not attempt since.
    pub(crate) fn ignores_a_wake(&self, channel: &str, patience: Duration) -> bool {
        let queues = self.on(channel);
        let woken = queues.iter().filter_map(|queue| lock(&queue.state).woken_at);
        woken.min().is_some_and(|at| clock::now().since(at) > patience)
    }

    /// Adds a waiter to a queue.
    pub(crate) fn enter(&self, key: QueueKey, is_able: bool) -> Arc<WaitQueue> {
        let mut queues = lock(&self.0);
        let on_channel = queues.entry(Arc::clone(&key.channel)).or_default();
        let is_same =
            |queue: &&Arc<WaitQueue>| queue.key.lock == key.lock && queue.key.is_shared == key.is_shared;
        let found = on_channel.iter().find(is_same).map(Arc::clone);
        let queue = found.unwrap_or_else(|| {
            let queue = Arc::new(WaitQueue::new(key));
            on_channel.push(Arc::clone(&queue));
            queue
        });
        let mut state = lock(&queue.state);
        state.waiters += 1;
        state.line.unable += usize::from(!is_able);
        if state.waiters > 1 {
            state.attempted_at.get_or_insert_with(clock::now);
        }
        drop(state);
        queue
    }

    /// Removes a waiter from a queue. With the last one, the queue and its subscription end.
    pub(crate) fn leave(&self, queue: &Arc<WaitQueue>, is_able: bool, store: &Store) {
        let _left; // released after the maps are unlocked
        let mut queues = lock(&self.0);
        let mut state = lock(&queue.state);
        state.waiters -= 1;
        state.line.unable -= usize::from(!is_able);
        if state.waiters > 0 {
            return;
        }
        _left = state.line.offer.take();
        let channel = &queue.key.channel;
        let Entry::Occupied(mut on_channel) = queues.entry(Arc::clone(channel)) else { return };
        let others = on_channel.get_mut();
        others.retain(|other| !Arc::ptr_eq(other, queue));
        if state.is_subscribed && !others.iter().any(|other| lock(&other.state).is_subscribed) {
            // The map of queues is locked here: another waiter on this channel subscribes only after this line, so this does not
            // end its subscription.
            store.unsubscribe(channel);
        }
        if others.is_empty() {
            on_channel.remove();
        }
    }

    /// Subscribes for a queue, if that was not done before.
    pub(crate) fn subscribe(&self, queue: &WaitQueue, store: &Store) {
        if !lock(&queue.state).is_subscribed {
            let _queues = lock(&self.0); // as in `leave`
            lock(&queue.state).is_subscribed = true;
            store.subscribe(&queue.key.channel);
        }
    }

    /// The waiters to which a hold of this lock can be passed on, and whether there are others here that a release wakes.
    pub(crate) fn line_of(&self, keys: &LockKeys) -> Option<(Arc<WaitQueue>, bool)> {
        let queues = lock(&self.0);
        let on_channel = queues.get(&keys.channel)?;
        let is_line = |queue: &&Arc<WaitQueue>| queue.key.lock == keys.lock && !queue.key.is_shared;
        let line = on_channel.iter().find(is_line).map(Arc::clone)?;
        Some((line, on_channel.len() > 1))
    }

    fn on(&self, channel: &str) -> OnChannel {
        lock(&self.0).get(channel).cloned().unwrap_or_default()
    }

    /// All queues, in an order that is always the same.
    fn all(&self) -> Vec<Arc<WaitQueue>> {
        let mut queues: Vec<_> = lock(&self.0).values().flatten().map(Arc::clone).collect();
        queues.sort_by(|a, b| a.key.channel.cmp(&b.key.channel));
        queues
    }
}

impl Listener for WaitQueues {
    /// Wakes: perhaps the lock became free before the subscription was active.
    fn subscribed(&self, channel: &str) {
        for queue in self.on(channel) {
            queue.has_messages(true);
        }
    }

    /// Every message wakes. Redisson sends `0` for one waiter and `1` for all; here the waiter in front attempts for all.
    fn message(&self, channel: &str) {
        self.wake(channel);
    }

    fn disconnected(&self, channels: &BTreeSet<Arc<str>>) {
        for queue in channels.iter().flat_map(|channel| self.on(channel)) {
            if lock(&queue.state).has_messages {
                queue.has_messages(false);
            }
        }
    }
}

impl WaitQueue {
    fn new(key: QueueKey) -> Self {
        Self {
            turn: Semaphore::new(1),
            wake: Notify::new(),
            everyone: key.is_shared.then(Watched::default),
            state: Mutex::default(),
            key,
        }
    }

    /// Takes the turn, if no waiter has it.
    pub(crate) fn try_turn(self: &Arc<Self>) -> Option<Turn> {
        self.turn.try_acquire().ok().map(|permit| Turn::new(self, permit))
    }

    /// Waits for the turn.
    pub(crate) async fn turn(self: Arc<Self>) -> Turn {
        let permit = self.turn.acquire().await.expect("BUG: nothing closes the semaphore of a wait queue");
        Turn::new(&self, permit)
    }

    /// Messages arrive from now on, or do not arrive any more. In both cases, a message was perhaps missed.
    fn has_messages(&self, has_messages: bool) {
        let mut state = lock(&self.state);
        state.has_messages = has_messages;
        state.line.is_disturbed = true;
        // A waiter with a place on the server attempts only when its turn comes. It need not attempt now, so nothing records that
        // it was woken.
        if !self.key.has_place {
            state.woken_at.get_or_insert_with(clock::now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// The lock is perhaps free.
    fn wake_up(&self) {
        let mut state = lock(&self.state);
        state.woken_at.get_or_insert_with(clock::now);
        state.line.is_disturbed = true;
        drop(state);
        self.wake.notify_one();
    }

    /// Whether a waiter knows that the lock is held.
    pub(crate) fn is_answered(&self) -> bool {
        lock(&self.state).is_answered
    }

    /// Whether a waiter knows that there is nothing to attempt for now.
    pub(crate) fn is_closed(&self) -> bool {
        let state = lock(&self.state);
        state.is_answered && !state.is_open
    }

    /// The fault that prevents an answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        lock(&self.state).failing.as_ref().map(|(_, fault)| fault.clone())
    }

    /// How long the waiter in front waits for a message.
    pub(crate) fn pause(&self, config: &LockConfig) -> Duration {
        let state = lock(&self.state);
        let poll = match state.has_messages {
            _ if self.key.has_place => POLL_BESIDE_HEARTBEAT,
            true => config.safety_poll(),
            false => config.safety_poll().min(POLL_WITHOUT_MESSAGES),
        };
        let poll = jitter::around(poll);
        state.retry_at.map_or(poll, |at| poll.min(at.since(clock::now())))
    }

    /// Waits until no waiter has attempted for longer than `patience`. Perhaps the waiter in front is a future that nobody polls;
    /// the waiters behind must not wait for it without end.
    pub(crate) async fn overlooked(&self, patience: Duration) {
        let joined = clock::now();
        loop {
            let attempted_at = lock(&self.state).attempted_at.unwrap_or(joined);
            let waited = clock::now().since(attempted_at);
            if waited > patience {
                return;
            }
            sleep(jitter::around(patience - waited) + Duration::from_millis(1)).await;
        }
    }

    /// A waiter attempts now.
    pub(crate) fn attempts(&self) {
        let _offer; // which this waiter could not take; released after the state is unlocked
        let mut state = lock(&self.state);
        _offer = state.line.offer.take();
        state.line.is_disturbed = false;
        state.woken_at = None;
        state.is_attempting = true;
        state.attempted_at = (state.waiters > 1).then(clock::now);
    }

    /// Whether another waiter than the one that asks should have attempted by now: the queue was woken, the lease of the holder
    /// ended, or the answer to the last attempt did not come within `patience`.
    pub(crate) fn is_overdue(&self, patience: Duration) -> bool {
        let (state, now) = (lock(&self.state), clock::now());
        if self.key.has_place || state.waiters == 1 {
            false // there is nobody else
        } else if state.is_attempting {
            state.attempted_at.is_some_and(|at| now.since(at) > patience)
        } else {
            state.woken_at.is_some() || state.retry_at.is_some_and(|at| at < now)
        }
    }

    /// Whether an attempt was sent and not answered.
    pub(crate) fn is_attempting(&self) -> bool {
        lock(&self.state).is_attempting
    }

    /// Another owner holds the lock. The holder's lease lasts at most for the time `left`, if that is known.
    pub(crate) fn refused(&self, left: Option<Duration>) {
        lock(&self.state).refused(left);
    }

    /// A waiter was granted the lock, with this lease.
    pub(crate) fn granted(&self, lease: Duration) {
        let mut state = lock(&self.state);
        if state.waiters == 1 {
            return;
        }
        state.is_attempting = false;
        match &self.everyone {
            None => state.refused(Some(lease)),
            // All waiters can be granted the lock, too. The first waiter that finds out calls the others.
            Some(everyone) if state.is_answered && !state.is_open => {
                state.is_open = true;
                everyone.modify(|calls| *calls += 1);
            }
            Some(_) => {}
        }
    }

    /// An attempt failed, and is retried after a pause. Returns for how long attempts have been failing.
    pub(crate) fn failed(&self, fault: &Fault, pause: Duration) -> Duration {
        let now = clock::now();
        let mut state = lock(&self.state);
        state.is_attempting = false;
        state.retry_at = Some(now.plus(pause));
        let since = state.failing.take().map_or(now, |(since, _)| since);
        state.failing = Some((since, fault.clone()));
        now.since(since)
    }
}

impl Turn {
    fn new(queue: &Arc<WaitQueue>, permit: SemaphorePermit<'_>) -> Self {
        permit.forget(); // returned by the drop
        Self(Arc::clone(queue))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.turn.add_permits(1);
    }
}

impl State {
    fn refused(&mut self, left: Option<Duration>) {
        self.is_answered = true;
        self.is_attempting = false;
        self.is_open = false;
        self.retry_at = left.map(|left| clock::now().plus(left));
        self.failing = None;
    }
}
