//! Who waits in this process for what, and who wakes them.
//!
//! Whoever wants a lock stands in line for it. The one in front has the turn and attempts: at once if nobody
//! in the line did so before, and else when it is woken or a poll is due. The others cost nothing. One subscription
//! serves the line, from the first that has to wait to the last.
//!
//! Who wants to read stands in another line than who wants to write, and only when it was refused. When one of them gets
//! in, all can: they are called, and attempt at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as Turn, Notify, watch};
use tokio::time::sleep;

use super::Engine;
use super::grant::{Grant, Target};
use crate::clock::{self, Moment};
use crate::jitter;
use crate::store::{Fault, Listener};
use crate::sync::lock;

/// How often a waiter looks for itself while it can hear no messages.
const DEAF_POLL: Duration = Duration::from_millis(250);

/// How often a waiter looks for itself whom the heart tells when its time has come.
const HEART: Duration = Duration::from_secs(3_600);

/// All lines of one client, by the channel that wakes them. Locks may share a channel, as `a` and `{a}` do.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<Arc<str>, PerChannel>>);

type PerChannel = SmallVec<[Arc<Line>; 1]>;

#[derive(Debug)]
struct Line {
    channel: Arc<str>,
    /// The key of the lock.
    lock: Arc<str>,
    /// Who waits has a place on the server, and a heart that tells it when its time has come.
    has_queue: bool,
    /// First come, first served; whoever gives up leaves the line without disturbing the others.
    turn: AsyncMutex<()>,
    /// A flag for whoever has the turn, or will have it: something may have changed. Set any number of times, it
    /// wakes once, and it is kept until somebody takes it.
    wake: Notify,
    /// Calls everybody, where many can hold the lock together.
    everyone: Option<watch::Sender<()>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiters: usize,
    /// Somebody in this line got an answer, so it is known that the lock is held.
    is_answered: bool,
    /// By owners who share it, one from this line among them.
    is_open: bool,
    is_subscribed: bool,
    hears: bool,
    /// When an attempt was last sent.
    looked_at: Option<Moment>,
    /// It was woken then, and nobody looked since.
    woken_at: Option<Moment>,
    /// When the lease ends that is in the way.
    retry_at: Option<Moment>,
    /// Attempts fail since then, the last one with this.
    failing: Option<(Moment, Fault)>,
}

impl Lines {
    /// Whoever waits there shall look.
    pub(crate) fn wake_up(&self, channel: &str) {
        for line in self.on(channel) {
            line.call();
        }
    }

    /// Whether whoever waits there was woken so long ago, and did not look.
    pub(crate) fn ignores_a_wake(&self, channel: &str, patience: Duration) -> bool {
        let woken = self.on(channel);
        let woken = woken.iter().filter_map(|line| lock(&line.state).woken_at);
        woken.min().is_some_and(|at| clock::now().since(at) > patience)
    }

    fn on(&self, channel: &str) -> PerChannel {
        lock(&self.0).get(channel).cloned().unwrap_or_default()
    }
}

impl Line {
    fn new(channel: Arc<str>, target: &Target) -> Self {
        Self {
            channel,
            lock: Arc::clone(&target.keys.lock),
            has_queue: target.kind.queue().is_some(),
            turn: AsyncMutex::default(),
            wake: Notify::new(),
            everyone: target.kind.is_shared().then(watch::Sender::default),
            state: Mutex::default(),
        }
    }

    /// Something may have been missed.
    fn wake(&self, hears: bool) {
        lock(&self.state).hears = hears;
        self.wake.notify_one();
    }

    /// The lock may be free.
    fn call(&self) {
        if self.has_queue {
            lock(&self.state).woken_at.get_or_insert_with(clock::now);
        }
        self.wake.notify_one();
    }

    fn is_shared(&self) -> bool {
        self.everyone.is_some()
    }

    fn hears(&self) -> bool {
        lock(&self.state).hears
    }

    fn is_subscribed(&self) -> bool {
        lock(&self.state).is_subscribed
    }
}

impl State {
    fn held(&mut self, left: Option<Duration>) {
        self.is_answered = true;
        self.is_open = false;
        self.retry_at = left.map(|left| clock::now().plus(left));
        self.failing = None;
    }
}

impl Listener for Lines {
    /// Subscribed: attempt now, as the lock may have become free before.
    fn hearing(&self, channel: &str) {
        for line in self.on(channel) {
            line.wake(true);
        }
    }

    /// Any payload wakes. Redisson knows `0` for one waiter and `1` for all; the one in front finds out for all.
    fn message(&self, channel: &str, _payload: &[u8]) {
        self.wake_up(channel);
    }

    fn deaf(&self) {
        let lines: Vec<_> =
            lock(&self.0).values().flatten().filter(|line| line.hears()).map(Arc::clone).collect();
        for line in lines {
            line.wake(false);
        }
    }
}

/// A place in a line. Dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Place {
    engine: Arc<Engine>,
    line: Arc<Line>,
}

/// The place in front.
#[derive(Debug)]
pub(crate) struct Front<'a> {
    place: &'a Place,
    /// Whoever goes away without the lock may have taken a wake that was meant for the next.
    passes_on: bool,
    _turn: Turn<'a, ()>,
}

impl Place {
    /// Joins the line for a lock, at its end.
    pub(crate) fn join(grant: &Grant) -> Self {
        let (target, channel) = (&grant.target, grant.wake_channel());
        let engine = &target.engine;
        let mut lines = lock(&engine.lines.0);
        let lines = lines.entry(Arc::clone(&channel)).or_default();
        let is_shared = target.kind.is_shared();
        let found =
            lines.iter().position(|line| line.lock == target.keys.lock && line.is_shared() == is_shared);
        let index = found.unwrap_or_else(|| {
            lines.push(Arc::new(Line::new(channel, target)));
            lines.len() - 1
        });
        let line = Arc::clone(&lines[index]);
        lock(&line.state).waiters += 1;
        Self { engine: Arc::clone(engine), line }
    }

    /// Whether this is where that one is woken.
    pub(crate) fn is_for(&self, grant: &Grant) -> bool {
        !self.line.has_queue || self.line.channel == grant.wake_channel()
    }

    /// Waits for the turn.
    pub(crate) async fn turn(&self) -> Front<'_> {
        let turn = self.line.turn.lock().await;
        Front { place: self, passes_on: true, _turn: turn }
    }

    /// Where this waiter hears the calls to everybody from now on.
    pub(crate) fn call(&self) -> Call {
        Call(self.line.everyone.as_ref().map(watch::Sender::subscribe))
    }

    /// Whether those in this line can hold the lock together.
    pub(crate) fn is_shared(&self) -> bool {
        self.line.is_shared()
    }

    /// Whether anybody in this line knows that there is nothing to attempt for now.
    pub(crate) fn is_closed(&self) -> bool {
        let state = lock(&self.line.state);
        state.is_answered && !state.is_open
    }

    /// Whether anybody in this line knows that the lock is held.
    pub(crate) fn is_answered(&self) -> bool {
        lock(&self.line.state).is_answered
    }

    /// Somebody in this line attempts now.
    pub(crate) fn looks(&self) {
        let mut state = lock(&self.line.state);
        state.woken_at = None;
        if state.waiters > 1 {
            state.looked_at = Some(clock::now());
        }
    }

    /// Waits until nobody in the line has looked for much too long. Whoever is in front may be a future that nobody
    /// polls any more; those behind it must not sleep on for that.
    pub(crate) async fn overlooked(&self) {
        let patience = self.engine.config.safety_poll * 2;
        let joined = clock::now();
        loop {
            let looked_at = lock(&self.line.state).looked_at.map_or(joined, |at| at.max(joined));
            let waited = clock::now().since(looked_at);
            if waited > patience {
                return;
            }
            sleep(jitter::around(patience - waited) + Duration::from_millis(1)).await;
        }
    }

    /// What keeps this line from an answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        lock(&self.line.state).failing.as_ref().map(|(_, fault)| fault.clone())
    }

    /// Somebody else holds the lock, for this long at most, if it is known.
    pub(crate) fn held(&self, left: Option<Duration>) {
        lock(&self.line.state).held(left);
    }

    /// This waiter holds the lock. The others may have to know for how long at most; or if they can share it, that they
    /// can: then they are all called, by the first that found it out.
    pub(crate) fn got_it(&self, lease: Duration) {
        let mut state = lock(&self.line.state);
        if state.waiters == 1 {
            return;
        }
        match &self.line.everyone {
            None => state.held(Some(lease)),
            Some(everyone) if state.is_answered && !state.is_open => {
                state.is_open = true;
                everyone.send_replace(());
            }
            Some(_) => {}
        }
    }

    /// There was no answer; look again then. Returns for how long there was none, for whoever was in front.
    pub(crate) fn failed(&self, fault: &Fault, retry: Duration) -> Duration {
        let now = clock::now();
        let mut state = lock(&self.line.state);
        state.retry_at = Some(now.plus(retry));
        let since = state.failing.take().map_or(now, |(since, _)| since);
        state.failing = Some((since, fault.clone()));
        now.since(since)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { engine, line } = self;
        let mut all = lock(&engine.lines.0);
        let mut state = lock(&line.state);
        state.waiters -= 1;
        if state.waiters > 0 {
            return;
        }
        let Entry::Occupied(mut on_channel) = all.entry(Arc::clone(&line.channel)) else { return };
        let lines = on_channel.get_mut();
        lines.retain(|other| !Arc::ptr_eq(other, line));
        if state.is_subscribed && !lines.iter().any(|other| other.is_subscribed()) {
            // With the lines locked: another on this channel asks the store after this, not before.
            engine.store.unhear(&line.channel);
        }
        if lines.is_empty() {
            on_channel.remove();
        }
    }
}

impl Front<'_> {
    /// Waits for a wake, or until it is time to look anyway: when the lease in the way ends, or for the safety poll.
    pub(crate) async fn woken(&self) {
        let pause = self.pause();
        tokio::select! {
            () = self.place.line.wake.notified() => {}
            () = sleep(pause) => {}
        }
    }

    /// How long to wait for a message, which is listened for from now on.
    fn pause(&self) -> Duration {
        let Place { engine, line } = self.place;
        if !line.is_subscribed() {
            let _lines = lock(&engine.lines.0); // see the drop of a place
            lock(&line.state).is_subscribed = true;
            engine.store.hear(&line.channel);
        }
        let state = lock(&line.state);
        let safety_poll = engine.config.safety_poll;
        let poll = match state.hears {
            _ if line.has_queue => HEART,
            true => safety_poll,
            false => safety_poll.min(DEAF_POLL),
        };
        let poll = jitter::around(poll);
        state.retry_at.map_or(poll, |at| poll.min(at.since(clock::now())))
    }

    /// Goes with the lock. The next has nothing to look for before it is released; or, if it can share it, looks anyway.
    pub(crate) fn leave(mut self) {
        self.passes_on = false;
    }
}

/// Hears the calls to everybody in a line.
#[derive(Debug)]
pub(crate) struct Call(Option<watch::Receiver<()>>);

impl Call {
    /// Never, where only one can hold the lock.
    pub(crate) async fn comes(&mut self) {
        match &mut self.0 {
            // Fails only without the line, in which whoever waits stands.
            Some(call) => drop(call.changed().await),
            None => pending().await,
        }
    }
}

impl Drop for Front<'_> {
    fn drop(&mut self) {
        if self.passes_on {
            self.place.line.wake.notify_one();
        }
    }
}
