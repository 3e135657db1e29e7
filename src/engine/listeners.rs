//! Passes the server's messages on: to the waiters for a lock, and to those who listen on a channel of their own.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use crate::base::sync::{Watched, lock};
use crate::engine::line::lines::{Lines, Offered};
use crate::store::{Listener, Store};

/// Passes a message to the waiters of its channel, or if the channel has none, to those who listen on it.
pub(crate) struct Messages<O: Offered> {
    pub(crate) lines: Arc<Lines<O>>,
    pub(crate) listeners: Arc<Listeners>,
}

impl<O: Offered> Listener for Messages<O> {
    fn subscribed(&self, channel: &str) {
        if !self.lines.has_messages(channel, true) {
            self.listeners.tell(channel);
        }
    }

    fn message(&self, channel: &str) {
        if !self.lines.wake(channel) {
            self.listeners.tell(channel);
        }
    }

    fn disconnected(&self, channels: &BTreeSet<Arc<str>>) {
        for channel in channels {
            self.lines.has_messages(channel, false);
        }
    }
}

/// Those who listen, by the channel.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<HashMap<Arc<str>, OfChannel>>);

/// Those who listen on one channel: how many they are, and how often they were told something.
#[derive(Default)]
struct OfChannel {
    count: usize,
    told: Arc<Watched>,
}

impl Listeners {
    /// Tells those who listen on a channel that perhaps something has changed.
    pub(crate) fn tell(&self, channel: &str) {
        let told = lock(&self.0).get(channel).map(|found| Arc::clone(&found.told));
        if let Some(told) = told {
            told.modify(|count| count + 1);
        }
    }

    pub(crate) fn listen(&self, channel: &Arc<str>, store: &Store) -> Arc<Watched> {
        let mut all = lock(&self.0);
        let found = all.entry(Arc::clone(channel)).or_default();
        if found.count == 0 {
            store.subscribe(channel);
        }
        found.count += 1;
        Arc::clone(&found.told)
    }

    /// Ends all subscriptions: the client is shut down, and those who listen learn of that in another way.
    pub(crate) fn close(&self, store: &Store) {
        lock(&self.0).drain().for_each(|(channel, _)| store.unsubscribe(&channel));
    }

    /// Removes one who listened. With the last one, the subscription ends.
    pub(crate) fn leave(&self, channel: &Arc<str>, store: &Store) {
        let mut all = lock(&self.0);
        let Some(found) = all.get_mut(channel) else { return };
        found.count -= 1;
        if found.count == 0 {
            all.remove(channel);
            store.unsubscribe(channel);
        }
    }
}
