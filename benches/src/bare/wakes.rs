//! The messages that wake waiters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use redis::Client;
use redis::aio::PubSubSink;
use tokio::sync::Notify;

use crate::connection::address;

/// One connection that receives the messages for all waiters. A subscription lasts until it is forgotten.
pub struct Wakes {
    sink: PubSubSink,
    channels: Arc<Mutex<HashMap<String, Arc<Notify>>>>,
}

impl Wakes {
    pub async fn connect(url: &str) -> Self {
        let client = Client::open(address(url)).expect("a valid address");
        let (sink, mut stream) = client.get_async_pubsub().await.expect("a connection").split();
        let channels = Arc::new(Mutex::new(HashMap::<String, Arc<Notify>>::new()));
        let waited_for = Arc::clone(&channels);
        tokio::spawn(async move {
            while let Some(message) = stream.next().await {
                let channels = waited_for.lock().expect("no panic");
                if let Some(waiting) = channels.get(message.get_channel_name()) {
                    waiting.notify_one();
                }
            }
        });
        Self { sink, channels }
    }

    /// Returns when it is time to attempt again: after a message, or after the first subscription to the channel.
    pub async fn wait(&self, channel: &str) {
        match self.waiting(channel) {
            Some(waiting) => waiting.notified().await,
            None => self.sink.clone().subscribe(channel).await.expect("a subscription"),
        }
    }

    /// Unsubscribes in the background from a channel that no waiter will use again.
    pub fn forget(&self, channel: &str) {
        let known = self.channels.lock().expect("no panic").remove(channel);
        if known.is_some() {
            let (mut sink, channel) = (self.sink.clone(), channel.to_owned());
            tokio::spawn(async move { sink.unsubscribe(channel).await.expect("an answer") });
        }
    }

    /// The waiters of a channel. `None`: the channel is new, and the caller has to subscribe.
    fn waiting(&self, channel: &str) -> Option<Arc<Notify>> {
        let mut channels = self.channels.lock().expect("no panic");
        let known = channels.get(channel).cloned();
        if known.is_none() {
            channels.insert(channel.to_owned(), Arc::default());
        }
        known
    }
}
