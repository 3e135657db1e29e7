use std::sync::Mutex;

use tokio::sync::Notify;

use super::*;
use crate::base::sync::lock;
use crate::store::connection::Endpoint;

#[derive(Default)]
struct Heard {
    disconnected: Mutex<BTreeSet<Arc<str>>>,
    changed: Notify,
}

impl Listener for Heard {
    fn subscribed(&self, _channel: &str) {}

    fn message(&self, _channel: &str) {}

    fn disconnected(&self, channels: &BTreeSet<Arc<str>>) {
        lock(&self.disconnected).extend(channels.iter().map(Arc::clone));
        self.changed.notify_one();
    }
}

/// Another server, which had the channel before, perhaps said that messages arrive.
#[tokio::test]
async fn who_wants_messages_of_a_server_that_cannot_be_reached_is_told_so() {
    let heard = Arc::new(Heard::default());
    // Nothing listens on this port.
    let endpoint = Endpoint::new("redis://127.0.0.1:1/", None, Duration::from_secs(1)).unwrap();
    let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
    let config = LockConfig::default();
    let (dial, link) =
        (MessageDial::Endpoint(Box::new(endpoint)), Arc::new(TopologyLink::new(false, &Arc::default())));
    let subscriber = Subscriber::start(dial, "127.0.0.1:1".into(), &link, &config, listener);
    subscriber.subscribe(&"a".into());
    timeout(Duration::from_secs(20), heard.changed.notified()).await.unwrap();
    assert!(lock(&heard.disconnected).contains("a"));
}
