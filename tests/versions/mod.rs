//! Two versions on one server, as during a rolling deployment. One side is this library. The other side is a client of an earlier
//! version: its frozen scripts, called as that version calls them. `docs/internals/releasing.md` says when a version is frozen.

use std::path::Path;
use std::sync::LazyLock;

use lockkeeper::LockClient;
use lockkeeper_testkit::Commands;
use redis::{Connection, PubSub, Value};

use crate::support::fixture::{FairLocks, FencedLocks, Fixture, RLocks, ReadLocks, WriteLocks};
use crate::support::{
    LIMIT, SECOND, Scene, eventually, listens, patient, renewed, soon, waiter, woken_by_message,
};

/// The scripts of version 0.1.0 by which clients acquire, keep and release locks, as a server gets them, without comments.
static FROZEN: LazyLock<String> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/versions/0.1.0.lua");
    std::fs::read_to_string(file).expect("the frozen scripts")
});

/// The replies of these scripts.
const NO_KNOWN_END: i64 = -1;
const QUEUED: i64 = -4;
const LOST: i64 = -8;
const LOWERED: i64 = -9;
const RENEWED: i64 = -12;
const PLACE_KEPT: i64 = -13;
const FIRST_AND_FREE: i64 = -14;

/// The keys of the lock `a`, in the order in which version 0.1.0 passes them.
const LOCK: &str = "a";
const FENCED: &str = "a redisson_lock_token:{a}";
const FAIR: &str = "a redisson_lock_queue:{a} redisson_lock_timeout:{a} lockkeeper_fair:{a} lockkeeper_fair_tickets:{a} \
                    redisson_lock__channel:{a}";
const READ_WRITE: &str = "a redisson_rwlock:{a}";
const SEMAPHORE: &str = "a {a}:timeout";

const LOCK_CHANNEL: &str = "redisson_lock__channel:{a}";
const READ_WRITE_CHANNEL: &str = "redisson_rwlock:{a}";
const SEMAPHORE_CHANNEL: &str = "redisson_sc:{a}";

/// The defaults of version 0.1.0, in ms.
const LEASE: &str = "30000";
const ALLOWANCE: &str = "6000";
const TURN: &str = "1000";
const JAVA_WAIT: &str = "300000";
const SLACK: &str = "500";

/// Runs a frozen script.
fn call(server: &Commands, file: &str, keys: &str, args: &[&str]) -> Value {
    let (_, text) = FROZEN.split_once(&format!("=== {file}\n")).expect("it is frozen");
    let text = text.split("=== ").next().expect("a text");
    let keys: Vec<&str> = keys.split_whitespace().collect();
    let count = keys.len().to_string();
    let words = [&["EVAL", text, &count], &keys[..], args].concat();
    server.try_run(&words).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[derive(Clone, Copy)]
enum Kind {
    RLock,
    Fair,
    Fenced,
    Read,
    Write,
}

/// An owner in a client of version 0.1.0.
struct Old<'a> {
    server: &'a Commands,
    kind: Kind,
    field: String,
    /// The number of a grant to a reader.
    grant: String,
}

impl<'a> Old<'a> {
    fn new(scene: &'a Scene, kind: Kind, number: u32) -> Self {
        let suffix = if matches!(kind, Kind::Write) { ":write" } else { "" };
        let field = format!("6ba7b810-9dad-41d1-80b4-00c04fd430c8:{number}{suffix}");
        Self { server: &scene.server, kind, field, grant: number.to_string() }
    }

    fn call(&self, file: &str, keys: &str, args: &[&str]) -> Value {
        call(self.server, file, keys, args)
    }

    /// `waits`: if it is refused, it queues, or keeps readers out.
    fn acquire(&self, waits: bool) -> Value {
        let (who, waiting) = (&*self.field, |text| if waits { text } else { "0" });
        match self.kind {
            Kind::RLock => self.call("rlock/acquire.lua", LOCK, &[who, LEASE]),
            Kind::Fair => self.call("fair/acquire.lua", FAIR, &[who, LEASE, waiting(ALLOWANCE), JAVA_WAIT]),
            Kind::Fenced => self.call("fenced/acquire.lua", FENCED, &[who, LEASE]),
            Kind::Read => self.call("read/acquire.lua", READ_WRITE, &[who, &self.grant, LEASE]),
            Kind::Write => self.call("write/acquire.lua", READ_WRITE, &[who, LEASE, waiting(TURN)]),
        }
    }

    fn reenter(&self, want: &str) -> Value {
        match self.kind {
            Kind::Read => self.call("read/reenter.lua", READ_WRITE, &[&self.field, &self.grant, want, LEASE]),
            _ => self.call("rlock/reenter.lua", LOCK, &[&self.field, want, LEASE]),
        }
    }

    fn renew(&self) -> Value {
        match self.kind {
            Kind::Read => self.call("read/renew.lua", READ_WRITE, &[LEASE, &self.field, &self.grant, LEASE]),
            _ => self.call("rlock/renew.lua", LOCK, &[LEASE, &self.field]),
        }
    }

    fn release(&self, keep: &str) -> Value {
        match self.kind {
            Kind::RLock | Kind::Fenced => {
                self.call("rlock/release.lua", LOCK, &[&self.field, keep, LOCK_CHANNEL])
            }
            Kind::Fair => self.call("fair/release.lua", FAIR, &[&self.field, keep, JAVA_WAIT]),
            Kind::Read => self.call("read/release.lua", READ_WRITE, &[&self.field, &self.grant, keep, LEASE]),
            Kind::Write => self.call("write/release.lua", READ_WRITE, &[&self.field, keep]),
        }
    }

    /// Keeps its place in the queue of a fair lock.
    fn heartbeat(&self) -> Value {
        self.call("fair/heartbeat.lua", FAIR, &[ALLOWANCE, JAVA_WAIT, &self.field])
    }

    /// Where it waits for a message.
    fn channel(&self) -> String {
        match self.kind {
            Kind::RLock | Kind::Fenced => LOCK_CHANNEL.to_owned(),
            Kind::Fair => format!("{LOCK_CHANNEL}:{}", self.field),
            Kind::Read | Kind::Write => READ_WRITE_CHANNEL.to_owned(),
        }
    }
}

/// The reply of a fenced lock is a token.
fn is_granted(reply: &Value) -> bool {
    matches!(reply, Value::Nil | Value::BulkString(_))
}

fn is_refused(reply: &Value) -> bool {
    matches!(reply, Value::Int(NO_KNOWN_END.. | QUEUED))
}

#[track_caller]
fn granted(reply: Value) {
    assert!(is_granted(&reply), "{reply:?}");
}

#[track_caller]
fn refused(reply: Value) {
    assert!(is_refused(&reply), "{reply:?}");
}

/// The reply of a batch with one row.
fn row(number: i64) -> Value {
    Value::Array(vec![Value::Int(number)])
}

fn listen<'a>(connection: &'a mut Connection, channel: &str) -> PubSub<'a> {
    let mut messages = connection.as_pubsub();
    messages.set_read_timeout(Some(LIMIT)).unwrap();
    messages.subscribe(channel).unwrap();
    messages
}

/// A client that no poll wakes while a test runs.
async fn client(scene: &Scene) -> LockClient {
    let config = patient().watchdog_lease(3 * SECOND).safety_poll(3_600 * SECOND).fair_allowance(60 * SECOND);
    scene.client_with(config).await
}

/// Waits until a call was refused, subscribed, and was refused again. `before`: the scripts that had run before it.
async fn waits_for_a_message(scene: &Scene, before: u64) {
    listens(&scene.server).await;
    eventually("it asks again", || scene.server.scripts(), |&scripts| scripts >= before + 2).await;
}

/// Each side is refused while the other one holds the lock, and is woken by its release. Each keeps its own hold.
async fn both_versions_exclude_and_wake_each_other<F: Fixture>(kind: Kind) {
    let scene = Scene::start();
    let locks = client(&scene).await;
    let old = Old::new(&scene, kind, 1);
    granted(old.acquire(true));
    let before = scene.server.scripts();
    let waiting = waiter(F::lock(&locks, LOCK));
    waits_for_a_message(&scene, before).await;
    granted(old.reenter("2"));
    assert_eq!(old.renew(), row(RENEWED));
    assert_eq!(old.release("1"), Value::Int(LOWERED));
    assert!(!waiting.is_finished());
    assert!(matches!(old.release("0"), Value::Int(0..)));
    let guard = woken_by_message(waiting).await;
    assert_eq!((old.renew(), old.release("0")), (row(LOST), Value::Int(LOST)), "it holds nothing any more");

    let next = Old::new(&scene, kind, 2);
    let mut connection = scene.server.connect().unwrap();
    let mut messages = listen(&mut connection, &next.channel());
    refused(next.acquire(true));
    renewed(&guard).await;
    refused(next.acquire(true));
    guard.unlock().await.unwrap();
    messages.get_message().expect("the release wakes it");
    granted(next.acquire(true));
    assert!(F::lock(&locks, LOCK).try_lock().await.unwrap().is_none());
    assert!(matches!(next.release("0"), Value::Int(0..)));
    drop(messages);
    drop((connection, locks));
    scene.server.run::<()>(&["DEL", "redisson_lock_token:{a}"]);
    scene.end().await;
}

macro_rules! pairs {
    ($($name:ident: $fixture:ident beside $kind:ident;)*) => { $(
        #[tokio::test]
        async fn $name() {
            both_versions_exclude_and_wake_each_other::<$fixture>(Kind::$kind).await;
        }
    )* };
}

pairs! {
    rlocks_exclude_and_wake_each_other: RLocks beside RLock;
    fair_locks_exclude_and_wake_each_other: FairLocks beside Fair;
    fenced_locks_exclude_and_wake_each_other: FencedLocks beside Fenced;
    writers_exclude_and_wake_each_other: WriteLocks beside Write;
    an_old_writer_and_a_reader_exclude_and_wake_each_other: ReadLocks beside Write;
    an_old_reader_and_a_writer_exclude_and_wake_each_other: WriteLocks beside Read;
}

#[tokio::test]
async fn each_release_of_a_reader_leaves_the_readers_of_the_other_version() {
    let scene = Scene::start();
    let locks = client(&scene).await;
    let (reader, writer) = (Old::new(&scene, Kind::Read, 1), Old::new(&scene, Kind::Write, 2));
    let first = locks.read_write_lock(LOCK).into_read().lock().await.unwrap();
    granted(reader.acquire(false));
    first.unlock().await.unwrap();
    refused(writer.acquire(false));
    assert!(locks.read_write_lock(LOCK).write().try_lock().await.unwrap().is_none());
    let second = locks.read_write_lock(LOCK).into_read().lock().await.unwrap();
    assert!(matches!(reader.release("0"), Value::Int(0..)));
    refused(writer.acquire(false));
    second.unlock().await.unwrap();
    granted(writer.acquire(false));
    assert!(matches!(writer.release("0"), Value::Int(0..)));
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn a_waiting_writer_of_one_version_keeps_out_the_readers_of_the_other() {
    let scene = Scene::start();
    let (locks, beside) = (client(&scene).await, client(&scene).await);
    let (mut reader, old_writer) =
        (locks.read_write_lock(LOCK).into_read(), Old::new(&scene, Kind::Write, 1));
    let reading = reader.lock().await.unwrap();
    refused(old_writer.acquire(true));
    assert!(beside.read_write_lock(LOCK).read().try_lock().await.unwrap().is_none());
    assert_eq!(old_writer.release("0"), Value::Int(LOST), "it gives up");
    beside
        .read_write_lock(LOCK)
        .read()
        .try_lock()
        .await
        .unwrap()
        .expect("no writer waits")
        .unlock()
        .await
        .unwrap();
    reading.unlock().await.unwrap();

    let old_reader = Old::new(&scene, Kind::Read, 2);
    granted(old_reader.acquire(false));
    let waiting = waiter(locks.read_write_lock(LOCK).into_write());
    let mut number = 2;
    let mut read = || {
        number += 1;
        let late = Old::new(&scene, Kind::Read, number);
        let reply = late.acquire(false);
        if is_granted(&reply) {
            late.release("0");
        }
        reply
    };
    eventually("it is kept out", &mut read, is_refused).await;
    assert!(matches!(old_reader.release("0"), Value::Int(0..)));
    woken_by_message(waiting).await.unlock().await.unwrap();
    granted(read());
    drop((reader, locks, beside));
    scene.end().await;
}

#[tokio::test]
async fn waiters_of_both_versions_stand_in_one_queue() {
    let scene = Scene::start();
    let (locks, beside) = (client(&scene).await, client(&scene).await);
    let holding = locks.fair_lock(LOCK).lock().await.unwrap();
    let (first, third) = (Old::new(&scene, Kind::Fair, 1), Old::new(&scene, Kind::Fair, 3));
    assert_eq!(first.acquire(true), Value::Int(QUEUED));
    let second = waiter(beside.fair_lock(LOCK));
    let length = || scene.server.run::<u32>(&["LLEN", "redisson_lock_queue:{a}"]);
    eventually("it queues", length, |&length| length == 2).await;
    assert_eq!(third.acquire(true), Value::Int(QUEUED));
    assert_eq!(first.heartbeat(), row(PLACE_KEPT));
    holding.unlock().await.unwrap();
    refused(third.acquire(true));
    assert_eq!(first.heartbeat(), row(FIRST_AND_FREE));
    granted(first.acquire(true));
    assert!(!second.is_finished());
    assert_eq!(first.release("0"), Value::Int(0));
    let guard = woken_by_message(second).await;
    refused(third.acquire(true));
    guard.unlock().await.unwrap();
    assert_eq!(third.heartbeat(), row(FIRST_AND_FREE));
    granted(third.acquire(true));
    assert_eq!(third.release("0"), Value::Int(0));
    drop((locks, beside));
    scene.end().await;
}

#[tokio::test]
async fn tokens_grow_from_one_version_to_the_other() {
    let scene = Scene::start();
    let locks = client(&scene).await;
    // Ahead of the server's clock, so that only the counter decides.
    scene.server.run::<()>(&["SET", "redisson_lock_token:{a}", "9000000000000000"]);
    let mut tokens: Vec<u64> = Vec::new();
    for number in 1..=3 {
        let guard = locks.fenced_lock(LOCK).lock().await.unwrap();
        tokens.push(guard.token().get());
        guard.unlock().await.unwrap();
        let old = Old::new(&scene, Kind::Fenced, number);
        tokens.push(redis::from_redis_value(old.acquire(false)).unwrap());
        assert!(matches!(old.release("0"), Value::Int(0..)));
    }
    let expected: Vec<u64> = (9_000_000_000_000_001..=9_000_000_000_000_006).collect();
    assert_eq!(tokens, expected);
    drop(locks);
    scene.server.run::<()>(&["DEL", "redisson_lock_token:{a}"]);
    scene.end().await;
}

#[tokio::test]
async fn permits_are_shared_by_both_versions() {
    let scene = Scene::start();
    let locks = client(&scene).await;
    let semaphore = locks.semaphore(LOCK, 2);
    // The id of a permit has 16 bytes.
    let acquire = |id| {
        call(&scene.server, "semaphore/acquire.lua", SEMAPHORE, &[id, "2", LEASE, SLACK, SEMAPHORE_CHANNEL])
    };
    let release = |id| call(&scene.server, "semaphore/release.lua", SEMAPHORE, &[id, SEMAPHORE_CHANNEL]);
    let (first, second) = ("the first permit", "the second, 16 b");
    let permit = semaphore.acquire().await.unwrap();
    assert_eq!(acquire(first), Value::Array(vec![Value::Int(0), Value::Int(2)]));
    refused(acquire(second));
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let before = scene.server.scripts();
    let waiting = tokio::spawn(async move { semaphore.acquire().await.unwrap() });
    waits_for_a_message(&scene, before).await;
    let renewal = call(&scene.server, "semaphore/renew.lua", "{a}:timeout", &[LEASE, first, SLACK]);
    assert_eq!(renewal, row(RENEWED));
    release(first);
    let next = soon(waiting).await.unwrap();
    refused(acquire(second));
    let mut connection = scene.server.connect().unwrap();
    let mut messages = listen(&mut connection, SEMAPHORE_CHANNEL);
    permit.unlock().await.unwrap();
    messages.get_message().expect("the release wakes it");
    assert_eq!(acquire(second), Value::Array(vec![Value::Int(0), Value::Int(2)]));
    release(second);
    next.unlock().await.unwrap();
    assert_eq!(locks.semaphore(LOCK, 2).available_permits().await.unwrap(), 2);
    locks.semaphore(LOCK, 2).delete().await.unwrap();
    drop(messages);
    drop((connection, locks));
    scene.end().await;
}
