use std::sync::Mutex;

use tokio::sync::Notify;

use super::*;
use crate::base::sync::lock;
use crate::store::connection::{Endpoint, Upkeep};

#[derive(Default)]
struct Heard {
    subscribed: Mutex<Vec<String>>,
    disconnected: Mutex<BTreeSet<Arc<str>>>,
    changed: Notify,
}

impl Listener for Heard {
    fn subscribed(&self, channel: &str) {
        lock(&self.subscribed).push(channel.to_owned());
    }

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
    let (dial, link) = (
        Dial::Endpoint(Box::new(endpoint)),
        Arc::new(TopologyLink::new(false, false, &Arc::default(), Upkeep::unused())),
    );
    let subscriber = Subscriber::start(dial, "127.0.0.1:1".into(), &link, &config, listener);
    subscriber.order(&"a".into(), true);
    timeout(Duration::from_secs(20), heard.changed.notified()).await.unwrap();
    assert!(lock(&heard.disconnected).contains("a"));
}

/// Another subscriber, to which the channel moved, perhaps said meanwhile that no messages arrive.
#[tokio::test]
async fn a_subscription_to_a_channel_that_was_left_meanwhile_is_not_reported_and_ends() {
    let heard = Arc::new(Heard::default());
    let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
    let endpoint = Endpoint::new("redis://127.0.0.1:1/", None, Duration::from_secs(1)).unwrap();
    let (orders, mut task) = Task::new(
        Dial::Endpoint(Box::new(endpoint)),
        "127.0.0.1:1".into(),
        &Arc::new(TopologyLink::new(true, false, &Arc::default(), Upkeep::unused())),
        &LockConfig::default(),
        listener,
    );
    let [left, wanted]: [Arc<str>; 2] = ["left".into(), "wanted".into()];
    let order = |channel: &Arc<str>, is_wanted| Order { channel: Arc::clone(channel), is_wanted };
    task.take(order(&left, true));
    task.take(order(&wanted, true));
    task.changed.clear(); // the command was sent
    assert!(orders.send(order(&left, false)).is_ok());
    let (mut active, channels) = (BTreeSet::new(), vec![Arc::clone(&left), wanted]);
    task.finish(Done::Subscribed(Changed { done: channels, ..Changed::default() }), &mut active);
    assert_eq!(*lock(&heard.subscribed), ["wanted"]);
    assert!(active.contains(&left) && task.changed.contains(&left), "the next command ends it");
}
