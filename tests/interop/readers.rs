//! Read-write locks: readers of both languages together, and a writer that downgrades to a reader.

use lockkeeper::{BaseLock, Error, Lock, LockClient, LockConfig, LockGuard, ReadLock, WriteLock};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::java::{Actor, IN_VAIN};
use crate::roles::{HAND_OFF, LEASE};
use crate::support::{LIMIT, MS, SECOND, Scene, eventually, fixed, renewing, throughout, timed};
use crate::{Java, Stage, write};

fn reading(locks: &LockClient) -> ReadLock<'static> {
    locks.read_write_lock("a").into_read()
}

fn writing(locks: &LockClient) -> WriteLock<'static> {
    locks.read_write_lock("a").into_write()
}

/// Counts the readers in the hash. Checks that each has a key for each of its holds, or only the first, and that there
/// are no other keys.
fn readers(scene: &Scene) -> usize {
    let fields: Vec<(String, String)> = scene.server.run(&["HGETALL", "a"]);
    let readers = fields.iter().filter(|(field, _)| field != "mode" && !field.ends_with(":write"));
    let mut found: Vec<String> = scene.server.run(&["KEYS", "*:rwlock_timeout:*"]);
    for (reader, holds) in readers.clone() {
        let holds: u32 = holds.parse().unwrap();
        let its = |found: &String| (1..=holds).any(|hold| *found == key(reader, hold));
        assert!(found.contains(&key(reader, 1)), "{reader}: {found:?}");
        let keys = found.extract_if(.., |found| its(found)).count();
        assert!(keys == 1 || keys == holds as usize, "{reader}: {keys} keys");
    }
    assert!(found.is_empty(), "{found:?}");
    readers.count()
}

fn key(reader: &str, hold: u32) -> String {
    format!("{{a}}:{reader}:rwlock_timeout:{hold}")
}

/// The remaining lease in milliseconds; -2 if the lock is free.
fn left(scene: &Scene) -> i64 {
    scene.server.run(&["PTTL", "a"])
}

fn published(scene: &Scene) -> u64 {
    scene.server.calls("publish")
}

async fn no_writer_gets_in(locks: &LockClient, java: &Java, when: &str) {
    assert!(writing(locks).try_lock().await.unwrap().is_none(), "Rust: {when}");
    assert!(!java.actor("intruder", "write").try_lock("a").await.unwrap(), "Java: {when}");
}

async fn nobody_listens(scene: &Scene) {
    eventually("no subscription is left", || scene.server.channels(), Vec::is_empty).await;
}

/// Starts a Rust waiter, which releases what it acquires.
async fn rust_waits(scene: &Scene, mut lock: Lock<'static, impl BaseLock>) -> JoinHandle<()> {
    crate::waiting::<write::Row, _>(&scene.server, async move {
        lock.lock().await.unwrap().unlock().await.unwrap();
    })
    .await
}

async fn java_waits(scene: &Scene, actor: &Actor) -> JoinHandle<()> {
    let waiter = actor.clone();
    let lock = async move {
        waiter.lock("a").await.unwrap();
        waiter.unlock("a").await.unwrap();
    };
    crate::java_waiting(&scene.server, actor, lock).await
}

async fn gets_in(waiters: impl IntoIterator<Item = JoinHandle<()>>) {
    let start = Instant::now();
    for waiter in waiters {
        timeout(HAND_OFF, waiter).await.expect("a message wakes the waiter").unwrap();
    }
    println!("acquired and released after {:?}", start.elapsed());
}

/// One reader of each language.
struct Both {
    ours: Option<LockGuard>,
    theirs: Actor,
}

impl Both {
    async fn enter(stage: &Stage) -> Self {
        let theirs = stage.java.actor("reader", "read");
        theirs.lock("a").await.unwrap();
        let ours = Some(reading(&stage.locks).lock().await.unwrap());
        assert_eq!(readers(&stage.scene), 2);
        Self { ours, theirs }
    }

    async fn leave(&mut self, is_java: bool) {
        match is_java {
            true => self.theirs.unlock("a").await.unwrap(),
            false => self.ours.take().unwrap().unlock().await.unwrap(),
        }
    }
}

/// Guarantees 1 and 8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_of_each_side_waits_for_readers_of_both() {
    let stage = Stage::start().await;
    for (java_writes, java_first) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut both = Both::enter(&stage).await;
        let waiter = match java_writes {
            true => java_waits(&stage.scene, &stage.java.actor("writer", "write")).await,
            false => rust_waits(&stage.scene, writing(&stage.locks)).await,
        };
        both.leave(java_first).await;
        no_writer_gets_in(&stage.locks, &stage.java, "one reader is left").await;
        assert!(!waiter.is_finished());
        assert!(left(&stage.scene) > 20_000, "the lease must be longer than a hand-off");
        both.leave(!java_first).await;
        gets_in([waiter]).await;
        nobody_listens(&stage.scene).await;
    }
    stage.end().await;
}

/// Java does not know the intent of a writer in Rust, and its writers set none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_in_rust_stops_readers_in_rust_and_not_in_java() {
    let stage = Stage::with_watchdogs(30 * SECOND, LockConfig::builder().writer_turn(60 * SECOND)).await;
    let intents = || stage.scene.server.run::<usize>(&["EXISTS", "{a}:lockkeeper_intent"]);
    let other = stage.java.actor("other", "read");
    for java_writes in [true, false] {
        let mut both = Both::enter(&stage).await;
        let waiter = match java_writes {
            true => java_waits(&stage.scene, &stage.java.actor("writer", "write")).await,
            false => rust_waits(&stage.scene, writing(&stage.locks)).await,
        };
        if !java_writes {
            eventually("the writer sets an intent", intents, |&count| count == 1).await;
        }
        let ours = reading(&stage.locks).try_lock().await.unwrap();
        assert_eq!((ours.is_some(), intents()), (java_writes, usize::from(!java_writes)));
        assert!(other.try_lock("a").await.unwrap());
        both.leave(true).await;
        both.leave(false).await;
        assert!(!waiter.is_finished());
        if let Some(ours) = ours {
            ours.unlock().await.unwrap();
        }
        other.unlock("a").await.unwrap();
        gets_in([waiter]).await;
        assert_eq!(intents(), 0);
        nobody_listens(&stage.scene).await;
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_wants_to_write_is_refused_by_rust_and_waits_for_itself_in_java() {
    let stage = Stage::start().await;
    let mut lock = stage.locks.read_write_lock("a");
    let guard = lock.read().lock().await.unwrap();
    assert!(matches!(lock.write().lock().await, Err(Error::UpgradeWouldDeadlock { .. })));
    guard.unlock().await.unwrap();

    let (reader, writer) = (stage.java.actor("one", "read"), stage.java.actor("one", "write"));
    reader.lock("a").await.unwrap();
    assert!(!writer.try_lock_within("a", IN_VAIN).await.unwrap());
    reader.unlock("a").await.unwrap();
    drop(lock);
    stage.end().await;
}

/// Guarantee 8. A writer keeps its read hold and releases the write hold. All waiting readers of both languages
/// acquire at once, and waiting writers do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_both_sides_acquire_when_rust_downgrades() {
    let stage = Stage::start().await;
    let mut lock = stage.locks.read_write_lock("a");
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    let mut waiters = vec![rust_waits(&stage.scene, self::reading(&stage.locks)).await];
    for number in 0..4 {
        let reader = stage.java.actor(&format!("reader{number}"), "read");
        waiters.push(java_waits(&stage.scene, &reader).await);
    }
    let writer = java_waits(&stage.scene, &stage.java.actor("writer", "write")).await;
    writing.unlock().await.unwrap();
    gets_in(waiters).await;
    no_writer_gets_in(&stage.locks, &stage.java, "the writer still reads").await;
    assert!(!writer.is_finished());
    reading.unlock().await.unwrap();
    gets_in([writer]).await;
    drop(lock);
    stage.end().await;
}

/// Guarantee 10. Java publishes nothing when a writer keeps its read hold. A safety poll finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_in_rust_acquire_by_polling_when_java_downgrades() {
    let stage = Stage::start().await;
    let (writer, reader) = (stage.java.actor("one", "write"), stage.java.actor("one", "read"));
    writer.lock("a").await.unwrap();
    reader.lock("a").await.unwrap();
    let mut waiters = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        // Each in a client of its own: a waiter that joins a queue does not attempt.
        let locks = stage.scene.client_with(LockConfig::builder().safety_poll(SECOND)).await;
        waiters.push(rust_waits(&stage.scene, reading(&locks)).await);
        clients.push(locks);
    }
    writer.unlock("a").await.unwrap();
    assert!(left(&stage.scene) > 20_000, "a Java waiter would sleep until the lease ends");
    assert_eq!(published(&stage.scene), 0);
    let ((), took) = timed(async {
        for waiter in waiters {
            waiter.await.unwrap();
        }
    })
    .await;
    println!("all readers acquired after {took:?}");
    assert!(took < SECOND + HAND_OFF, "{took:?}");
    no_writer_gets_in(&stage.locks, &stage.java, "the writer still reads").await;
    reader.unlock("a").await.unwrap();
    drop(clients);
    stage.end().await;
}

/// Guarantee 8. A reader of a killed JVM counts until its own lease ends, and not for as long as others read. Java
/// does not check when that lease ends. Rust readers do, and notify the waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_do_not_wait_for_a_dead_java_reader_among_rust_readers() {
    let stage = Stage::with_watchdogs(30 * SECOND, LockConfig::builder().watchdog_lease(LEASE)).await;
    for java_writes in [true, false] {
        let dying = Java::with(&stage.scene, &[&format!("watchdog={}", LEASE.as_millis())]).await;
        let dead = dying.actor("dead", "read");
        dead.lock("a").await.unwrap();
        let dead = key(&dead.who().await, 1);
        let long = renewing(30 * SECOND);
        let mut last = reading(&stage.locks).with(&long).lock().await.unwrap();
        let waiter = match java_writes {
            true => java_waits(&stage.scene, &stage.java.actor("writer", "write")).await,
            false => rust_waits(&stage.scene, writing(&stage.locks)).await,
        };
        dying.kill().await;
        let start = Instant::now();
        while stage.scene.server.run::<bool>(&["EXISTS", &dead]) {
            let next = reading(&stage.locks).with(&long).lock().await.unwrap();
            last.unlock().await.unwrap();
            last = next;
            assert!(start.elapsed() < LIMIT, "the lease of the dead reader must end");
            sleep(20 * MS).await;
        }
        no_writer_gets_in(&stage.locks, &stage.java, "one reader is left").await;
        assert!(
            !waiter.is_finished() && left(&stage.scene) > 20_000,
            "the lease must be longer than a hand-off"
        );
        last.unlock().await.unwrap();
        gets_in([waiter]).await;
        nobody_listens(&stage.scene).await;
    }
    stage.end().await;
}

/// Guarantee 7. Java's watchdog sets the lease of the lock to its own, even if another reader has a longer one. Then
/// the JVM is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_java_watchdog_does_not_end_the_lock_of_a_reader_in_rust() {
    // Before 4.4.0 Java's watchdog also set the leases of all other readers to its own.
    let stage = Stage::with_watchdogs(30 * SECOND, LockConfig::builder().watchdog_lease(LEASE)).await;
    for lease in [None, Some(60 * SECOND)] {
        let dying = Java::with(&stage.scene, &[&format!("watchdog={}", LEASE.as_millis())]).await;
        let guard = match lease {
            Some(lease) => reading(&stage.locks).with(&fixed(lease)).lock().await.unwrap(),
            None => reading(&stage.locks).with(&renewing(30 * SECOND)).lock().await.unwrap(),
        };
        let dead = dying.actor("dead", "read");
        dead.lock("a").await.unwrap();
        let dead = key(&dead.who().await, 1);
        let leased = i64::try_from(LEASE.as_millis()).unwrap();
        for _ in 0..2 {
            eventually("Java shortens the lease", || left(&stage.scene), |&left| left <= leased).await;
            eventually("Rust raises the lease", || left(&stage.scene), |&left| left > leased).await;
        }
        eventually("Java shortens the lease", || left(&stage.scene), |&left| left <= leased).await;
        dying.kill().await;
        throughout(LEASE * 3 / 2, async || {
            no_writer_gets_in(&stage.locks, &stage.java, "one reads").await;
            assert!(!guard.is_lost());
        })
        .await;
        assert!(!stage.scene.server.run::<bool>(&["EXISTS", &dead]));
        guard.unlock().await.expect("the hold was never lost");
        assert_eq!((readers(&stage.scene), left(&stage.scene)), (0, -2));
    }
    stage.end().await;
}

/// Guarantee 1. A reader in Rust that re-entered has one key. Java's loops over the holds of all readers pass over the others: its
/// unlock, its forced release and its watchdog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_reads_beside_a_rust_reader_that_re_entered() {
    let stage = Stage::with_watchdogs(LEASE, LockConfig::builder().watchdog_lease(30 * SECOND)).await;
    let mut owner = stage.locks.owner();
    let mut guards = Vec::new();
    for count in 1..=3 {
        guards.push(owner.read_write_lock("a").with(&fixed(60 * SECOND)).into_read().lock().await.unwrap());
        assert_eq!(stage.locks.inspect("a").await.unwrap().unwrap().holders[0].holds, count);
    }
    let theirs = stage.java.actor("reader", "read");
    theirs.lock("a").await.unwrap();
    theirs.lock("a").await.unwrap();
    assert_eq!(readers(&stage.scene), 2);
    throughout(LEASE, async || assert_eq!(readers(&stage.scene), 2)).await;
    no_writer_gets_in(&stage.locks, &stage.java, "both read").await;
    theirs.unlock("a").await.unwrap();
    theirs.unlock("a").await.unwrap();
    assert_eq!(readers(&stage.scene), 1);
    assert!(left(&stage.scene) > 30_000, "Java's unlock leaves the longest lease: {}", left(&stage.scene));
    no_writer_gets_in(&stage.locks, &stage.java, "one reader is left").await;
    for count in [2, 1] {
        guards.pop().unwrap().unlock().await.unwrap();
        assert_eq!(stage.locks.inspect("a").await.unwrap().unwrap().holders[0].holds, count);
    }
    assert!(theirs.force_unlock("a").await.unwrap());
    assert!(guards.pop().unwrap().unlock().await.is_err());
    drop(owner);
    stage.end().await;
}
