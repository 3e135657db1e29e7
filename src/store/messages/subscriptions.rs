//! Which connection receives the messages of a channel.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;

use super::Listener;
use super::subscriber::Subscriber;
use crate::base::config::LockConfig;
use crate::base::sync::lock;
use crate::store::task::Task;
use crate::store::topology::{Address, Map, Topology};

/// One connection for each master that has channels which somebody wants. In a cluster, a message stays in the slot of its channel.
pub(crate) struct Subscriptions {
    topology: Arc<Topology>,
    config: LockConfig,
    listener: Arc<dyn Listener>,
    /// The runtime on which the client was made. The runtime of a caller can end earlier.
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    /// The master of the slot of each channel: there the channel is subscribed. For a moment, the topology can know a later map.
    map: Map,
    /// The channels that somebody wants, with their slots.
    channels: BTreeSet<(u16, Arc<str>)>,
    subscribers: BTreeMap<Address, Subscriber>,
}

impl Subscriptions {
    /// Also returns what moves the subscriptions, if another server can become the master.
    pub(crate) fn new(
        topology: &Arc<Topology>,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> (Arc<Self>, Option<Task>) {
        let seen = topology.changes.get(); // taken before the map is read: no change is missed
        let map = topology.map();
        if map.masters().into_iter().any(|master| !topology.group.dial(master).has_messages()) {
            tracing::warn!("no address for messages: waiters poll");
        }
        let state = State { map, channels: BTreeSet::new(), subscribers: BTreeMap::new() };
        let subscriptions = Arc::new(Self {
            topology: Arc::clone(topology),
            config: config.clone(),
            listener,
            runtime: Handle::current(),
            state: Mutex::new(state),
        });
        let moves = || Task::spawn(follow(Arc::clone(&subscriptions), seen));
        let moves = topology.group.can_switch().then(moves);
        (subscriptions, moves)
    }

    /// Begins to subscribe to a channel. [`Listener::subscribed`] tells when the subscription is active.
    pub(crate) fn subscribe(&self, channel: &Arc<str>) {
        let (slot, mut state) = (self.topology.slot(channel), lock(&self.state));
        state.channels.insert((slot, Arc::clone(channel)));
        self.place(&mut state, slot, channel);
    }

    pub(crate) fn unsubscribe(&self, channel: &Arc<str>) {
        let (slot, mut state) = (self.topology.slot(channel), lock(&self.state));
        state.channels.remove(&(slot, Arc::clone(channel)));
        if let Some(subscriber) = state.subscriber_of(&state.map, slot) {
            subscriber.order(channel, false);
        }
    }

    /// Moves the channels of the slots that have another master.
    fn adopt(&self, map: Map) {
        let mut state = lock(&self.state);
        let before = mem::replace(&mut state.map, map);
        for (slot, channel) in state.channels_in(&before.difference(&state.map)) {
            if let Some(subscriber) = state.subscriber_of(&before, slot) {
                subscriber.order(&channel, false);
            }
            self.place(&mut state, slot, &channel);
        }
        let State { map, subscribers, .. } = &mut *state;
        let masters = map.masters();
        subscribers.retain(|address, _| masters.contains(address));
    }

    /// Subscribes at the master of the slot, if there is one whose address is known.
    fn place(&self, State { map, subscribers, .. }: &mut State, slot: u16, channel: &Arc<str>) {
        let Some(master) = map.master(slot) else { return };
        if let Some(subscriber) = subscribers.get(master) {
            return subscriber.order(channel, true);
        }
        let Topology { group, link, .. } = &*self.topology;
        let dial = group.dial(master);
        if !dial.has_messages() {
            return;
        }
        let _entered = self.runtime.enter();
        let listener = Arc::clone(&self.listener);
        let subscriber = Subscriber::start(dial, group.name(master), link, &self.config, listener);
        subscriber.order(channel, true);
        subscribers.insert(master.clone(), subscriber);
    }
}

/// Moves subscriptions to the servers that have their slots. Changes that come together are one.
async fn follow(subscriptions: Arc<Subscriptions>, mut seen: u64) {
    let topology = &subscriptions.topology;
    loop {
        topology.changes.until(|changes| changes > seen).await;
        seen = topology.changes.get();
        subscriptions.adopt(topology.map());
    }
}

impl State {
    fn channels_in(&self, slots: &[RangeInclusive<u16>]) -> Vec<(u16, Arc<str>)> {
        let start_of = |slot: u16| (slot, Arc::<str>::default());
        let range = |slots: &RangeInclusive<u16>| start_of(*slots.start())..start_of(*slots.end() + 1);
        slots.iter().flat_map(|slots| self.channels.range(range(slots))).cloned().collect()
    }

    fn subscriber_of(&self, map: &Map, slot: u16) -> Option<&Subscriber> {
        self.subscribers.get(map.master(slot)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_channels_of_slots_that_moved_are_moved() {
        let channels = [(0, "a"), (7, "b"), (7, "c"), (8, "d"), (16_383, "e")];
        let channels = channels.map(|(slot, channel)| (slot, channel.into())).into();
        let state = State { map: Map::default(), channels, subscribers: BTreeMap::new() };
        let moved = |slots: &[RangeInclusive<u16>]| -> Vec<String> {
            state.channels_in(slots).into_iter().map(|(_, channel)| channel.to_string()).collect()
        };
        assert_eq!(moved(&[0..=0, 7..=7]), ["a", "b", "c"]);
        assert_eq!(moved(&[1..=6, 8..=16_383]), ["d", "e"]);
        assert!(moved(&[]).is_empty());
    }
}
