//! What a store reports about channels.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Learns what happens on the channels that a store was asked to subscribe to. The store calls a listener from the task that
/// receives messages, so a listener must not block.
pub(crate) trait Listener: Send + Sync + 'static {
    /// The subscription is active: from now on no message is missed, until [`Self::disconnected`].
    fn subscribed(&self, channel: &str);

    /// Somebody published on the channel.
    fn message(&self, channel: &str);

    /// Their connection is gone: messages on these channels can be missed, until [`Self::subscribed`].
    fn disconnected(&self, channels: &BTreeSet<Arc<str>>);
}
