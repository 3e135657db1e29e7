//! A writer that readers kept waiting stops new readers for a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::LockConfigBuilder;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::read_write::{can_read, can_write, reader, writer};
use crate::support::{LIMIT, MS, Scene, eventually, lua, soon, throughout, timed};

const INTENT: &str = "{a}:lockkeeper_intent";

const DEAD: &str = "00000000-0000-0000-0000-000000000000:1:write";

/// The value of the intent.
fn intent(scene: &Scene) -> Option<String> {
    scene.server.run(&["GET", INTENT])
}

/// Sets the intent of a writer that is dead. The turn is a tenth of `ten_turns_ms`.
fn a_dead_writer_waits(scene: &Scene, ten_turns_ms: u64) {
    let (value, lasts) = (format!("{} {DEAD}", ten_turns_ms / 10 * 9), ten_turns_ms.to_string());
    scene.server.run::<()>(&["SET", INTENT, &value, "PX", &lasts]);
}

/// Each reader asks the server, also beside other readers of its client.
fn patient() -> LockConfigBuilder {
    crate::support::patient().sharing(Duration::ZERO)
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
    scene.end((readers, locks)).await;
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
    scene.end(locks).await;
}

/// A try does not wait, so it stops nobody.
#[tokio::test]
async fn a_try_never_stops_readers() {
    let (scene, locks) = Scene::with_client_of(patient()).await;
    let guard = reader(&locks).lock().await.unwrap();
    throughout(100 * MS, async || {
        assert!(!can_write(&locks).await && can_read(&locks).await && intent(&scene).is_none());
    })
    .await;
    guard.unlock().await.unwrap();
    scene.end(locks).await;
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
    scene.end(()).await;
}
