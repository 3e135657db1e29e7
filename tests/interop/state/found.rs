//! What is found in Redis after a step, and what was published.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use uuid::Uuid;

use crate::java::LATCH;
use crate::support::{Scene, eventually, soon};

/// What stands before the number in the key of a reader's hold.
pub const HOLDS: &str = ":rwlock_timeout:";

/// How the keys begin that count tokens.
pub const COUNTERS: &str = "redisson_lock_token:";

/// Where waiters for fair locks stand.
const QUEUES: [&str; 2] = ["redisson_lock_queue:", "redisson_lock_timeout:"];

/// How all looks to somebody who asks the server.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    pub keys: BTreeMap<String, Key>,
    pub channels: Vec<String>,
    /// Channel and message of what was published since the last time.
    pub messages: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    pub content: Vec<String>,
    /// In units of ten seconds, rounded up: that is the tolerance.
    pub time_to_live: i64,
}

/// Hears everything that is published.
pub struct Ear(redis::aio::PubSubStream);

impl Ear {
    pub async fn open(scene: &Scene) -> Self {
        let client = redis::Client::open(scene.server.url()).unwrap();
        let (mut sink, stream) = client.get_async_pubsub().await.unwrap().split();
        sink.psubscribe("*").await.unwrap();
        Self(stream)
    }

    /// What was published so far: before a mark, which comes last.
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
    /// Java adds one lease to the other.
    pub fn forget_the_lease_of_a_reentrant_writer(&mut self) {
        for key in self.keys.values_mut() {
            if matches!(&key.content[..], [_, _, mode, _, holds] if mode == "write" && holds != "1") {
                key.time_to_live = 0;
            }
        }
    }
}

/// When a reader's lock is forced, the keys of its holds stay.
pub fn delete_what_java_leaves(scene: &Scene) {
    for key in scene.server.run::<Vec<String>>(&["KEYS", &format!("*{HOLDS}*")]) {
        scene.server.run::<()>(&["DEL", &key]);
    }
}

/// Once all has come to rest.
pub async fn state(scene: &Scene, ear: &mut Ear, waits: bool) -> State {
    eventually("somebody listens, or nobody", || scene.server.channels(), |found| found.is_empty() != waits)
        .await;
    let channels = scene.server.channels().iter().map(|channel| anonymous(channel)).collect();
    State { keys: keys(scene), channels, messages: ear.heard(scene).await }
}

/// Without what only one of the two has, see `lua/README.md`: latches, which are private to one call of Java's unlock,
/// the places of fair locks, and the expiry of their queues. The keys of readers' holds count as one, which lasts as long as any. Where tokens are
/// counted, but not how far.
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
            Some((reader, number)) => {
                let none = Key { content: vec![key.content[0].clone()], time_to_live: 0 };
                let holds = keys.entry(anonymous(reader)).or_insert(none);
                holds.content.push(number.to_owned());
                holds.content[1..].sort_unstable();
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
        _ => Vec::new(), // gone meanwhile
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
