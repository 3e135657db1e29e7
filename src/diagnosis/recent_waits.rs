//! The last calls that waited.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::diagnosis::waits::{self, WaitOutcome};
use crate::engine::Outcome;

/// The most waits that are kept.
const MOST: usize = 1_000;

/// Of a longer name, only so many bytes are kept: the names must not cost much memory.
const LONGEST_NAME: usize = 1_000;

/// The last calls that waited.
#[derive(Default)]
pub(crate) struct RecentWaits(Mutex<VecDeque<(Wait, SystemTime, WaitOutcome)>>);

/// A call that waits, or that waited.
pub(crate) struct Wait {
    pub(crate) lock: Arc<str>,
    pub(crate) caller: Caller,
    pub(crate) from: SystemTime,
    pub(crate) holders: Option<HoldersSeen>,
}

/// Who held the lock when the client looked. It looks once, after a lease.
pub(crate) type HoldersSeen = Arc<OnceLock<Vec<String>>>;

impl RecentWaits {
    /// The oldest first.
    pub(crate) fn all(&self) -> Vec<waits::RecentWait> {
        let shown = |(wait, to, outcome): &(Wait, SystemTime, WaitOutcome)| waits::RecentWait {
            lock: wait.lock.to_string(),
            waited_at: wait.caller,
            from: wait.from,
            to: *to,
            outcome: *outcome,
            holders_seen: wait.holders.as_ref().and_then(|seen| seen.get().cloned()).unwrap_or_default(),
        };
        lock(&self.0).iter().map(shown).collect()
    }

    /// Adds a wait that ends now.
    pub(crate) fn add(&self, mut wait: Wait, outcome: Outcome) {
        if wait.lock.len() > LONGEST_NAME {
            let end = (0..=LONGEST_NAME).rfind(|end| wait.lock.is_char_boundary(*end)).unwrap_or(0);
            wait.lock = wait.lock[..end].into();
        }
        let outcome = match outcome {
            Outcome::Granted => WaitOutcome::Granted,
            Outcome::TimedOut => WaitOutcome::TimedOut,
            Outcome::GivenUp => WaitOutcome::GivenUp,
        };
        let mut waits = lock(&self.0);
        if waits.len() == MOST {
            waits.pop_front();
        }
        waits.push_back((wait, SystemTime::now(), outcome));
    }
}

impl Wait {
    pub(crate) fn since(since: Moment, lock: &Arc<str>, caller: Caller) -> Self {
        // The age is taken before the wall clock is read. In the other order, the wait would seem to begin before its
        // call.
        let age = clock::now().since(since);
        Self { lock: Arc::clone(lock), caller, from: SystemTime::now() - age, holders: None }
    }
}
