//! Messages: subscriptions, and who is told of them.

mod listener;
mod pubsub;
mod subscriber;
mod subscriptions;

pub(crate) use listener::Listener;
pub(crate) use pubsub::Messages;
pub(crate) use subscriber::Subscriber;
pub(crate) use subscriptions::Subscriptions;
