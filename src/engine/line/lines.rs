//! The lines of a client, by the channel that wakes them.
//!
//! [`State`] decides. Here are its mutex, its clock, the wakers of the calls, and the map of lines. The map is locked before a line, and
//! nothing else is locked beside one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::state::{self, Kind, Polled, Terms, Ticket};
use crate::base::clock::{self, Moment};
use crate::base::error::Error;
use crate::base::sync::{MutexGuard, lock, nothing_is_locked, until};
use crate::base::task;
use crate::protocol::LockKeys;
use crate::store::Store;

type State<O> = state::State<O, Waker, Error>;
type Effects<O> = state::Effects<O, Waker>;

/// A hold that the calls of a line can have without a question.
pub(crate) trait Offered: Send + 'static {
    /// What the diagnosis knows of a call.
    type Call: Send + Sync;
}

/// The lines of a client.
pub(crate) struct Lines<O: Offered> {
    map: Mutex<HashMap<Arc<str>, OnChannel<O>>>,
    /// How many lines there are, so that a free lock need not lock the map if nobody waits for anything.
    count: AtomicUsize,
    /// The client's runtime, on which the tasks of the lines run.
    pub(crate) runtime: Handle,
}

/// The lines of one channel. Readers and writers of a lock have two, and locks can share a channel, as `a` and `{a}` do.
type OnChannel<O> = SmallVec<[Arc<Line<O>>; 1]>;

/// The calls that wait, each with its line.
type Calls<O> = Vec<(Arc<Line<O>>, Arc<<O as Offered>::Call>)>;

/// Selects a line, and says of what kind it is.
pub(crate) struct Of<'a> {
    pub(crate) keys: &'a LockKeys,
    pub(crate) kind: Kind,
    pub(crate) safety_poll: Duration,
    pub(crate) store: &'a Arc<Store>,
}

/// The calls of one client that wait for one lock.
pub(crate) struct Line<O: Offered> {
    /// The keys of the lock. A lock of another type with the same main key has a line of its own.
    keys: LockKeys,
    is_shared: bool,
    lines: Arc<Lines<O>>,
    store: Arc<Store>,
    inner: Mutex<Inner<O>>,
    /// Wakes the task.
    wake: Notify,
    /// Wakes those who wait until the task ends, or somebody stands in the line.
    changed: Notify,
}

/// A call in a line. Dropping it leaves the line.
pub(crate) struct Place<O: Offered> {
    pub(crate) line: Arc<Line<O>>,
    ticket: Ticket,
}

struct Inner<O: Offered> {
    state: State<O>,
    /// For the diagnosis: who waits.
    calls: BTreeMap<Ticket, Arc<O::Call>>,
    channel: Arc<str>,
    has_task: bool,
    /// The line was removed from the map.
    is_removed: bool,
}

/// A call that attempts for itself. A reader has a line: it also attempts for the readers that come meanwhile.
pub(crate) struct Asking<O: Offered>(pub(crate) Option<Arc<Line<O>>>);

impl<O: Offered> Asking<O> {
    /// Lets those who wait join the hold that the server granted this reader.
    pub(crate) fn is_granted(&self, hold: impl FnOnce() -> (Option<O>, Terms)) {
        if let Some(line) = self.0.as_ref().filter(|line| !line.is_empty()) {
            let (hold, terms) = hold();
            line.change(|state, now| state.opens(hold, terms, now));
        }
    }
}

impl<O: Offered> Drop for Asking<O> {
    fn drop(&mut self) {
        if let Some(line) = &self.0 {
            line.change(|state, _| state.asked());
            line.tidy();
        }
    }
}

impl<O: Offered> Lines<O> {
    pub(crate) fn new() -> Self {
        Self { map: Mutex::default(), count: AtomicUsize::new(0), runtime: Handle::current() }
    }

    /// Returns the line of those who wait for this lock, and whether its channel has other lines, which a release wakes, too.
    pub(crate) fn find(&self, keys: &LockKeys, is_shared: bool) -> Option<(Arc<Line<O>>, bool)> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None; // the usual case: nobody waits for anything
        }
        let (line, has_others) = {
            let map = lock(&self.map);
            let lines = map.get(&keys.channel)?;
            (Arc::clone(lines.iter().find(|line| line.is_of(keys, is_shared))?), lines.len() > 1)
        };
        (!line.is_empty()).then_some((line, has_others))
    }

    /// Acts on the line of a lock, which is made if there is none.
    fn enter<T>(
        self: &Arc<Self>,
        of: &Of<'_>,
        channel: Arc<str>,
        act: impl FnOnce(&Arc<Line<O>>, &mut Inner<O>) -> T,
    ) -> T {
        let mut map = lock(&self.map);
        let lines = map.entry(Arc::clone(&channel)).or_default();
        let found = lines.iter().find(|line| line.is_of(of.keys, of.kind == Kind::Readers));
        let line = found.map(Arc::clone).unwrap_or_else(|| {
            let line = Arc::new(Line::new(of, channel, self));
            lines.push(Arc::clone(&line));
            self.count.fetch_add(1, Ordering::AcqRel);
            line
        });
        let mut inner = lock(&line.inner);
        drop(map); // with the line locked, so that nobody removes it
        let result = act(&line, &mut inner);
        drop(inner);
        result
    }

    /// Begins a call that can wait. `None`: it stands in the line. `shares`: the call can share a hold with other readers of this client.
    pub(crate) fn begin(self: &Arc<Self>, of: &Of<'_>, shares: bool) -> Option<Asking<O>> {
        if shares {
            let asks = |line: &Arc<Line<O>>, inner: &mut Inner<O>| {
                inner.state.asks().then(|| Asking(Some(Arc::clone(line))))
            };
            return self.enter(of, Arc::clone(&of.keys.channel), asks);
        }
        let asks = self.find(of.keys, of.kind == Kind::Readers).is_none();
        asks.then_some(Asking(None))
    }

    /// Stands at the end of the line of a lock, which this channel wakes.
    pub(crate) fn stand(
        self: &Arc<Self>,
        of: &Of<'_>,
        channel: Arc<str>,
        (terms, patience): (Terms, Option<Duration>),
        call: Arc<O::Call>,
    ) -> Place<O> {
        let place = self.enter(of, channel, |line, inner| {
            let ticket = inner.state.stand(terms, patience, clock::now());
            inner.calls.insert(ticket, call);
            Place { line: Arc::clone(line), ticket }
        });
        place.line.changed.notify_waiters();
        place
    }

    /// Wakes the lines of a channel. False: it has none.
    ///
    /// Redisson sends `0` for one waiter and `1` for all; here the line asks for all.
    pub(crate) fn wake(&self, channel: &str) -> bool {
        self.tell(channel, State::<O>::hears)
    }

    /// Records whether messages arrive on a channel from now on: the lock perhaps became free before. False: the channel has no lines.
    pub(crate) fn has_messages(&self, channel: &str, has_messages: bool) -> bool {
        self.tell(channel, |state, now| state.has_messages(has_messages, now))
    }

    fn tell(&self, channel: &str, event: impl Fn(&mut State<O>, Moment) -> Effects<O>) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let lines = lock(&self.map).get(channel).cloned().unwrap_or_default();
        lines.iter().for_each(|line| line.change(&event));
        !lines.is_empty()
    }

    /// Wakes all lines.
    pub(crate) fn wake_all(&self) {
        self.all().iter().for_each(|line| line.change(State::<O>::hears));
    }

    /// Releases what is open in any line: the client is shut down.
    pub(crate) fn close_all(&self) {
        self.all().iter().for_each(|line| drop(line.with(|state| state.task_ends())));
    }

    pub(crate) fn calls(&self) -> Calls<O> {
        let calls = |line: &Arc<Line<O>>| {
            let inner = lock(&line.inner);
            inner.calls.values().map(|call| (Arc::clone(line), Arc::clone(call))).collect::<Vec<_>>()
        };
        self.all().iter().flat_map(calls).collect()
    }

    /// All lines, always in the same order.
    fn all(&self) -> Vec<Arc<Line<O>>> {
        let mut lines: Vec<_> =
            lock(&self.map).iter().map(|(channel, lines)| (Arc::clone(channel), lines.clone())).collect();
        lines.sort_by(|(one, _), (other, _)| one.cmp(other));
        lines.into_iter().flat_map(|(_, lines)| lines).collect()
    }

    /// Subscribes for a line, unless it is subscribed already.
    pub(crate) fn subscribe(&self, line: &Line<O>) {
        // The map stays locked: a line that ends now must not end this new subscription.
        let _map = lock(&self.map);
        let mut inner = lock(&line.inner);
        if inner.state.subscribes() {
            line.store.subscribe(&inner.channel);
        }
    }

    /// Lets another channel wake a line: what attempts has a new id, and with it a channel of its own.
    pub(crate) fn moves(&self, line: &Arc<Line<O>>, channel: &Arc<str>) {
        let mut map = lock(&self.map);
        let mut inner = lock(&line.inner);
        if inner.channel != *channel {
            self.remove(&mut map, line, &inner);
            inner.state.has_new_channel();
            inner.channel = Arc::clone(channel);
            map.entry(Arc::clone(channel)).or_default().push(Arc::clone(line));
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn remove(&self, map: &mut HashMap<Arc<str>, OnChannel<O>>, line: &Arc<Line<O>>, inner: &Inner<O>) {
        let Entry::Occupied(mut on_channel) = map.entry(Arc::clone(&inner.channel)) else { return };
        let others = on_channel.get_mut();
        others.retain(|other| !Arc::ptr_eq(other, line));
        self.count.fetch_sub(1, Ordering::AcqRel);
        let is_subscribed = |other: &Arc<Line<O>>| lock(&other.inner).state.is_subscribed();
        if inner.state.is_subscribed() && !others.iter().any(is_subscribed) {
            // The map is locked, so this does not end the subscription of another line that begins now.
            line.store.unsubscribe(&inner.channel);
        }
        if others.is_empty() {
            on_channel.remove();
        }
    }
}

impl<O: Offered> Place<O> {
    /// Waits until there is something for the call.
    pub(crate) async fn next(&self) -> Polled<O, Error> {
        poll_fn(|context| {
            let waker = context.waker().clone(); // with nothing locked, because to clone a waker can run any code
            let found = self.line.event(|state, _| state.poll(self.ticket, waker));
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Whether it is known that another owner holds the lock.
    pub(crate) fn is_answered(&self) -> bool {
        self.line.with(|state| state.is_answered())
    }

    /// Why there is no answer.
    pub(crate) fn error(&self) -> Option<Error> {
        self.line.with(|state| state.error())
    }
}

impl<O: Offered> Drop for Place<O> {
    fn drop(&mut self) {
        let Self { line, ticket } = self;
        let mut inner = lock(&line.inner);
        let (call, effects) = (inner.calls.remove(ticket), inner.state.leaves(*ticket));
        line.perform(inner, effects);
        drop(call);
        line.tidy();
    }
}

impl<O: Offered> Line<O> {
    fn new(of: &Of<'_>, channel: Arc<str>, lines: &Arc<Lines<O>>) -> Self {
        let state = State::new(of.kind, of.safety_poll);
        Self {
            keys: of.keys.clone(),
            is_shared: of.kind == Kind::Readers,
            lines: Arc::clone(lines),
            store: Arc::clone(of.store),
            inner: Mutex::new(Inner {
                state,
                calls: BTreeMap::new(),
                channel,
                has_task: false,
                is_removed: false,
            }),
            wake: Notify::new(),
            changed: Notify::new(),
        }
    }

    fn is_of(&self, keys: &LockKeys, is_shared: bool) -> bool {
        self.keys.lock == keys.lock && self.keys.more == keys.more && self.is_shared == is_shared
    }

    /// Starts the task of the line, unless it has one.
    pub(crate) fn start<F>(self: &Arc<Self>, task: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if !std::mem::replace(&mut lock(&self.inner).has_task, true) {
            let _entered = self.lines.runtime.enter();
            task::spawn(task(Arc::clone(self)));
        }
    }

    /// Tells the line of an event.
    pub(crate) fn change(&self, event: impl FnOnce(&mut State<O>, Moment) -> Effects<O>) {
        self.event(|state, now| ((), event(state, now)));
    }

    pub(crate) fn event<T>(&self, event: impl FnOnce(&mut State<O>, Moment) -> (T, Effects<O>)) -> T {
        let mut inner = lock(&self.inner);
        let (result, effects) = event(&mut inner.state, clock::now());
        self.perform(inner, effects);
        result
    }

    /// Asks the line, or tells it of an event that has no effects.
    pub(crate) fn with<T>(&self, event: impl FnOnce(&mut State<O>) -> T) -> T {
        event(&mut lock(&self.inner).state)
    }

    /// Wakes and drops, with nothing locked.
    fn perform(&self, inner: MutexGuard<'_, Inner<O>>, effects: Effects<O>) {
        drop(inner);
        let Effects { wakes, drops, old, wakes_task } = effects;
        if wakes_task {
            self.wake.notify_one();
        }
        if !wakes.is_empty() {
            nothing_is_locked();
            wakes.into_iter().for_each(Waker::wake);
        }
        drop((drops, old));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.with(|state| state.is_empty())
    }

    /// Removes the line if it is of no use.
    fn tidy(self: &Arc<Self>) {
        let is_useless = |inner: &Inner<O>| inner.state.is_over() && !inner.has_task && !inner.is_removed;
        if !is_useless(&lock(&self.inner)) {
            return;
        }
        let lines = &self.lines;
        let mut map = lock(&lines.map);
        let mut inner = lock(&self.inner);
        if is_useless(&inner) {
            inner.is_removed = true;
            lines.remove(&mut map, self, &inner);
        }
    }

    /// Ends the task, if nobody stands in the line. `forced`: in any case.
    pub(crate) fn ends_task(self: &Arc<Self>, is_forced: bool) -> bool {
        let mut inner = lock(&self.inner);
        if !is_forced && !inner.state.is_empty() {
            return false;
        }
        inner.has_task = false;
        let open = inner.state.task_ends();
        drop(inner);
        drop(open);
        self.changed.notify_waiters();
        self.tidy();
        true
    }

    /// Waits until what the line had on the server has ended, unless others stand in it.
    pub(crate) async fn ended(&self) {
        let is_over = || {
            let inner = lock(&self.inner);
            !inner.has_task || !inner.state.is_empty()
        };
        until(&self.changed, is_over).await;
    }

    /// The channel that wakes the line.
    pub(crate) fn channel(&self) -> Arc<str> {
        Arc::clone(&lock(&self.inner).channel)
    }

    /// Waits until something concerns the task.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Records how the release of a hold ended. `receivers`: how many connections its message reached, perhaps with that of this client.
    /// `None`: the release released nothing, or its outcome is unknown.
    pub(crate) fn release_ended(&self, receivers: Option<u32>) {
        self.change(|state, now| {
            let own = u32::from(state.gets_messages());
            state.release_ended(receivers.map(|reached| reached > own), now)
        });
    }
}
