//! What the same operations leave in Redis, done by Java alone and by Rust alone.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use lockkeeper::{BaseLock, LockClient, LockGuard, ReadWriteLock};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::java::{Actor, LATCH};
use crate::support::fixture::Fixture;
use crate::support::{MS, SECOND, Scene, eventually, soon};
use crate::{Java, Row, Stage, actor, rival};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What is left of the lease after each step, in seconds: with Java, and with Rust.
type Leases = [(Step, i64, i64); 6];

const LEASES: Leases = [
    (LockForAMinute, 60, 60),
    (Lock, 30, 60), // entering again
    (LockForAMinute, 60, 60),
    (Unlock, 30, 60), // in part
    (Unlock, 30, 60),
    (Unlock, 0, 0),
];

const READ_LEASES: Leases = [
    (Lock, 30, 30),
    (LockForAMinute, 60, 60),
    (Unlock, 30, 60),
    (LockForAMinute, 60, 60),
    (Unlock, 30, 60),
    (Unlock, 0, 0),
];

const WRITE_LEASES: Leases = [
    (LockForAMinute, 60, 60),
    (Lock, 90, 60),
    (LockForAMinute, 150, 60),
    (Unlock, 30, 60),
    (Unlock, 30, 60),
    (Unlock, 0, 0),
];

/// What stands before the number in the key of a reader's hold.
const HOLDS: &str = ":rwlock_timeout:";

/// How the keys begin that count tokens.
const COUNTERS: &str = "redisson_lock_token:";

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
        if step == Force {
            delete_what_java_leaves(&java_scene);
        }
        let mut by_java = state(&java_scene, &mut java_ear, waits).await;
        let mut by_rust = state(&rust_scene, &mut rust_ear, waits).await;
        if R::JAVA == "write" {
            by_java.forget_the_lease_of_a_reentrant_writer();
            by_rust.forget_the_lease_of_a_reentrant_writer();
        }
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
    let steps = match R::JAVA {
        "read" => READ_LEASES,
        "write" => WRITE_LEASES,
        _ => LEASES,
    };
    for (step, java_has, rust_has) in steps {
        by_java.take(step).await;
        by_rust.take(step).await;
        let (java_left, rust_left) = leases();
        assert!((java_has - 3..=java_has).contains(&java_left), "{step:?}: {java_left}");
        assert!((rust_has - 3..=rust_has).contains(&rust_left), "{step:?}: {rust_left}");
    }
    // One latch for each of Java's unlocks, since 3.24.1. Nothing else here sets a key, but for the holds of readers.
    let latches = if java.is_at_least(3, 24) { 3 } else { 0 };
    if R::Rust::IS_SHARED {
        assert_eq!(java_scene.server.calls("set"), 3 + latches);
    } else {
        // And for the counter that Java only increments.
        let counted = u64::from(R::JAVA == "fenced");
        assert_eq!((java_scene.server.calls("set"), rust_scene.server.calls("set")), (latches, counted));
    }

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

/// A step of an owner that has both locks of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Read,
    Write,
    WriteForAMinute,
    EndRead,
    EndWrite,
}

use Part::{EndRead, EndWrite, Read, Write, WriteForAMinute};

/// The same owners, on either side: threads, and handles.
struct Both {
    java: Vec<[Actor; 2]>,
    rust: Vec<(ReadWriteLock, Vec<LockGuard>, Vec<LockGuard>)>,
}

impl Both {
    fn new(java: &Java, locks: &LockClient) -> Self {
        let names = ["one", "other"];
        let actors = |name: &str| ["read", "write"].map(|kind| java.actor(name, kind));
        let lock = || (locks.read_write_lock("a"), Vec::new(), Vec::new());
        Self { java: names.map(actors).into(), rust: names.map(|_| lock()).into() }
    }

    async fn take(&mut self, who: usize, part: Part) {
        let [read, write] = &self.java[who];
        let (lock, reads, writes) = &mut self.rust[who];
        match part {
            Read => {
                read.lock("a").await.unwrap();
                reads.push(lock.read().lock().await.unwrap());
            }
            Write => {
                write.lock("a").await.unwrap();
                writes.push(lock.write().lock().await.unwrap());
            }
            WriteForAMinute => {
                write.lock_for("a", 60 * SECOND).await.unwrap();
                let guard = lock.write().lock().await.unwrap();
                guard.extend(60 * SECOND).await.unwrap();
                writes.push(guard);
            }
            EndRead => {
                read.unlock("a").await.unwrap();
                reads.pop().unwrap().unlock().await.unwrap();
            }
            EndWrite => {
                write.unlock("a").await.unwrap();
                writes.pop().unwrap().unlock().await.unwrap();
            }
        }
    }
}

/// Both locks of a read-write lock together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_beside_writing_leaves_the_same_state() {
    let (java_scene, rust_scene) = (Scene::start(), Scene::start());
    let java = Java::start(&java_scene).await;
    let locks = rust_scene.client().await;
    let mut both = Both::new(&java, &locks);
    let (mut java_ear, mut rust_ear) = (Ear::open(&java_scene).await, Ear::open(&rust_scene).await);
    #[rustfmt::skip]
    let steps = [
        (0, Write), (0, Read), (0, Read), (0, EndRead), (0, EndRead), (0, EndWrite),
        (0, Write), (0, Read), (0, EndWrite), (1, Read), (0, EndRead), (1, EndRead),
        (1, Read), (0, Read), (0, Read), (1, EndRead), (0, EndRead), (0, EndRead),
    ];
    for (number, (who, part)) in steps.into_iter().enumerate() {
        both.take(who, part).await;
        let by_java = state(&java_scene, &mut java_ear, false).await;
        let mut by_rust = state(&rust_scene, &mut rust_ear, false).await;
        if part == EndWrite && !by_rust.keys.is_empty() {
            // Java tells nobody.
            assert_eq!(by_rust.messages, [("redisson_rwlock:{a}".to_owned(), "1".to_owned())]);
            by_rust.messages.clear();
        }
        assert_eq!(by_rust, by_java, "after step {number}, {part:?}; left is Rust, right is Java");
    }
    drop((java_ear, rust_ear, both, locks));
    java.end(&java_scene).await;
    java_scene.end().await;
    rust_scene.end().await;
}

/// The differences in the last table of `lua/README.md` that concern a reader's own keys, or both locks of a name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_different_of_a_read_write_lock_is_what_is_listed() {
    let (java_scene, rust_scene) = (Scene::start(), Scene::start());
    let java = Java::start(&java_scene).await;
    let locks = rust_scene.client().await;
    let seconds = |scene: &Scene, key: &str| (scene.server.run::<i64>(&["PTTL", key]) + 999) / 1_000;
    let mut both = Both::new(&java, &locks);
    for (part, java_has, rust_has) in [
        (WriteForAMinute, 60, 60),
        (Read, 60, 60), // never lowered
        (Read, 60, 60),
        (EndRead, 30, 60), // set to what is left of the others
        (EndRead, 30, 60),
        (EndWrite, 0, 0),
        (WriteForAMinute, 60, 60),
        (Read, 60, 60),
        (EndWrite, 60, 30), // a downgrade
        (EndRead, 0, 0),
    ] {
        both.take(0, part).await;
        let (java_left, rust_left) = (seconds(&java_scene, "a"), seconds(&rust_scene, "a"));
        assert!((java_has - 3..=java_has).contains(&java_left), "{part:?}: {java_left}");
        assert!((rust_has - 3..=rust_has).contains(&rust_left), "{part:?}: {rust_left}");
    }

    // The keys of two holds, the second of which is longer.
    let reader = java.actor("one", "read");
    reader.lock("a").await.unwrap();
    reader.lock_for("a", 60 * SECOND).await.unwrap();
    let mut owner = locks.owner();
    let outer = owner.read_write_lock("a").read().lock().await.unwrap();
    let inner = owner.read_write_lock("a").lease(60 * SECOND).read().lock().await.unwrap();
    let keys = |scene: &Scene| {
        let mut keys: Vec<String> = scene.server.run(&["KEYS", &format!("*{HOLDS}*")]);
        keys.sort_unstable();
        keys
    };
    let of_keys = |scene: &Scene| {
        let keys = keys(scene);
        let values: Vec<String> = keys.iter().map(|key| scene.server.run(&["GET", key])).collect();
        let leases: Vec<i64> = keys.iter().map(|key| (seconds(scene, key) + 9) / 10 * 10).collect();
        (values, leases)
    };
    let ((java_values, java_leases), (rust_values, rust_leases)) =
        (of_keys(&java_scene), of_keys(&rust_scene));
    assert_eq!((java_leases, rust_leases), (vec![30, 60], vec![60, 60]));
    assert_eq!(java_values, ["1", "1"]);
    assert!(rust_values[0] == rust_values[1] && rust_values[0].parse::<u64>().is_ok(), "{rust_values:?}");

    // Ended by force.
    assert!(
        reader.force_unlock("a").await.unwrap()
            && locks.read_write_lock("a").read().force_unlock().await.unwrap()
    );
    assert_eq!((keys(&java_scene).len(), keys(&rust_scene).len()), (2, 0));
    delete_what_java_leaves(&java_scene);
    drop((outer, inner, owner, both, locks));
    java.end(&java_scene).await;
    java_scene.end().await;
    rust_scene.end().await;
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
                self.other.asleep().await;
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

impl State {
    /// Java adds one lease to the other.
    fn forget_the_lease_of_a_reentrant_writer(&mut self) {
        for key in self.keys.values_mut() {
            if matches!(&key.content[..], [_, _, mode, _, holds] if mode == "write" && holds != "1") {
                key.time_to_live = 0;
            }
        }
    }
}

/// When a reader's lock is forced, the keys of its holds stay.
fn delete_what_java_leaves(scene: &Scene) {
    for key in scene.server.run::<Vec<String>>(&["KEYS", &format!("*{HOLDS}*")]) {
        scene.server.run::<()>(&["DEL", &key]);
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
/// and the places of fair locks. The keys of readers' holds count as one, which lasts as long as any. Where tokens are
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
