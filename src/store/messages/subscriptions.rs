//! Which connection receives the messages of a channel.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;

use super::listener::Listener;
use super::subscriber::Subscriber;
use crate::config::LockConfig;
use crate::protocol::slot;
use crate::store::task::Task;
use crate::store::topology::{Address, Map, Topology};
use crate::sync::lock;

/// Which connection receives the messages of a channel.
pub(crate) enum Subscriptions {
    One(Subscriber),
    Sharded { shards: Arc<Shards>, _moves: Task },
}

/// One connection for each master of a cluster that has channels which somebody wants. A message stays in the slot of its channel.
pub(crate) struct Shards {
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
    pub(crate) fn sharded(
        topology: &Arc<Topology>,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> Self {
        let seen = topology.changes(); // before the map is read: no change is missed
        let state = State { map: topology.map(), channels: BTreeSet::new(), subscribers: BTreeMap::new() };
        let shards = Arc::new(Shards {
            topology: Arc::clone(topology),
            config: config.clone(),
            listener,
            runtime: Handle::current(),
            state: Mutex::new(state),
        });
        let moves = Task::spawn(follow(Arc::clone(&shards), seen));
        Self::Sharded { shards, _moves: moves }
    }

    pub(crate) fn subscribe(&self, channel: &Arc<str>) {
        match self {
            Self::One(subscriber) => subscriber.subscribe(channel),
            Self::Sharded { shards, .. } => shards.subscribe(channel),
        }
    }

    pub(crate) fn unsubscribe(&self, channel: &Arc<str>) {
        match self {
            Self::One(subscriber) => subscriber.unsubscribe(channel),
            Self::Sharded { shards, .. } => shards.unsubscribe(channel),
        }
    }
}

/// Moves subscriptions to the servers that have their slots. Changes that come together are one.
async fn follow(shards: Arc<Shards>, mut seen: u64) {
    loop {
        seen = shards.topology.changed(seen).await;
        shards.adopt(shards.topology.map());
    }
}

impl Shards {
    fn subscribe(&self, channel: &Arc<str>) {
        let (slot, mut state) = (slot(channel), lock(&self.state));
        state.channels.insert((slot, Arc::clone(channel)));
        self.place(&mut state, slot, channel);
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        let (slot, mut state) = (slot(channel), lock(&self.state));
        state.channels.remove(&(slot, Arc::clone(channel)));
        if let Some(subscriber) = state.subscriber_of(&state.map, slot) {
            subscriber.unsubscribe(channel);
        }
    }

    /// Moves the channels of the slots that have another master.
    fn adopt(&self, map: Map) {
        let mut state = lock(&self.state);
        let before = mem::replace(&mut state.map, map);
        for (slot, channel) in state.channels_in(&before.difference(&state.map)) {
            if let Some(subscriber) = state.subscriber_of(&before, slot) {
                subscriber.unsubscribe(&channel);
            }
            self.place(&mut state, slot, &channel);
        }
        let State { map, subscribers, .. } = &mut *state;
        let masters = map.masters();
        subscribers.retain(|address, _| masters.contains(address));
    }

    /// Subscribes at the master of the slot, if there is one.
    fn place(&self, State { map, subscribers, .. }: &mut State, slot: u16, channel: &Arc<str>) {
        let Some(master) = map.master(slot) else { return };
        let _entered = self.runtime.enter();
        let subscriber = subscribers.entry(master.clone()).or_insert_with(|| {
            let (dial, address) = (self.topology.messages(master), master.to_string().into());
            Subscriber::start(Some(dial), address, &self.config, Arc::clone(&self.listener))
        });
        subscriber.subscribe(channel);
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
