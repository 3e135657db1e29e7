//! The last calls that waited.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use crate::base::Caller;
use crate::base::sync::lock;
use crate::engine::Engine;

/// The most waits that are kept.
const MOST: usize = 1_000;

/// Of a longer name, only so many bytes are kept: the names must not cost much memory.
const LONGEST_NAME: usize = 1_000;

/// The last calls that waited.
#[derive(Default)]
pub(crate) struct RecentWaits(Mutex<VecDeque<RecentWait>>);

/// A call that waited.
#[derive(Clone)]
pub(crate) struct RecentWait {
    pub(crate) lock: Arc<str>,
    pub(crate) caller: Caller,
    pub(crate) from: SystemTime,
    pub(crate) to: SystemTime,
    pub(crate) outcome: Outcome,
    pub(crate) holders: Option<HoldersSeen>,
}

/// Who held the lock when the client looked. It looks once, after a lease.
pub(crate) type HoldersSeen = Arc<OnceLock<Vec<String>>>;

/// How a wait ended.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Granted,
    TimedOut,
    /// The call failed, or its future was dropped.
    GivenUp,
}

impl RecentWaits {
    /// The oldest first.
    pub(crate) fn all(&self) -> Vec<RecentWait> {
        lock(&self.0).iter().cloned().collect()
    }
}

/// A call that waits. It is kept when this is dropped.
pub(crate) struct OpenWait<'a> {
    engine: &'a Engine,
    wait: RecentWait,
}

impl<'a> OpenWait<'a> {
    pub(crate) fn begin(engine: &'a Engine, lock: &Arc<str>, caller: Caller) -> Self {
        let (lock, from) = (Arc::clone(lock), SystemTime::now());
        let outcome = Outcome::GivenUp;
        Self { engine, wait: RecentWait { lock, caller, from, to: from, outcome, holders: None } }
    }

    pub(crate) fn holders(&mut self) -> HoldersSeen {
        Arc::clone(self.wait.holders.get_or_insert_default())
    }

    pub(crate) const fn ends(&mut self, outcome: Outcome) {
        self.wait.outcome = outcome;
    }
}

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        let mut wait = RecentWait { to: SystemTime::now(), ..self.wait.clone() };
        if wait.lock.len() > LONGEST_NAME {
            let end = (0..=LONGEST_NAME).rfind(|end| wait.lock.is_char_boundary(*end)).unwrap_or(0);
            wait.lock = wait.lock[..end].into();
        }
        let mut waits = lock(&self.engine.recent_waits.0);
        if waits.len() == MOST {
            waits.pop_front();
        }
        waits.push_back(wait);
    }
}
