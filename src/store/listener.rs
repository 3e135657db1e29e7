//! What a store tells about channels.

/// Learns what happens on the channels that a store was asked to subscribe to. The store calls it from its own task, so it
/// never blocks.
pub(crate) trait Listener: Send + Sync + 'static {
    /// The subscription is active: no message after this is missed, until [`Self::disconnected`].
    fn subscribed(&self, channel: &str);

    /// Somebody published on the channel.
    fn message(&self, channel: &str);

    /// The connection is gone: messages may be missed on all channels, until [`Self::subscribed`].
    fn disconnected(&self);
}
