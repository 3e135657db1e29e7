//! The network between one process and a server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::channels::ClientId;
use crate::sync::Watched;
use fastrand::Rng;

/// What a network does. For simulations.
///
/// ```
/// # use lockkeeper_memory::Network;
/// let refusing = Network { refuses: true, ..Network::default() };
/// ```
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "hidden")]
pub struct Network {
    /// What is sent arrives up to this much later, each way.
    pub most_delay: Duration,
    /// What clients send does not arrive.
    pub holds_requests: bool,
    /// What the server sends does not arrive.
    pub holds_replies: bool,
    /// It holds only the connections that exist now.
    pub holds_existing: bool,
    /// New connections are refused.
    pub refuses: bool,
    /// It holds and refuses only what subscribes to channels. A connection is refused when it subscribes.
    pub only_messages: bool,
    /// The server refuses each subscription, and the connection stays.
    pub denies_messages: bool,
}

/// The network between one process and a server.
#[derive(Debug)]
pub(crate) struct Link {
    state: Watched<LinkState>,
    seed: u64,
}

/// What becomes of a connection that subscribes to a channel.
pub(crate) enum Subscription {
    Served,
    /// The connection is closed.
    Refused,
    /// The server says that the user may not do this.
    Denied,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkState {
    network: Network,
    /// The connections with greater numbers are not held.
    last_held: ClientId,
    /// How often the connections were cut.
    cuts: u64,
    /// How often those were cut that subscribe to channels.
    message_cuts: u64,
    /// After a cut, what the clients had sent still arrives.
    delivers: bool,
}

impl LinkState {
    /// `subscribes`: the connection does, or did.
    pub(crate) const fn holds_requests(&self, client: ClientId, subscribes: bool) -> bool {
        self.network.holds_requests && self.reaches(client, subscribes)
    }

    pub(crate) const fn holds_replies(&self, client: ClientId, subscribes: bool) -> bool {
        self.network.holds_replies && self.reaches(client, subscribes)
    }

    /// Whether what holds reaches this connection.
    const fn reaches(&self, client: ClientId, subscribes: bool) -> bool {
        client <= self.last_held && (subscribes || !self.network.only_messages)
    }
}

impl Link {
    pub(crate) fn new(seed: u64) -> Self {
        let state = LinkState {
            network: Network::default(),
            last_held: ClientId::MAX,
            cuts: 0,
            message_cuts: 0,
            delivers: false,
        };
        Self { state: Watched::new(state), seed }
    }

    /// Changes the network. The server's last connection so far has the number `last`.
    pub(crate) fn set(&self, network: Network, last: ClientId) {
        self.state.modify(|state| {
            state.network = network;
            state.last_held = if network.holds_existing { last } else { ClientId::MAX };
        });
    }

    pub(crate) fn hold(&self, is_held: bool) {
        let network = self.state.get().network;
        let network =
            Network { holds_requests: is_held, holds_replies: is_held, holds_existing: false, ..network };
        self.set(network, 0);
    }

    /// Closes all connections. `delivers`: what clients had sent still arrives.
    pub(crate) fn cut(&self, delivers: bool) {
        self.state.modify(|state| {
            state.cuts += 1;
            state.delivers = delivers;
        });
    }

    /// Closes the connections that subscribe to channels.
    pub(crate) fn cut_messages(&self) {
        self.state.modify(|state| {
            state.message_cuts += 1;
            state.delivers = false;
        });
    }

    pub(crate) fn refuses(&self) -> bool {
        let network = self.state.get().network;
        network.refuses && !network.only_messages
    }

    /// What becomes of a connection that subscribes.
    pub(crate) fn subscription(&self) -> Subscription {
        match self.state.get().network {
            Network { refuses: true, only_messages: true, .. } => Subscription::Refused,
            Network { denies_messages: true, .. } => Subscription::Denied,
            _ => Subscription::Served,
        }
    }

    /// How often all connections were cut, and how often those that subscribe.
    pub(crate) fn cuts(&self) -> (u64, u64) {
        let state = self.state.get();
        (state.cuts, state.message_cuts)
    }

    /// Waits for a cut after so many. Returns whether what was sent still arrives.
    pub(crate) async fn cut_after(&self, (cuts, message_cuts): (u64, u64), subscribes: &AtomicBool) -> bool {
        self.changed(|state| {
            state.cuts != cuts || (state.message_cuts != message_cuts && subscribes.load(Ordering::Relaxed))
        })
        .await;
        self.state.get().delivers
    }

    pub(crate) fn holds_requests(&self, client: ClientId, subscribes: bool) -> bool {
        self.state.get().holds_requests(client, subscribes)
    }

    /// Waits until the state of the network is such.
    pub(crate) async fn changed(&self, is: impl Fn(&LinkState) -> bool) {
        self.state.until(is).await;
    }

    pub(crate) fn delay(&self, random: &mut Rng) -> Duration {
        let most = self.state.get().network.most_delay;
        if most.is_zero() { most } else { most.mul_f64(random.f64()) }
    }

    /// The seed of a connection.
    pub(crate) const fn seed(&self, client: ClientId) -> u64 {
        self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(client)
    }
}
