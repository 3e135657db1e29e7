//! The state of Redis after a step, and what was published.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use uuid::Uuid;

use crate::java::LATCH;
use crate::support::{Scene, eventually, soon};

/// Stands before the number in the key of a reader's hold.
pub const HOLDS: &str = ":rwlock_timeout:";

/// Prefix of the keys that count tokens.
pub const COUNTERS: &str = "redisson_lock_token:";

/// Prefixes of the keys with the queues of fair locks.
const QUEUES: [&str; 2] = ["redisson_lock_queue:", "redisson_lock_timeout:"];

/// Everything that a client of the server can see.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    pub keys: BTreeMap<String, Key>,
    pub channels: Vec<String>,
    /// What was published since the last call: channel and message.
    pub messages: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    pub content: Vec<String>,
    /// In units of ten seconds, rounded up. This is the tolerance of the comparison.
    pub time_to_live: i64,
}

/// A subscription to every channel.
pub struct Ear(redis::aio::PubSubStream);

impl Ear {
    pub async fn open(scene: &Scene) -> Self {
        let client = redis::Client::open(scene.server.url()).unwrap();
        let (mut sink, stream) = client.get_async_pubsub().await.unwrap().split();
        sink.psubscribe("*").await.unwrap();
        Self(stream)
    }

    /// What was published so far. A mark that it publishes itself comes last.
    pub async fn heard(&mut self, scene: &Scene) -> Vec<(String, String)> {
        scene.server.run::<()>(&["PUBLISH", "mark", ""]);
        let mut heard = Vec::new();
        loop {
            let message = soon(self.0.next()).await.unwrap();
            match message.get_channel_name() {
                "mark" => return heard,
                channel => heard.push((anonymous(channel), message.get_payload().unwrap())),
            }
        }
    }
}

impl State {
    /// Java adds the new lease to the old one.
    pub fn forget_the_lease_of_a_reentrant_writer(&mut self) {
        for key in self.keys.values_mut() {
            if matches!(&key.content[..], [_, _, mode, _, holds] if mode == "write" && holds != "1") {
                key.time_to_live = 0;
            }
        }
    }
}

/// Deletes the keys of readers' holds, which Java keeps after `forceUnlock`.
pub fn delete_what_java_leaves(scene: &Scene) {
    for key in scene.server.run::<Vec<String>>(&["KEYS", &format!("*{HOLDS}*")]) {
        scene.server.run::<()>(&["DEL", &key]);
    }
}

/// The state once nothing changes any longer.
pub async fn state(scene: &Scene, ear: &mut Ear, waits: bool) -> State {
    eventually("the expected subscriptions", || scene.server.channels(), |found| found.is_empty() != waits)
        .await;
    let channels = scene.server.channels().iter().map(|channel| anonymous(channel)).collect();
    State { keys: keys(scene), channels, messages: ear.heard(scene).await }
}

/// The keys, without what only one of the two languages has (see `lua/README.md`): latches, which are private to one
/// unlock of Java, the records of fair waiters, and the expiry of their queues.
///
/// All keys of a reader's holds count as one, with the longest expiry. Token counters count, but not their values.
fn keys(scene: &Scene) -> BTreeMap<String, Key> {
    let mut keys = BTreeMap::new();
    let mut names: Vec<String> = scene.server.run(&["KEYS", "*"]);
    names.retain(|name| !name.starts_with(LATCH) && !name.starts_with("lockkeeper_"));
    names.sort_unstable();
    for name in names {
        let mut key = key(scene, &name);
        if name.starts_with(COUNTERS) {
            key.content.truncate(1);
        }
        if QUEUES.iter().any(|queue| name.starts_with(queue)) {
            key.time_to_live = 0;
        }
        match name.split_once(HOLDS) {
            None => drop(keys.insert(anonymous(&name), key)),
            Some((reader, _)) => {
                let none = Key { content: vec![key.content[0].clone()], time_to_live: 0 };
                let holds = keys.entry(anonymous(reader)).or_insert(none);
                holds.time_to_live = holds.time_to_live.max(key.time_to_live);
            }
        }
    }
    keys
}

fn key(scene: &Scene, name: &str) -> Key {
    let kind: String = scene.server.run(&["TYPE", name]);
    let mut content: Vec<String> = match kind.as_str() {
        "hash" => scene.server.run(&["HGETALL", name]),
        "list" => scene.server.run(&["LRANGE", name, "0", "-1"]),
        "string" => vec![scene.server.run(&["GET", name])],
        "zset" => scene.server.run(&["ZRANGE", name, "0", "-1"]),
        _ => Vec::new(), // expired in between
    };
    content.iter_mut().for_each(|text| *text = anonymous(text));
    content.insert(0, kind);
    let time_to_live: i64 = scene.server.run(&["PTTL", name]);
    Key { content, time_to_live: (time_to_live + 9_999).div_euclid(10_000) }
}

/// Each `UUID:number` becomes `owner`.
fn anonymous(text: &str) -> String {
    const UUID: usize = 36;
    let at =
        (0..text.len()).find(|&at| text.get(at..at + UUID).is_some_and(|part| Uuid::try_parse(part).is_ok()));
    let Some(at) = at else { return text.to_owned() };
    let rest = text[at + UUID..].trim_start_matches(|c: char| c == ':' || c.is_ascii_digit());
    format!("{}owner{}", &text[..at], anonymous(rest))
}
