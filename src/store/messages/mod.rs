//! Messages: subscribes to the channels of locks, and tells a [`Listener`] what arrives.
//!
//! # How it works
//!
//! [`Subscriptions`] knows the channels that somebody wants, and the master of the slot of each. Without a cluster all channels have
//! the same master. Each master that has such channels has one [`Subscriber`](subscriber::Subscriber): a task that owns one
//! connection. The task takes orders, sends one SUBSCRIBE or UNSUBSCRIBE at a time, reconnects, and sends a `PING` each second.
//! Nobody waits for it.
//!
//! A subscriber of a single server also connects anew when the connections for commands were made anew: perhaps they lead to another
//! server. When the map of the topology changes, a task moves the channels of the changed slots to the subscribers of their new masters.
//!
//! There is nothing on these connections but subscriptions and `PING`. In a cluster with sharded messages (SSUBSCRIBE), the server
//! says unasked that a slot has moved away, and the `redis` crate takes that for the reply of the next command. On a connection
//! for commands, each later reply would reach the wrong caller.
//!
//! A message can be lost at any time. So the listener is told of each gap: [`Listener::subscribed`] ends it, and whoever waits then
//! attempts again.

mod pubsub;
mod subscriber;
mod subscriptions;

use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use subscriptions::Subscriptions;

/// Learns what happens on the channels that a store was asked to subscribe to. The store calls a listener from the task that
/// receives messages, so a listener must not block. A trait, because the store cannot name the engine, which implements it.
pub(crate) trait Listener: Send + Sync + 'static {
    /// The subscription is active: from now on no message is missed, until [`Self::disconnected`].
    fn subscribed(&self, channel: &str);

    /// Somebody published on the channel.
    fn message(&self, channel: &str);

    /// The connection of these channels is gone: messages on them can be missed, until [`Self::subscribed`].
    fn disconnected(&self, channels: &BTreeSet<Arc<str>>);
}
