//! What the same operations leave in Redis, done by Java alone and by Rust alone.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use lockkeeper::{BaseLock, LockClient, LockGuard};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::java::{Actor, LATCH};
use crate::support::fixture::Fixture;
use crate::support::{MS, SECOND, Scene, eventually, soon};
use crate::{Java, Row, Stage, actor, rival};

#[derive(Clone, Copy, Debug)]
enum Step {
    Lock,
    /// For a longer time than the watchdog's lease, by a holder that may enter again.
    LockForAMinute,
    /// For a fixed lease as long.
    LockForAMinuteAlone,
    Unlock,
    /// Another owner begins to wait.
    Wait,
    /// It waits in vain.
    WaitInVain,
    /// What the waiter got.
    UnlockTheOther,
    Force,
}

use Step::{Force, Lock, LockForAMinute, LockForAMinuteAlone, Unlock, UnlockTheOther, Wait, WaitInVain};

#[rustfmt::skip]
const STEPS: [Step; 20] = [
    Lock, Lock, Lock, Unlock, Lock, Unlock, Unlock, Unlock,
    LockForAMinuteAlone, WaitInVain, Unlock,
    Lock, Wait, Unlock, UnlockTheOther,
    Lock, LockForAMinute, Wait, Force, UnlockTheOther,
];

/// How all looks to somebody who asks the server.
#[derive(Debug, PartialEq, Eq)]
struct State {
    keys: BTreeMap<String, Key>,
    channels: Vec<String>,
    /// Channel and message of what was published since the last time.
    messages: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    content: Vec<String>,
    /// In units of five seconds, rounded up: that is the tolerance.
    time_to_live: i64,
}

pub async fn the_same_operations_leave_the_same_state<R: Row>() {
    let (java_scene, rust_scene) = (Scene::start(), Scene::start());
    let java = Java::start(&java_scene).await;
    let locks = rust_scene.client().await;
    let mut by_java = ByJava::new::<R>(&java);
    let mut by_rust = ByRust::<R>::new(&locks);
    let (mut java_ear, mut rust_ear) = (Ear::open(&java_scene).await, Ear::open(&rust_scene).await);
    let mut waits = false;
    for (number, step) in STEPS.into_iter().enumerate() {
        by_java.take(step).await;
        by_rust.take(step).await;
        waits = matches!(step, Wait) || waits && !matches!(step, Force | Unlock);
        let by_java = state(&java_scene, &mut java_ear, waits).await;
        let by_rust = state(&rust_scene, &mut rust_ear, waits).await;
        assert_eq!(by_rust, by_java, "after step {number}, {step:?}; left is Rust, right is Java");
    }
    drop((java_ear, rust_ear, by_java, by_rust, locks));
    java.end(&java_scene).await;
    java_scene.end().await;
    rust_scene.end().await;
}

/// The differences in the last table of `lua/README.md`, as far as they can be seen.
pub async fn what_is_different_is_what_is_listed<R: Row>() {
    let (java_scene, rust_scene) = (Scene::start(), Scene::start());
    let java = Java::start(&java_scene).await;
    let locks = rust_scene.client().await;
    let mut by_java = ByJava::new::<R>(&java);
    let mut by_rust = ByRust::<R>::new(&locks);
    let seconds = |scene: &Scene| (scene.server.run::<i64>(&["PTTL", "a"]) + 999) / 1_000;
    let leases = || (seconds(&java_scene), seconds(&rust_scene));
    for (step, java_has, rust_has) in [
        (LockForAMinute, 60, 60),
        (Lock, 30, 60), // entering again
        (LockForAMinute, 60, 60),
        (Unlock, 30, 60), // in part
        (Unlock, 30, 60),
        (Unlock, 0, 0),
    ] {
        by_java.take(step).await;
        by_rust.take(step).await;
        let (java_left, rust_left) = leases();
        assert!((java_has - 3..=java_has).contains(&java_left), "{step:?}: {java_left}");
        assert!((rust_has - 3..=rust_has).contains(&rust_left), "{step:?}: {rust_left}");
    }
    // One latch for each of Java's unlocks, since 3.24.1; nothing else here sets a key.
    let latches = if java.is_at_least(3, 24) { 3 } else { 0 };
    assert_eq!((java_scene.server.calls("set"), rust_scene.server.calls("set")), (latches, 0));

    // Java's threads keep their ids; here each first hold has a new one.
    let mut owners = Vec::new();
    for scene in [&java_scene, &java_scene, &rust_scene, &rust_scene] {
        by_java.take(Lock).await;
        by_rust.take(Lock).await;
        owners.push(scene.server.run::<Vec<String>>(&["HKEYS", "a"]));
        by_java.take(Unlock).await;
        by_rust.take(Unlock).await;
    }
    assert!(owners[0] == owners[1] && owners[2] != owners[3], "{owners:?}");
    drop((by_java, by_rust, locks));
    java.end(&java_scene).await;
    java_scene.end().await;
    rust_scene.end().await;
}

/// A renewal finds a lease that is longer than its own.
pub async fn java_renews_to_its_lease_and_rust_to_the_longer<R: Row>() {
    let stage = Stage::with_watchdog(2 * SECOND).await;
    let holder = actor::<R>(&stage.java, "holder");
    holder.lock("b").await.unwrap();
    let guard = stage.lock::<R>().lock().await.unwrap();
    for name in ["a", "b"] {
        stage.scene.server.run::<()>(&["PEXPIRE", name, "60000"]);
    }
    let left = |name: &str| stage.scene.server.run::<u64>(&["PTTL", name]);
    eventually("Java renewed", || left("b"), |&left| left <= 2_000).await;
    let deadline = guard.remaining();
    eventually("Rust renewed", || guard.remaining(), |&now| now > deadline).await;
    assert!(left("a") > 50_000);
    guard.unlock().await.unwrap();
    holder.unlock("b").await.unwrap();
    stage.end().await;
}

struct ByJava {
    holder: Actor,
    other: Actor,
    waiting: Option<JoinHandle<()>>,
}

impl ByJava {
    fn new<R: Row>(java: &Java) -> Self {
        Self { holder: actor::<R>(java, "holder"), other: rival::<R>(java, "other"), waiting: None }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Lock => self.holder.lock("a").await.unwrap(),
            LockForAMinute | LockForAMinuteAlone => self.holder.lock_for("a", 60 * SECOND).await.unwrap(),
            Unlock => self.holder.unlock("a").await.unwrap(),
            Wait => {
                let other = self.other.clone();
                self.waiting = Some(tokio::spawn(async move { other.lock("a").await.unwrap() }));
            }
            WaitInVain => assert!(!self.other.try_lock_within("a", 100 * MS).await.unwrap()),
            UnlockTheOther => {
                soon(self.waiting.take().unwrap()).await.unwrap();
                self.other.unlock("a").await.unwrap();
            }
            Force => assert!(self.holder.force_unlock("a").await.unwrap()),
        }
    }
}

struct ByRust<R: Row> {
    locks: LockClient,
    lock: <R::Rust as Fixture>::Lock,
    guards: Vec<LockGuard>,
    waiting: Option<JoinHandle<LockGuard>>,
}

impl<R: Row> ByRust<R> {
    fn new(locks: &LockClient) -> Self {
        Self { locks: locks.clone(), lock: R::Rust::lock(locks, "a"), guards: Vec::new(), waiting: None }
    }

    async fn take(&mut self, step: Step) {
        let mut other = R::Rust::rival(&self.locks, "a");
        match step {
            Lock => self.guards.push(self.lock.lock().await.unwrap()),
            LockForAMinute => {
                let guard = self.lock.lock().await.unwrap();
                guard.extend(60 * SECOND).await.unwrap();
                self.guards.push(guard);
            }
            LockForAMinuteAlone => {
                let mut leased = R::Rust::leased(&self.locks, "a", 60 * SECOND);
                self.guards.push(leased.lock().await.unwrap());
            }
            Unlock => self.guards.pop().unwrap().unlock().await.unwrap(),
            Wait => self.waiting = Some(tokio::spawn(async move { other.lock().await.unwrap() })),
            WaitInVain => assert!(other.try_lock_for(100 * MS).await.unwrap().is_none()),
            UnlockTheOther => {
                soon(self.waiting.take().unwrap()).await.unwrap().unlock().await.unwrap();
            }
            Force => assert!(self.lock.force_unlock().await.unwrap()),
        }
    }
}

/// Hears everything that is published.
struct Ear(redis::aio::PubSubStream);

impl Ear {
    async fn open(scene: &Scene) -> Self {
        let client = redis::Client::open(scene.server.url()).unwrap();
        let (mut sink, stream) = client.get_async_pubsub().await.unwrap().split();
        sink.psubscribe("*").await.unwrap();
        Self(stream)
    }

    /// What was published so far: before a mark, which comes last.
    async fn heard(&mut self, scene: &Scene) -> Vec<(String, String)> {
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

/// Once all has come to rest.
async fn state(scene: &Scene, ear: &mut Ear, waits: bool) -> State {
    eventually("somebody listens, or nobody", || scene.server.channels(), |found| found.is_empty() != waits)
        .await;
    let channels = scene.server.channels().iter().map(|channel| anonymous(channel)).collect();
    State { keys: keys(scene), channels, messages: ear.heard(scene).await }
}

/// Without what only one of the two has, see `lua/README.md`: latches, which are private to one call of Java's unlock,
/// and the places of fair locks.
fn keys(scene: &Scene) -> BTreeMap<String, Key> {
    let names: Vec<String> = scene.server.run(&["KEYS", "*"]);
    let names = names.iter().filter(|name| !name.starts_with(LATCH) && !name.starts_with("lockkeeper_"));
    names.map(|name| (anonymous(name), key(scene, name))).collect()
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
    Key { content, time_to_live: (time_to_live + 4_999).div_euclid(5_000) }
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
