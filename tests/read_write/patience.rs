//! A writer that readers kept waiting stops new readers for a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::{LockClient, LockConfigBuilder};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::read_write::{can_read, can_write, reader, writer};
use crate::support::{LIMIT, MS, SECOND, Scene, eventually, lua, soon, throughout, timed};

const INTENT: &str = "{a}:lockkeeper_intent";

const DEAD: &str = "00000000-0000-0000-0000-000000000000:1:write";

/// The value of the intent.
fn intent(scene: &Scene) -> Option<String> {
    scene.server.run(&["GET", INTENT])
}

fn left(scene: &Scene) -> i64 {
    scene.server.run(&["PTTL", INTENT])
}

/// Sets the intent of a writer that is dead. The turn is a tenth of `ten_turns_ms`.
fn a_dead_writer_waits(scene: &Scene, ten_turns_ms: u64) {
    let (value, lasts) = (format!("{} {DEAD}", ten_turns_ms / 10 * 9), ten_turns_ms.to_string());
    scene.server.run::<()>(&["SET", INTENT, &value, "PX", &lasts]);
}

/// Waits until a writer of lockkeeper stops readers.
async fn stopped(scene: &Scene) {
    let is_living = |found: &Option<String>| found.as_ref().is_some_and(|value| !value.ends_with(DEAD));
    eventually("a writer stops readers", || intent(scene), is_living).await;
}

/// Each reader asks the server, also beside other readers of its client.
fn patient() -> LockConfigBuilder {
    crate::support::patient().sharing(Duration::ZERO)
}

/// Starts a reader. Returns when it was refused and waits.
async fn waits_to_read(scene: &Scene, locks: &LockClient) -> JoinHandle<Instant> {
    let (locks, before) = (locks.clone(), scene.server.channels().len());
    let waiting = tokio::spawn(async move {
        let guard = reader(&locks).lock().await.unwrap();
        let at = Instant::now();
        guard.unlock().await.unwrap();
        at
    });
    let channels = || scene.server.channels().len();
    eventually("the reader subscribes", channels, |&now| now > 0 && now >= before).await;
    // It attempts once more when it is subscribed, and then when something wakes it.
    sleep(50 * MS).await;
    assert!(!waiting.is_finished());
    waiting
}

/// Guarantee 8. Sixteen readers never pause, and their sections overlap.
#[tokio::test]
async fn continuous_readers_do_not_starve_a_writer() {
    const READERS: u32 = 16;
    let scene = Scene::start();
    let (readers, locks) = (scene.client_with(patient()).await, scene.client_with(patient()).await);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut reading = JoinSet::new();
    for number in 0..READERS {
        let (readers, is_over) = (readers.clone(), Arc::clone(&is_over));
        reading.spawn(async move {
            sleep(5 * MS * number).await;
            while !is_over.load(Ordering::SeqCst) {
                let guard = reader(&readers).lock().await.unwrap();
                sleep(80 * MS).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    let mut waited = Duration::ZERO;
    for _ in 0..5 {
        // A field for each reader, and the mode.
        let fields = || scene.server.run::<u32>(&["HLEN", "a"]);
        eventually("half of the readers read at once", fields, |&fields| fields > READERS / 2).await;
        let (guard, took) = timed(async { writer(&locks).lock().await.unwrap() }).await;
        assert_eq!(intent(&scene), None, "the grant ends the intent");
        waited += took;
        guard.unlock().await.unwrap();
    }
    println!("waited for {waited:?}");
    assert!(waited < LIMIT / 4, "{waited:?}");
    is_over.store(true, Ordering::SeqCst);
    soon(reading.join_all()).await;
    drop((readers, locks));
    scene.end().await;
}

/// Without a turn, nothing is different from Redisson.
#[tokio::test]
async fn a_writer_without_a_turn_never_stops_readers() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().writer_turn(Duration::ZERO).safety_poll(50 * MS)).await;
    let mut guard = reader(&locks).lock().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { writer(&locks).try_lock_for(500 * MS).await.unwrap().is_some() }
    });
    while !waiting.is_finished() {
        let next = reader(&locks).try_lock().await.unwrap().expect("nothing stops readers");
        guard.unlock().await.unwrap();
        guard = next;
        assert_eq!(intent(&scene), None);
        sleep(10 * MS).await;
    }
    assert!(!waiting.await.unwrap(), "readers overlapped all the time");
    guard.unlock().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// A try does not wait, so it stops nobody.
#[tokio::test]
async fn a_try_never_stops_readers() {
    let scene = Scene::start();
    let locks = scene.client_with(patient()).await;
    let guard = reader(&locks).lock().await.unwrap();
    throughout(100 * MS, async || {
        assert!(!can_write(&locks).await && can_read(&locks).await && intent(&scene).is_none());
    })
    .await;
    guard.unlock().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// Guarantee 8. A writer that dies stops readers for one turn. Its intent ends after ten turns, and until then no writer can stop
/// readers again.
#[tokio::test]
async fn readers_are_stopped_for_at_most_one_turn_in_ten() {
    let scene = Scene::start();
    let config = patient().writer_turn(60 * SECOND).safety_poll(100 * MS);
    let (ours, theirs) = (scene.client_with(patient()).await, scene.client_with(config).await);
    let guard = reader(&ours).lock().await.unwrap();
    a_dead_writer_waits(&scene, 4_000);
    let start = Instant::now();
    assert!(!can_read(&ours).await, "the turn has just begun");
    let (other, took) = timed(async { reader(&ours).lock().await.unwrap() }).await;
    assert!((300 * MS..LIMIT / 2).contains(&took), "{took:?}");
    other.unlock().await.unwrap();
    let waiting = tokio::spawn(async move {
        writer(&theirs).lock().await.unwrap().unlock().await.unwrap();
        drop(theirs);
    });
    while left(&scene) > 100 {
        assert!(intent(&scene).is_none_or(|value| value.ends_with(DEAD)), "a writer stopped readers again");
        assert!(can_read(&ours).await || left(&scene) < 100, "after {:?}", start.elapsed());
        sleep(10 * MS).await;
    }
    stopped(&scene).await;
    assert!(start.elapsed() > 3_500 * MS && !can_read(&ours).await);
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    assert!(can_read(&ours).await);
    drop(ours);
    scene.end().await;
}

/// Guarantee 8. The readers that a writer stopped need not wait for the end of the turn.
#[tokio::test]
async fn readers_continue_at_once_when_the_writer_gives_up() {
    let scene = Scene::start();
    let config = patient().writer_turn(60 * SECOND).safety_poll(60 * SECOND);
    let (ours, theirs) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let guard = reader(&ours).lock().await.unwrap();
    for is_cancelled in [false, true] {
        let mut lock = writer(&theirs);
        let giving_up = tokio::spawn(async move {
            match is_cancelled {
                true => drop(lock.lock().await.unwrap()),
                false => assert!(lock.try_lock_for(SECOND).await.unwrap().is_none()),
            }
        });
        stopped(&scene).await;
        let waiting = waits_to_read(&scene, &ours).await;
        let published = scene.server.calls("publish");
        match is_cancelled {
            true => giving_up.abort(),
            false => {
                soon(giving_up).await.unwrap();
                assert_eq!(intent(&scene), None, "the call removes its intent before it returns");
            }
        }
        let over = Instant::now();
        let took = soon(waiting).await.unwrap().saturating_duration_since(over);
        assert!(took < LIMIT / 2, "{took:?}");
        assert_eq!(intent(&scene), None);
        assert_eq!(scene.server.calls("publish"), published + 1);
    }
    guard.unlock().await.unwrap();
    drop((ours, theirs));
    scene.end().await;
}

/// Guarantee 8. A writer that was granted the lock ends the intent of all, and its release wakes all. Another writer that still waits
/// is patient again, or it would stop the readers that were stopped before.
#[tokio::test]
async fn readers_that_a_writer_wakes_enter_together_although_another_writer_waits() {
    let scene = Scene::start();
    let config = patient().safety_poll(60 * SECOND);
    let (ours, theirs) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let guard = reader(&ours).lock().await.unwrap();
    let waiting = tokio::spawn(async move {
        writer(&theirs).lock().await.unwrap().unlock().await.unwrap();
        drop(theirs);
    });
    stopped(&scene).await;
    let mut reading = JoinSet::new();
    for _ in 0..8 {
        reading.spawn(waits_to_read(&scene, &ours).await);
    }
    // What the grant and the release of a third writer do.
    const OTHER: &str = "redis.call('del', KEYS[1]) redis.call('publish', 'redisson_rwlock:{a}', '1')";
    scene.server.run::<()>(&["EVAL", OTHER, "1", INTENT]);
    let woken = Instant::now();
    stopped(&scene).await;
    assert!(woken.elapsed() > 18 * MS, "{:?}", woken.elapsed());
    for at in soon(reading.join_all()).await {
        let took = at.unwrap().saturating_duration_since(woken);
        assert!(took < LIMIT / 2, "{took:?}");
    }
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    assert_eq!(intent(&scene), None);
    drop(ours);
    scene.end().await;
}

/// A writer that gives up does not end what another writer set.
#[tokio::test]
async fn a_writer_removes_only_its_own_intent_when_it_gives_up() {
    let scene = Scene::start();
    let locks = scene.client_with(patient()).await;
    let guard = reader(&locks).lock().await.unwrap();
    a_dead_writer_waits(&scene, 100_000);
    let before = scene.server.calls("publish");
    assert!(writer(&locks).try_lock_for(200 * MS).await.unwrap().is_none());
    assert!(intent(&scene).is_some_and(|value| value.ends_with(DEAD)));
    assert_eq!(scene.server.calls("publish"), before);
    // A grant ends any intent: the other writer waits for the next one anyway.
    guard.unlock().await.unwrap();
    assert!(can_write(&locks).await && intent(&scene).is_none());
    drop(locks);
    scene.end().await;
}

/// An owner that holds the lock is never stopped, or it would wait for a writer that waits for it.
#[tokio::test]
async fn an_owner_that_holds_the_lock_is_never_stopped() {
    let scene = Scene::start();
    let locks = scene.client_with(patient()).await;
    let mut lock = locks.read_write_lock("a");
    let outer = lock.read().lock().await.unwrap();
    a_dead_writer_waits(&scene, 100_000);
    assert!(!can_read(&locks).await);
    let inner = lock.read().try_lock().await.unwrap().expect("it re-enters");
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(!can_read(&locks).await, "the lock is free for the writer that waits");

    let writing = lock.write().try_lock().await.unwrap().expect("an intent stops no writer");
    assert_eq!(intent(&scene), None);
    a_dead_writer_waits(&scene, 100_000);
    let reading = lock.read().try_lock().await.unwrap().expect("it reads within its write hold");
    let again = lock.write().try_lock().await.unwrap().expect("it re-enters");
    again.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    let more = lock.read().try_lock().await.unwrap().expect("it continues as a reader");
    more.unlock().await.unwrap();
    assert!(!can_read(&locks).await);
    reading.unlock().await.unwrap();
    scene.server.run::<()>(&["DEL", INTENT]);
    drop((lock, locks));
    scene.end().await;
}

/// Whatever somebody writes into the key, it stops nobody for ever.
#[tokio::test]
async fn a_damaged_intent_stops_nobody() {
    let scene = Scene::start();
    let locks = scene.client_with(patient()).await;
    let foreign: [&[&str]; 4] = [
        &["SET", INTENT, "no intent", "PX", "100000"],
        &["SET", INTENT, "", "PX", "100000"],
        &["SET", INTENT, "90000 x:1:write"],
        &["HSET", INTENT, "a", "b"],
    ];
    for words in foreign {
        scene.server.run::<()>(words);
        let guard = reader(&locks).try_lock().await.unwrap().expect("it stops nobody");
        assert!(writer(&locks).try_lock_for(100 * MS).await.unwrap().is_none());
        guard.unlock().await.unwrap();
        assert!(can_write(&locks).await);
        assert_eq!(left(&scene), -2);
    }
    drop(locks);
    scene.end().await;
}

/// Data of another program beside the readers' fields makes the attempt fail. A writer that fails stops nobody.
#[tokio::test]
async fn a_writer_that_finds_other_data_leaves_no_intent() {
    let scene = Scene::start();
    let (locks, theirs) = (scene.client_with(patient()).await, scene.client_with(patient()).await);
    let first = reader(&locks).lock().await.unwrap();
    scene.server.run::<()>(&["HSET", "a", "data", "x"]);
    let second = reader(&locks).lock().await.unwrap();
    let waiting = tokio::spawn(async move {
        let result = writer(&theirs).lock().await.map(drop);
        drop(theirs);
        result
    });
    // The script looks at three fields, which the server draws. If it meets the data before a reader, the call fails already here.
    let is_seen = || waiting.is_finished() || intent(&scene).is_some();
    eventually("the writer stops readers, or fails", is_seen, |&is_seen| is_seen).await;
    first.unlock().await.unwrap();
    soon(waiting).await.unwrap().unwrap_err();
    assert_eq!(intent(&scene), None);
    assert!(can_read(&locks).await);
    second.unlock().await.unwrap();
    scene.server.run::<()>(&["DEL", "a"]);
    drop(locks);
    scene.end().await;
}

/// The script has a shorter way for a reader that joins others, if no writer waits.
#[tokio::test]
async fn a_reader_beside_others_is_stopped() {
    let scene = Scene::start();
    let owner = |n| format!("00000000-0000-0000-0000-000000000000:{n}");
    scene.server.run::<()>(&["HSET", "a", "mode", "read", &owner(2), "1"]);
    scene.server.run::<()>(&["PEXPIRE", "a", "30000"]);
    scene.server.run::<()>(&["SET", &format!("{{a}}:{}:rwlock_timeout:1", owner(2)), "1", "PX", "30000"]);
    a_dead_writer_waits(&scene, 100_000);
    let acquire = lua::source("read/acquire.lua");
    let args = ["EVAL", &acquire, "2", "a", "redisson_rwlock:{a}", &owner(3), "2", "30000", "9999999999"];
    let stopped_ms: Option<i64> = scene.server.run(&args);
    assert!(stopped_ms.is_some_and(|ms| (1..=10_000).contains(&ms)), "{stopped_ms:?}");
    scene.server.run::<()>(&["DEL", INTENT]);
    assert_eq!(scene.server.run::<Option<i64>>(&args), None);
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end().await;
}
