//! Who waits in this process for what, and who wakes them.
//!
//! Waiters on one channel stand in a line. The one in front has the turn: it alone attempts, when it is woken or a
//! poll is due, and the others cost nothing. One subscription serves the line, from its first waiter to its last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as Turn, Notify};
use tokio::time::sleep;

use super::Engine;
use crate::clock::{self, Moment};
use crate::jitter;
use crate::store::{Fault, Listener};
use crate::sync::lock;

/// How often a waiter looks for itself while it can hear no messages.
const DEAF_POLL: Duration = Duration::from_millis(250);

/// All lines of one client.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<Arc<str>, Arc<Line>>>);

#[derive(Debug)]
struct Line {
    channel: Arc<str>,
    /// First come, first served; whoever gives up leaves the line without disturbing the others.
    turn: AsyncMutex<()>,
    /// A flag for whoever has the turn, or will have it: something may have changed. Set any number of times, it
    /// wakes once, and it is kept until somebody takes it.
    wake: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiters: usize,
    hears: bool,
    /// When the lease ends that is in the way.
    retry_at: Option<Moment>,
    /// Attempts fail since then, the last one with this.
    failing: Option<(Moment, Fault)>,
}

impl Lines {
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    pub(crate) fn exists(&self, channel: &str) -> bool {
        lock(&self.0).contains_key(channel)
    }

    fn wake(&self, channel: &str, hears: Option<bool>) {
        let line = lock(&self.0).get(channel).map(Arc::clone);
        if let Some(line) = line {
            line.wake(hears);
        }
    }
}

impl Line {
    fn wake(&self, hears: Option<bool>) {
        if let Some(hears) = hears {
            lock(&self.state).hears = hears;
        }
        self.wake.notify_one();
    }
}

impl Listener for Lines {
    /// Subscribed: attempt now, as the lock may have become free before.
    fn hearing(&self, channel: &str) {
        self.wake(channel, Some(true));
    }

    /// Any payload wakes: Redisson knows `0` for one waiter and `1` for all, and one in front is all there is here.
    fn message(&self, channel: &str, _payload: &[u8]) {
        self.wake(channel, None);
    }

    fn deaf(&self) {
        let lines: Vec<_> = lock(&self.0).values().map(Arc::clone).collect();
        for line in lines {
            line.wake(Some(false));
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
    line: &'a Line,
    safety_poll: Duration,
    /// Whoever goes away without the lock may have taken a wake that was meant for the next.
    passes_on: bool,
    _turn: Turn<'a, ()>,
}

impl Place {
    /// Joins the line on a channel, at its end.
    pub(crate) fn join(engine: &Arc<Engine>, channel: &Arc<str>) -> Self {
        let mut lines = lock(&engine.lines.0);
        let line = lines.entry(Arc::clone(channel)).or_insert_with(|| {
            // With the lines locked, so that the store gets this order in turn with those of other waiters.
            engine.store.hear(channel);
            Arc::new(Line {
                channel: Arc::clone(channel),
                turn: AsyncMutex::default(),
                wake: Notify::new(),
                state: Mutex::default(),
            })
        });
        lock(&line.state).waiters += 1;
        Self { engine: Arc::clone(engine), line: Arc::clone(line) }
    }

    /// Waits for the turn.
    pub(crate) async fn front(&self) -> Front<'_> {
        let turn = self.line.turn.lock().await;
        Front { line: &self.line, safety_poll: self.engine.config.safety_poll, passes_on: true, _turn: turn }
    }

    /// What keeps this line from an answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        lock(&self.line.state).failing.as_ref().map(|(_, fault)| fault.clone())
    }

    /// Somebody else holds the lock, for this long at most, if it is known.
    pub(crate) fn held(&self, left: Option<Duration>) {
        let mut state = lock(&self.line.state);
        state.retry_at = left.map(|left| clock::now().plus(left));
        state.failing = None;
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
        let mut lines = lock(&self.engine.lines.0);
        let waiters = {
            let mut state = lock(&self.line.state);
            state.waiters -= 1;
            state.waiters
        };
        if waiters == 0 {
            lines.remove(&self.line.channel);
            self.engine.store.unhear(&self.line.channel);
        }
    }
}

impl Front<'_> {
    /// Waits for a wake, or until it is time to look anyway: when the lease in the way ends, or for the safety poll.
    pub(crate) async fn woken(&self) {
        let pause = {
            let state = lock(&self.line.state);
            let poll = if state.hears { self.safety_poll } else { self.safety_poll.min(DEAF_POLL) };
            let poll = jitter::around(poll);
            state.retry_at.map_or(poll, |at| poll.min(at.since(clock::now())))
        };
        tokio::select! {
            () = self.line.wake.notified() => {}
            () = sleep(pause) => {}
        }
    }

    /// This waiter has the lock. The next has nothing to look for before it is released.
    pub(crate) fn got_it(mut self) {
        self.passes_on = false;
    }
}

impl Drop for Front<'_> {
    fn drop(&mut self) {
        if self.passes_on {
            self.line.wake.notify_one();
        }
    }
}
