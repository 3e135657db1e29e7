//! Earlier states of the keys: a server that writes its data to disk once a second may start with those.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::keyspace::{Entry, Keyspace};
use crate::value::Bytes;

/// Time between two states that are kept.
const STEP: Duration = Duration::from_millis(100);

/// States that are kept.
const MOST: usize = 25;

#[derive(Default)]
pub(crate) struct History {
    states: VecDeque<(Duration, HashMap<Bytes, Entry>)>,
    /// When the first state was the present one.
    begins: Duration,
}

impl History {
    /// Begins anew with the present state. There is no way back behind it.
    pub(crate) fn begin(&mut self, keyspace: &Keyspace) {
        self.begins = keyspace.now();
        self.states = VecDeque::from([(self.begins, keyspace.copy())]);
    }

    /// Keeps the present state, if there is none of about this time.
    pub(crate) fn keep(&mut self, keyspace: &Keyspace) {
        if self.states.back().is_some_and(|(at, _)| keyspace.now() < *at + STEP) {
            return;
        }
        self.states.push_back((keyspace.now(), keyspace.copy()));
        if self.states.len() > MOST {
            self.states.pop_front();
        }
    }

    /// The last state that is at least this old, or the first one after [`begin`](Self::begin), or none.
    pub(crate) fn as_of(&self, age: Duration, keyspace: &Keyspace) -> HashMap<Bytes, Entry> {
        let time = self.time(age, keyspace);
        let last = self.states.iter().rfind(|(at, _)| *at <= time);
        last.map(|(_, entries)| entries.clone()).unwrap_or_default()
    }

    /// Returns to the last state that is at least this old, or to none.
    pub(crate) fn return_to(&mut self, age: Duration, keyspace: &mut Keyspace) {
        keyspace.restore(self.as_of(age, keyspace));
        let time = self.time(age, keyspace);
        self.states.retain(|(at, _)| *at <= time);
    }

    fn time(&self, age: Duration, keyspace: &Keyspace) -> Duration {
        keyspace.now().saturating_sub(age).max(self.begins)
    }
}
