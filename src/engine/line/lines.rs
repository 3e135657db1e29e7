//! The lines of a client, by the channel that wakes them.
//!
//! [`State`] decides. Here are its mutex, its clock, the wakers of the calls, and the map of lines. The map is locked before a line, and
//! nothing else is locked beside one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::acquirer;
use super::state::{self, Kind, Terms};
use crate::base::clock::{self, Moment};
use crate::base::error::Error;
use crate::base::sync::{MutexGuard, lock, nothing_is_locked};
use crate::base::task;
use crate::engine::acquire::attempts::Attempts;
use crate::engine::grant::Grant;
use crate::engine::grant::sharing::Offer;
use crate::engine::lock_ref::LockRef;
use crate::protocol::LockKeys;

pub(super) type State = state::State<Offer, Waker, Error>;
pub(super) type Effects = state::Effects<Offer, Waker>;

/// The lines of a client.
pub(crate) struct Lines {
    map: Mutex<HashMap<Arc<str>, OnChannel>>,
    /// How many lines there are, so that a free lock need not lock the map if nobody waits for anything.
    count: AtomicUsize,
    /// The client's runtime, on which the tasks of the lines run.
    runtime: Handle,
}

/// The lines of one channel. Readers and writers of a lock have two, and locks can share a channel, as `a` and `{a}` do.
type OnChannel = SmallVec<[Arc<Line>; 1]>;

/// The calls of one client that wait for one lock.
pub(crate) struct Line {
    pub(super) lock: Arc<LockRef>,
    inner: Mutex<Inner>,
    /// Wakes the task.
    pub(super) wake: Notify,
    /// Wakes those who wait for the end of the task.
    task_ended: Notify,
}

struct Inner {
    state: State,
    channel: Arc<str>,
    has_task: bool,
    /// The line was removed from the map.
    is_removed: bool,
    /// What attempts for the line.
    grant: Weak<Grant>,
}

/// Whom the message about a release reached.
#[derive(Clone, Copy)]
pub(crate) enum Receivers {
    /// The number of connections, perhaps including the one of this client.
    Exactly(u32),
    PerhapsOthers,
}

/// How a call begins.
pub(crate) enum Begin {
    /// It stands in the line.
    Stand,
    /// It asks the server itself. A reader also asks for those who come meanwhile.
    Ask(Option<Asking>),
}

/// A reader that asks the server for others, too.
pub(crate) struct Asking(Arc<Line>);

impl Asking {
    /// Lets those who wait join the hold that the server granted this reader.
    pub(crate) fn is_granted(&self, terms: Terms, hold: impl FnOnce() -> Option<Offer>) {
        if !self.0.is_empty()
            && let Some(hold) = hold()
        {
            self.0.change(|state, now| state.opens(hold, terms, now));
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.change(|state, _| state.asked());
        self.0.tidy();
    }
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { map: Mutex::default(), count: AtomicUsize::new(0), runtime: Handle::current() }
    }

    /// Returns the line of those who wait for this lock.
    pub(crate) fn find(&self, keys: &LockKeys, is_shared: bool) -> Option<Arc<Line>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None; // the usual case: nobody waits for anything
        }
        lock(&self.map).get(&keys.channel)?.iter().find(|line| line.is_of(keys, is_shared)).map(Arc::clone)
    }

    /// Whether somebody waits for an exclusive hold of this lock, and whether its channel has other lines, which a release wakes, too.
    pub(crate) fn exclusive(&self, keys: &LockKeys) -> Option<(Arc<Line>, bool)> {
        let line = self.find(keys, false).filter(|line| !line.is_empty())?;
        let is_only = lock(&self.map).get(&keys.channel).is_none_or(|lines| lines.len() == 1);
        Some((line, !is_only))
    }

    /// Acts on the line of a lock, which is made if there is none.
    fn enter<T>(
        &self,
        target: &Arc<LockRef>,
        channel: Arc<str>,
        act: impl FnOnce(&Arc<Line>, &mut Inner) -> T,
    ) -> T {
        let mut map = lock(&self.map);
        let lines = map.entry(Arc::clone(&channel)).or_default();
        let found = lines.iter().find(|line| line.is_of(&target.keys, target.protocol.is_shared()));
        let line = found.map(Arc::clone).unwrap_or_else(|| {
            let line = Arc::new(Line::new(target, channel));
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

    /// Begins a call that can wait. `shares`: the call can share a hold with other readers of this client.
    pub(crate) fn begin(&self, target: &Arc<LockRef>, shares: bool) -> Begin {
        if shares {
            let asks =
                |line: &Arc<Line>, inner: &mut Inner| inner.state.asks().then(|| Asking(Arc::clone(line)));
            let asking = self.enter(target, Arc::clone(&target.keys.channel), asks);
            return asking.map_or(Begin::Stand, |asking| Begin::Ask(Some(asking)));
        }
        let line = self.find(&target.keys, target.protocol.is_shared());
        if line.is_some_and(|line| !line.is_empty()) { Begin::Stand } else { Begin::Ask(None) }
    }

    /// Stands at the end of the line of a lock.
    pub(crate) fn stand(
        &self,
        target: &Arc<LockRef>,
        channel: Arc<str>,
        terms: Terms,
        patience: Option<Duration>,
    ) -> (Arc<Line>, state::Ticket) {
        let stand = |line: &Arc<Line>, inner: &mut Inner| {
            (Arc::clone(line), inner.state.stand(terms, patience, clock::now()))
        };
        self.enter(target, channel, stand)
    }

    /// Starts the task of a line, unless it has one. `attempts`: what a call attempted before it stood in the line.
    pub(super) fn start(&self, line: &Arc<Line>, attempts: Option<Attempts>) {
        if !std::mem::replace(&mut lock(&line.inner).has_task, true) {
            let _entered = self.runtime.enter();
            task::spawn(acquirer::run(Arc::clone(line), attempts));
        }
    }

    /// Wakes the lines of a channel. False: it has none.
    ///
    /// Redisson sends `0` for one waiter and `1` for all; here the line asks for all.
    pub(crate) fn wake(&self, channel: &str) -> bool {
        let lines = self.on(channel);
        lines.iter().for_each(|line| line.change(State::hears));
        !lines.is_empty()
    }

    /// Records that messages arrive on a channel from now on: the lock perhaps became free before. False: the channel has no lines.
    pub(crate) fn subscribed(&self, channel: &str) -> bool {
        let lines = self.on(channel);
        lines.iter().for_each(|line| line.change(|state, now| state.has_messages(true, now)));
        !lines.is_empty()
    }

    /// Records that messages no longer arrive on these channels.
    pub(crate) fn disconnected(&self, channels: &BTreeSet<Arc<str>>) {
        for line in channels.iter().flat_map(|channel| self.on(channel)) {
            line.change(|state, now| state.has_messages(false, now));
        }
    }

    /// Wakes all lines.
    pub(crate) fn wake_all(&self) {
        let mut lines: Vec<_> =
            lock(&self.map).iter().map(|(channel, lines)| (Arc::clone(channel), lines.clone())).collect();
        lines.sort_by(|(one, _), (other, _)| one.cmp(other)); // always in the same order
        for line in lines.iter().flat_map(|(_, lines)| lines) {
            line.change(State::hears);
        }
    }

    /// Releases what is open in any line: the client is shut down.
    pub(crate) fn close_all(&self) {
        let lines: Vec<_> = lock(&self.map).values().flatten().map(Arc::clone).collect();
        lines.iter().for_each(|line| drop(line.with(|state| state.task_ends())));
    }

    fn on(&self, channel: &str) -> OnChannel {
        if self.count.load(Ordering::Acquire) == 0 {
            return OnChannel::new();
        }
        lock(&self.map).get(channel).cloned().unwrap_or_default()
    }

    /// Subscribes for a line, unless it is subscribed already.
    pub(super) fn subscribe(&self, line: &Line) {
        // The map stays locked: a line that ends now must not end this new subscription.
        let _map = lock(&self.map);
        let mut inner = lock(&line.inner);
        if inner.state.subscribes() {
            line.lock.engine.store.subscribe(&inner.channel);
        }
    }

    /// Lets another channel wake a line: what attempts has a new id, and with it a channel of its own.
    pub(super) fn moves(&self, line: &Arc<Line>, channel: &Arc<str>) {
        let mut map = lock(&self.map);
        let mut inner = lock(&line.inner);
        if inner.channel != *channel && !inner.is_removed {
            self.remove(&mut map, line, &inner);
            inner.state.has_new_channel();
            inner.channel = Arc::clone(channel);
            map.entry(Arc::clone(channel)).or_default().push(Arc::clone(line));
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn remove(&self, map: &mut HashMap<Arc<str>, OnChannel>, line: &Arc<Line>, inner: &Inner) {
        let Entry::Occupied(mut on_channel) = map.entry(Arc::clone(&inner.channel)) else { return };
        let others = on_channel.get_mut();
        others.retain(|other| !Arc::ptr_eq(other, line));
        self.count.fetch_sub(1, Ordering::AcqRel);
        let is_subscribed = |other: &Arc<Line>| lock(&other.inner).state.is_subscribed();
        if inner.state.is_subscribed() && !others.iter().any(is_subscribed) {
            // The map is locked, so this does not end the subscription of another line that begins now.
            line.lock.engine.store.unsubscribe(&inner.channel);
        }
        if others.is_empty() {
            on_channel.remove();
        }
    }
}

impl Line {
    fn new(target: &Arc<LockRef>, channel: Arc<str>) -> Self {
        let protocol = target.protocol;
        let kind = match () {
            () if protocol.queue().is_some() => Kind::Place,
            () if protocol.has_permits() => Kind::Permits,
            () if protocol.is_shared() => Kind::Readers,
            () => Kind::Exclusive,
        };
        let state = State::new(kind, target.engine.config.safety_poll());
        let inner = Inner { state, channel, has_task: false, is_removed: false, grant: Weak::new() };
        Self {
            lock: Arc::clone(target),
            inner: Mutex::new(inner),
            wake: Notify::new(),
            task_ended: Notify::new(),
        }
    }

    fn is_of(&self, keys: &LockKeys, is_shared: bool) -> bool {
        self.lock.keys.lock == keys.lock && self.lock.protocol.is_shared() == is_shared
    }

    /// Tells the line of an event.
    pub(super) fn change(&self, event: impl FnOnce(&mut State, Moment) -> Effects) {
        self.event(|state, now| ((), event(state, now)));
    }

    pub(super) fn event<T>(&self, event: impl FnOnce(&mut State, Moment) -> (T, Effects)) -> T {
        let mut inner = lock(&self.inner);
        let (result, effects) = event(&mut inner.state, clock::now());
        self.perform(inner, effects);
        result
    }

    /// Asks the line, or tells it of an event that has no effects.
    pub(super) fn with<T>(&self, event: impl FnOnce(&mut State) -> T) -> T {
        event(&mut lock(&self.inner).state)
    }

    /// Wakes and drops, with nothing locked.
    fn perform(&self, inner: MutexGuard<'_, Inner>, effects: Effects) {
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
    pub(super) fn tidy(self: &Arc<Self>) {
        let is_useless = |inner: &Inner| inner.state.is_over() && !inner.has_task && !inner.is_removed;
        if !is_useless(&lock(&self.inner)) {
            return;
        }
        let lines = &self.lock.engine.lines;
        let mut map = lock(&lines.map);
        let mut inner = lock(&self.inner);
        if is_useless(&inner) {
            inner.is_removed = true;
            lines.remove(&mut map, self, &inner);
        }
    }

    /// Ends the task, if nobody stands in the line. `forced`: in any case.
    pub(super) fn ends_task(self: &Arc<Self>, is_forced: bool) -> bool {
        let mut inner = lock(&self.inner);
        if !is_forced && !inner.state.is_empty() {
            return false;
        }
        inner.has_task = false;
        let open = inner.state.task_ends();
        drop(inner);
        drop(open);
        self.task_ended.notify_waiters();
        self.tidy();
        true
    }

    /// Waits until what the line had on the server has ended, unless others stand in it.
    pub(crate) async fn ended(&self) {
        loop {
            let mut ended = pin!(self.task_ended.notified());
            ended.as_mut().enable(); // enlist first, then look
            let is_over = {
                let inner = lock(&self.inner);
                !inner.has_task || !inner.state.is_empty()
            };
            if is_over {
                return;
            }
            ended.await;
        }
    }

    /// Sets what attempts for the line.
    pub(super) fn attempts_with(&self, grant: &Arc<Grant>) {
        lock(&self.inner).grant = Arc::downgrade(grant);
    }

    /// What attempts for the line.
    pub(crate) fn grant(&self) -> Option<Arc<Grant>> {
        lock(&self.inner).grant.upgrade()
    }

    /// See [`State::takes_over`].
    pub(crate) fn takes_over(&self, terms: Terms, time: Duration) -> Option<(Duration, Moment)> {
        self.with(|state| state.takes_over(terms, time))
    }

    /// Passes a hold on to the first call. Returns it if nobody takes it.
    pub(crate) fn offers(&self, hold: Offer, terms: Terms) -> Option<Offer> {
        self.event(|state, now| state.offers(hold, terms, now))
    }

    /// See [`State::granted_beside`].
    pub(crate) fn granted_beside(&self, sent: Moment, now: Moment) -> bool {
        self.with(|state| state.granted_beside(sent, now))
    }

    pub(crate) fn release_begins(&self) {
        self.with(|state| state.release_begins(clock::now()));
    }

    /// Records how the release of a hold ended. `receivers`: whom its message reached. `None`: the release released nothing, or its
    /// outcome is unknown.
    pub(crate) fn release_ended(&self, receivers: Option<Receivers>) {
        self.change(|state, now| {
            let own = u32::from(state.gets_messages());
            let others_wait = receivers.map(|receivers| match receivers {
                Receivers::Exactly(reached) => reached > own,
                Receivers::PerhapsOthers => true,
            });
            state.release_ended(others_wait, now)
        });
    }
}
