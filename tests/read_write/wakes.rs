//! Which waiters are woken, and at what cost.

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::read_write::{reader, writer};
use crate::support::{Child, LIMIT, SECOND, Scene, eventually, patient, soon, timed};

/// Guarantees 8 and 9. Redisson: testWriteRead. Two hundred readers of four processes wait for a writer, and then hold
/// the lock together.
#[tokio::test]
async fn when_a_writer_releases_all_readers_acquire_together() {
    const PROCESSES: usize = 4;
    const EACH: usize = 50;
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = writer(&locks).lock().await.unwrap();
    let start = |_| Child::start("read_write::child", &format!("read {EACH}"), &scene.server.url());
    let mut children: Vec<_> = (0..PROCESSES).map(start).collect();
    let heard = || scene.server.run::<(String, usize)>(&["PUBSUB", "NUMSUB", "redisson_rwlock:{a}"]).1;
    eventually("all processes subscribe", heard, |&count| count == PROCESSES).await;
    let attempts = scene.server.calls("evalsha");
    let start = Instant::now();
    guard.unlock().await.unwrap();
    for child in &mut children {
        eventually("all readers held the lock together", || child.has_ended(), |&ended| ended).await;
    }
    let asked = scene.server.calls("evalsha") - attempts;
    println!("{asked} scripts in {:?}", start.elapsed());
    assert!(
        asked <= (3 * PROCESSES * EACH) as u64,
        "{asked} scripts: more than attempts and a release for each reader"
    );
    drop(locks);
    scene.end().await;
}

/// Guarantee 8. Redisson wakes nobody on a downgrade: its waiting readers sleep on.
#[tokio::test]
async fn a_downgrade_wakes_waiting_readers_at_once() {
    let scene = Scene::start();
    let config = patient().safety_poll(60 * SECOND);
    let (ours, theirs) = (scene.client().await, scene.client_with(config).await);
    let mut lock = ours.read_write_lock("a");
    let writing = lock.write().lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let theirs = theirs.clone();
        waiting.spawn(async move { reader(&theirs).lock().await.unwrap() });
    }
    eventually("the waiters subscribe", || scene.server.channels(), |channels| channels.len() == 1).await;
    let reading = lock.read().lock().await.unwrap();
    writing.unlock().await.unwrap();
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(took < LIMIT / 2, "{took:?}");
    drop((guards, reading, lock));
    drop((ours, theirs));
    scene.end().await;
}

/// Guarantee 9. When a message wakes readers and a writer acquires first, one reader attempts for all.
#[tokio::test]
async fn a_message_that_is_not_for_readers_costs_one_attempt() {
    const READERS: usize = 100;
    const WRITERS: usize = 20;
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = writer(&locks).lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for number in 0..READERS + WRITERS {
        let locks = locks.clone();
        waiting.spawn(async move {
            match number < WRITERS {
                true => writer(&locks).lock().await.unwrap().unlock().await.unwrap(),
                false => reader(&locks).lock().await.unwrap().unlock().await.unwrap(),
            }
        });
    }
    eventually("the waiters subscribe", || scene.server.channels(), |channels| channels.len() == 1).await;
    let before = scene.server.calls("evalsha");
    guard.unlock().await.unwrap();
    soon(waiting.join_all()).await;
    let asked = scene.server.calls("evalsha") - before;
    println!("{asked} scripts");
    assert!(asked < 4 * (READERS + WRITERS) as u64, "{asked} scripts");
    drop(locks);
    scene.end().await;
}
