//! Which connections are subscribed to which channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::value::Bytes;

/// The number of a connection.
pub(crate) type ClientId = u64;

/// The subscriptions of all connections. Everything has an order, so that a test can be repeated exactly.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    subscribers: BTreeMap<Bytes, BTreeSet<ClientId>>,
    subscribed: BTreeMap<ClientId, BTreeSet<Bytes>>,
}

impl Channels {
    pub(crate) fn subscribe(&mut self, client: ClientId, channel: &Bytes) {
        self.subscribers.entry(Arc::clone(channel)).or_default().insert(client);
        self.subscribed.entry(client).or_default().insert(Arc::clone(channel));
    }

    pub(crate) fn unsubscribe(&mut self, client: ClientId, channel: &Bytes) {
        if let Some(clients) = self.subscribers.get_mut(channel) {
            clients.remove(&client);
            if clients.is_empty() {
                self.subscribers.remove(channel);
            }
        }
        if let Some(channels) = self.subscribed.get_mut(&client) {
            channels.remove(channel);
            if channels.is_empty() {
                self.subscribed.remove(&client);
            }
        }
    }

    pub(crate) fn unsubscribe_all(&mut self, client: ClientId) {
        for channel in self.of(client) {
            self.unsubscribe(client, &channel);
        }
    }

    /// The channels of a connection.
    pub(crate) fn of(&self, client: ClientId) -> Vec<Bytes> {
        self.subscribed.get(&client).into_iter().flatten().cloned().collect()
    }

    /// The number of channels of a connection.
    pub(crate) fn count(&self, client: ClientId) -> usize {
        self.subscribed.get(&client).map_or(0, BTreeSet::len)
    }

    /// The connections that are subscribed to a channel.
    pub(crate) fn subscribers(&self, channel: &Bytes) -> impl Iterator<Item = ClientId> {
        self.subscribers.get(channel).into_iter().flatten().copied()
    }

    /// The channels that somebody is subscribed to.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Bytes> {
        self.subscribers.keys()
    }
}
