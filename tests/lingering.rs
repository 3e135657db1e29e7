//! Read locks that their client keeps for a short time after the last reader has left (the option `linger`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::{MS, Readers, SECOND, Scene, eventually, lingering, lua, soon, timed};
use lockkeeper::{Error, LockClient, Member, ReadLock, WriteLock};
use tokio::time::sleep;

fn reader(locks: &LockClient, linger: Duration) -> ReadLock<'static> {
    locks.read_write_lock("a").into_read().with(&lingering(linger))
}

fn writer(locks: &LockClient) -> WriteLock<'static> {
    locks.read_write_lock("a").into_write()
}

async fn reads(locks: &LockClient, linger: Duration) {
    reader(locks, linger).lock().await.unwrap().unlock().await.unwrap();
}

fn is_held(scene: &Scene) -> bool {
    scene.server.run::<i64>(&["EXISTS", "a"]) == 1
}

/// The reads between two confirmations send nothing. A hold that nobody joined is released when its time is over.
#[tokio::test]
async fn a_read_that_comes_meanwhile_sends_no_command() {
    let (scene, locks) = Scene::with_client().await;
    let linger = SECOND / 2;
    let before = scene.server.calls("evalsha");
    let start = Instant::now();
    // An acquire, a confirmation each time, and a release.
    let is_few = |more: u128| {
        let times = start.elapsed().as_millis() / linger.as_millis();
        u128::from(scene.server.calls("evalsha") - before) <= 1 + times + more
    };
    reads(&locks, linger).await;
    assert!(is_few(0) && is_held(&scene));
    let owner = reader(&locks, linger).lock().await.unwrap().owner_id();
    for _ in 0..100 {
        let guard = reader(&locks, linger).lock().await.unwrap();
        assert_eq!(guard.owner_id(), owner);
        drop(guard);
    }
    assert!(is_few(0));
    eventually("it is free", || is_held(&scene), |held| !held).await;
    // The release can need a second command.
    assert!(start.elapsed() > linger && is_few(2), "{:?}", start.elapsed());
    scene.end(locks).await;
}

/// A hold is confirmed only if somebody joined since the last answer.
#[tokio::test]
async fn one_long_reader_is_not_confirmed() {
    let (scene, locks) = Scene::with_client().await;
    let guard = reader(&locks, 20 * MS).lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    sleep(200 * MS).await; // ten times the time: what is not sent cannot be waited for
    assert_eq!(scene.server.calls("evalsha"), before);
    guard.unlock().await.unwrap();
    assert!(!is_held(&scene), "nobody could join it, so it does not linger");
    scene.end(locks).await;
}

/// A hold that lingers for readers is none for a writer of the same client.
#[tokio::test]
async fn a_writer_of_the_same_client_does_not_wait_for_an_idle_hold() {
    let (scene, locks) = Scene::with_client().await;
    for _ in 0..3 {
        reads(&locks, SECOND).await;
        assert!(is_held(&scene));
        writer(&locks).try_lock().await.unwrap().expect("nobody reads").unlock().await.unwrap();
        reads(&locks, SECOND).await;
        let (guard, took) = timed(writer(&locks).lock()).await;
        assert!(took < SECOND / 2, "{took:?}");
        guard.unwrap().unlock().await.unwrap();
    }
    // Also if it is a member of a lock that needs all.
    reads(&locks, SECOND).await;
    let members: [Member; 2] = [writer(&locks).into(), locks.rlock("b").into()];
    let mut both = lockkeeper::MultiLock::new(members).unwrap();
    both.try_lock().await.unwrap().expect("nobody reads").unlock().await.unwrap();
    scene.end((both, locks)).await;
}

/// A writer of another client is seen at the next confirmation, whether its sections overlap or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_of_another_client_comes_in() {
    let scene = Scene::start();
    let (one, two, other) = (scene.client().await, scene.client().await, scene.client().await);
    let readers = [&one, &two].map(|locks| Readers::start(locks, 50 * MS, 8, 5 * MS));
    for _ in 0..10 {
        let guard = soon(writer(&other).lock()).await.unwrap();
        guard.unlock().await.unwrap();
    }
    for readers in readers {
        assert!(readers.end().await > 0);
    }
    scene.end((one, two, other)).await;
}

/// Two readers asked at the same time, so each has a hold of its own. Nobody joins the older one.
#[tokio::test]
async fn an_older_hold_does_not_linger_beside_a_newer_one() {
    let (scene, locks) = Scene::with_client().await;
    let (mut one, mut two) = (reader(&locks, SECOND), reader(&locks, SECOND));
    let (first, second) = tokio::join!(one.try_lock(), two.try_lock());
    let guards = [first, second].map(|guard| guard.unwrap().expect("nobody writes"));
    assert_ne!(guards[0].owner_id(), guards[1].owner_id());
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    assert!(writer(&locks).try_lock().await.unwrap().is_some(), "nobody reads");
    scene.end((one, two, locks)).await;
}

/// Guarantee 19: nobody begins to read for longer than 1.25 times `linger` after the lock was deleted.
#[tokio::test]
async fn a_lock_that_was_deleted_is_noticed_at_the_next_confirmation() {
    let (scene, locks) = Scene::with_client().await;
    let linger = 200 * MS;
    reads(&locks, linger).await;
    scene.server.keys().iter().for_each(|key| scene.server.run::<()>(&["DEL", key]));
    let guard = reader(&locks, linger).lock().await.unwrap();
    let (ended, took) = timed(soon(guard.ended())).await;
    assert!(ended.is_err() && took < 2 * SECOND, "{took:?}");
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    let guard = reader(&locks, linger).lock().await.unwrap();
    assert!(is_held(&scene), "it was acquired anew");
    scene.end((guard, locks)).await;
}

/// A shutdown releases all of them, without their time.
#[tokio::test]
async fn a_shutdown_releases_what_lingers() {
    let (scene, locks) = Scene::with_client().await;
    for number in 0..1_000 {
        let lock = locks.read_write_lock(format!("a:{number}"));
        lock.into_read().with(&lingering(SECOND)).lock().await.unwrap().unlock().await.unwrap();
    }
    let (ended, took) = timed(locks.shutdown()).await;
    ended.unwrap();
    assert_eq!(scene.server.keys(), [""; 0]);
    assert!(took < SECOND, "{took:?}");
    scene.end(locks).await;
}

/// A user that may not ask who listens cannot know that nobody waits. So a hold does not last longer than its time.
#[tokio::test]
async fn a_client_that_may_not_ask_gives_the_lock_up_each_time() {
    let scene = Scene::start();
    scene.server.run::<()>(&["ACL", "SETUSER", "default", "-pubsub"]);
    let locks = scene.client().await;
    let (mut owners, start) = (BTreeSet::new(), Instant::now());
    // Before the first gap, which ends a hold whatever is known.
    while owners.len() <= 5 && start.elapsed() < SECOND * 4 / 5 {
        let guard = reader(&locks, 20 * MS).lock().await.unwrap();
        owners.insert(guard.owner_id());
        guard.unlock().await.unwrap();
        sleep(MS).await;
    }
    assert!(owners.len() > 5, "{owners:?}");
    drop(locks);
    scene.server.run::<()>(&["ACL", "SETUSER", "default", "+pubsub"]);
    scene.end(()).await;
}

/// Somebody whom the server does not see, such as a writer that only tries, comes in about once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_is_free_for_a_moment_in_each_second() {
    let scene = Scene::start();
    let (one, two, other) = (scene.client().await, scene.client().await, scene.client().await);
    let readers = [&one, &two].map(|locks| Readers::start(locks, 50 * MS, 4, 5 * MS));
    let mut lock = writer(&other);
    for _ in 0..2 {
        let entered = async {
            loop {
                if let Some(guard) = lock.try_lock().await.unwrap() {
                    return guard.unlock().await.unwrap();
                }
                sleep(MS).await;
            }
        };
        soon(entered).await;
    }
    for readers in readers {
        readers.end().await;
    }
    scene.end((lock, one, two, other)).await;
}

/// The reply of a script, and the milliseconds left of a key.
struct Scripts<'a>(&'a Scene);

impl Scripts<'_> {
    fn run(&self, file: &str, args: &[&str]) -> Option<i64> {
        let source = lua::source(file);
        let words = ["EVAL", &source, "2", "a", "redisson_rwlock:{a}"];
        self.0.server.run(&[&words, args, lua::in_time(file).as_slice()].concat())
    }

    fn acquire(&self, owner: &str) -> Option<i64> {
        self.run("read/acquire.lua", &[owner, "1", "5000"])
    }

    fn confirm(&self, is_gap: &str) -> Option<i64> {
        self.run("read/confirm.lua", &[ONE, "1", "20000", STOP, CALM, is_gap])
    }

    fn left(&self, key: &str) -> i64 {
        self.0.server.run(&["PTTL", key])
    }

    fn intent(&self) -> Option<String> {
        self.0.server.run(&["GET", INTENT])
    }
}

const ONE: &str = "8743c9c0-0795-8907-87fd-6c719a6b4586:1";
const TWO: &str = "8743c9c0-0795-8907-87fd-6c719a6b4586:2";
const INTENT: &str = "{a}:lockkeeper_intent";
/// Long, because the machine can stop between a script and the look at what it left.
const STOP: &str = "20000";
const CALM: &str = "60000";
const WANTED: Option<i64> = Some(-17);
const RENEWED: Option<i64> = Some(-12);
const LOST: Option<i64> = Some(-8);

/// What `read/confirm` replies and changes, and what the acquires do about it.
#[tokio::test]
async fn a_stop_on_behalf_of_somebody_ends_soon_after_the_lock_is_free() {
    let scene = Scene::start();
    let scripts = Scripts(&scene);
    assert_eq!(scripts.confirm("0"), LOST);
    assert_eq!(scripts.acquire(ONE), None);
    assert_eq!(scripts.confirm("0"), RENEWED);
    assert!(scripts.left("a") > 10_000 && scripts.left(&format!("{{a}}:{ONE}:rwlock_timeout:1")) > 10_000);
    assert_eq!(scripts.run("read/confirm.lua", &[ONE, "2", "20000", STOP, CALM, "1"]), LOST);
    scene.server.run::<()>(&["ACL", "SETUSER", "default", "-pubsub"]);
    assert_eq!((scripts.confirm("0"), scripts.intent()), (WANTED, None), "nobody knows");
    scene.server.run::<()>(&["ACL", "SETUSER", "default", "+pubsub"]);

    let client = redis::Client::open(scene.server.url()).unwrap();
    let mut messages = client.get_async_pubsub().await.unwrap();
    messages.subscribe("redisson_rwlock:{a}").await.unwrap();
    assert_eq!((scripts.confirm("0"), scripts.intent().as_deref()), (WANTED, Some("60000 somebody")));
    assert!((60_000..=80_000).contains(&scripts.left(INTENT)));
    assert!(scripts.acquire(TWO) > Some(10), "new readers are stopped");
    scripts.run("read/release.lua", &[ONE, "1", "30000"]);
    let stopped = scripts.acquire(TWO);
    assert!((Some(1)..=Some(10)).contains(&stopped), "{stopped:?}");
    assert!(scripts.left(INTENT) <= 60_010);
    eventually("readers come in", || scripts.acquire(ONE), Option::is_none).await;

    // The calm: whoever listens is perhaps a reader that waited because of the stop.
    let left = scripts.left(INTENT);
    assert_eq!(scripts.confirm("0"), WANTED);
    assert_eq!(scripts.confirm("1"), WANTED);
    assert!(scripts.left(INTENT) <= left, "the stop is not made longer");
    drop(messages);
    eventually("nobody listens", || scene.server.channels(), Vec::is_empty).await;
    assert_eq!(scripts.confirm("0"), RENEWED);

    // A writer that has waited long enough has a turn of its own.
    assert!(scripts.run("write/acquire.lua", &[&format!("{TWO}:write"), "5000", "10000"]) > Some(0));
    assert_eq!(scripts.intent().as_deref(), Some(&*format!("90000 {TWO}:write")));
    assert!(scripts.run("write/acquire.lua", &[&format!("{ONE}:write"), "5000", "10000"]) > Some(0));
    assert_eq!(scripts.intent().as_deref(), Some(&*format!("90000 {TWO}:write")));
    assert_eq!(scripts.confirm("0"), WANTED, "its turn has begun");
    scene.server.keys().iter().for_each(|key| scene.server.run::<()>(&["DEL", key]));
    assert_eq!((scripts.acquire(ONE), scripts.confirm("1")), (None, WANTED));
    assert_eq!(scripts.intent().as_deref(), Some("60000 somebody"), "a gap");
    scene.server.keys().iter().for_each(|key| scene.server.run::<()>(&["DEL", key]));
    scene.end(()).await;
}

/// The hold began to linger after the writer's first attempt, and before it stood in the queue of its client.
#[tokio::test]
async fn a_writer_that_queues_ends_a_hold_that_lingers() {
    let (scene, locks, other) = Scene::with_two_clients().await;
    let foreign = other.read_write_lock("a").into_read().lock().await.unwrap();
    let mut lock = writer(&locks);
    let mut waits = tokio_test::task::spawn(lock.lock());
    assert!(waits.poll().is_pending());
    let reading = reader(&locks, SECOND).lock().await.unwrap();
    drop((foreign, reading));
    let (guard, took) = timed(soon(waits)).await;
    assert!(took < SECOND / 2, "{took:?}");
    guard.unwrap().unlock().await.unwrap();
    scene.end((lock, locks, other)).await;
}
