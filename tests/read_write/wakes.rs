//! Which waiters are woken, and at what cost.

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::read_write::{reader, writer};
use crate::support::{
    Child, Faults, LIMIT, MS, SECOND, Scene, connect, eventually, fixed, patient, poll_until, soon, timed,
};

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

/// A writer re-enters as a reader. The waiting readers of its process wait for this writer, so they must not block it.
#[tokio::test]
async fn a_writer_reads_past_the_waiting_readers_of_its_process() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(60 * SECOND)).await;
    let mut lock = locks.read_write_lock("a");
    let writing = lock.write().lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let locks = locks.clone();
        waiting.spawn(async move { reader(&locks).lock().await.unwrap() });
    }
    eventually("the waiters subscribe", || scene.server.channels(), |channels| channels.len() == 1).await;
    let (reading, took) = timed(lock.read().lock()).await;
    assert!(took < LIMIT / 2, "{took:?}");
    writing.unlock().await.unwrap();
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(took < LIMIT / 2, "{took:?}");
    drop((guards, reading, lock));
    locks.shutdown().await.unwrap();
    drop(locks);
    scene.end().await;
}

/// Guarantee 8. The reader at the head of the queue is not polled any longer, and the lease of the writer ends without
/// a message.
#[tokio::test]
async fn an_unpolled_reader_at_the_head_of_the_queue_does_not_block_the_others() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(2 * SECOND)).await;
    writer(&locks).with(&fixed(3 * SECOND)).lock().await.unwrap().leak();
    let mut in_front = reader(&locks);
    let mut left = Box::pin(in_front.lock());
    poll_until(&mut left, || !scene.server.channels().is_empty()).await;
    let mut waiting = JoinSet::new();
    for _ in 0..6 {
        let locks = locks.clone();
        waiting.spawn(async move { reader(&locks).lock().await.unwrap() });
    }
    let guards = soon(waiting.join_all()).await;
    let (later, took) = timed(async { reader(&locks).lock().await.unwrap() }).await;
    assert!(took < 3 * SECOND, "acquired after {took:?} although others read");
    drop((guards, later));
    soon(left).await.unwrap().unlock().await.unwrap();
    drop((in_front, locks));
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

/// Guarantee 10. Without the message the waiters poll. The first one that acquires wakes the others.
#[tokio::test]
async fn a_lost_message_costs_a_safety_poll() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    proxy.set(Faults { lose_messages: true, ..Faults::default() });
    let config = patient().safety_poll(600 * MS);
    let (ours, theirs) = (connect(proxy.url(), config).await, scene.client().await);
    let guard = writer(&theirs).lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let ours = ours.clone();
        waiting.spawn(async move { reader(&ours).lock().await.unwrap() });
    }
    eventually("the waiters subscribe", || scene.server.channels(), |channels| channels.len() == 1).await;
    guard.unlock().await.unwrap();
    let (guards, took) = timed(waiting.join_all()).await;
    assert!(proxy.lost_messages() > 0);
    assert!(took < LIMIT / 2, "{took:?}");
    drop(guards);
    ours.shutdown().await.unwrap();
    // The record of the wait is removed through the proxy.
    eventually("no record is left", || scene.server.records(), Vec::is_empty).await;
    drop((ours, theirs, proxy));
    scene.end().await;
}
