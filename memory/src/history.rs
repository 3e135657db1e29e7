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
pub(crate) struct History(VecDeque<(Duration, HashMap<Bytes, Entry>)>);

impl History {
    /// Keeps the present state, if there is none of about this time.
    pub(crate) fn keep(&mut self, keyspace: &Keyspace) {
        if self.0.back().is_some_and(|(at, _)| keyspace.now() < *at + STEP) {
            return;
        }
        self.0.push_back((keyspace.now(), keyspace.copy()));
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// The last state that is at least this old, or none.
    pub(crate) fn as_of(&self, age: Duration, keyspace: &Keyspace) -> HashMap<Bytes, Entry> {
        let time = keyspace.now().saturating_sub(age);
        let last = self.0.iter().rfind(|(at, _)| *at <= time);
        last.map(|(_, entries)| entries.clone()).unwrap_or_default()
    }

    /// Returns to the last state that is at least this old, or to none.
    pub(crate) fn return_to(&mut self, age: Duration, keyspace: &mut Keyspace) {
        keyspace.restore(self.as_of(age, keyspace));
        let time = keyspace.now().saturating_sub(age);
        self.0.retain(|(at, _)| *at <= time);
    }
}
