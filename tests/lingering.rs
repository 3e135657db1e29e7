//! Read locks that their client keeps for a short time after the last reader has left (the option `linger`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{MS, SECOND, Scene, eventually, lingering, soon, timed};
use futures_util::StreamExt;
use futures_util::future::join_all;
use lockkeeper::{LockClient, Member, ReadLock, WriteLock};
use tokio::task::JoinHandle;
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

/// Tasks of one client that read again and again, until this is stopped.
struct Readers {
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Readers {
    fn start(locks: &LockClient, linger: Duration, count: usize, section: Duration) -> Self {
        let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let read = |number: usize| {
            let (mut lock, stop, reads) = (reader(locks, linger), Arc::clone(&stop), Arc::clone(&reads));
            async move {
                sleep(MS * u32::try_from(number).unwrap()).await;
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.unwrap();
                    sleep(section).await;
                    guard.unlock().await.unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        };
        Self { tasks: (0..count).map(|number| tokio::spawn(read(number))).collect(), stop, reads }
    }

    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for ended in join_all(self.tasks).await {
            ended.unwrap();
        }
        self.reads.load(Ordering::Relaxed)
    }
}

/// The reads between two confirmations send nothing. A hold that nobody joined is released when its time is over.
#[tokio::test]
async fn a_read_that_comes_meanwhile_sends_no_command() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let linger = SECOND;
    let before = scene.server.calls("evalsha");
    reads(&locks, linger).await;
    assert_eq!((scene.server.calls("evalsha") - before, is_held(&scene)), (1, true));
    let owner = reader(&locks, linger).lock().await.unwrap().owner_id();
    for _ in 0..100 {
        let guard = reader(&locks, linger).lock().await.unwrap();
        assert_eq!(guard.owner_id(), owner);
        drop(guard);
    }
    assert_eq!(scene.server.calls("evalsha") - before, 1);
    let (_, took) = timed(eventually("it is free", || is_held(&scene), |held| !held)).await;
    assert!(took > linger / 2, "{took:?}");
    // An acquire, one confirmation, as somebody joined before it, and a release.
    assert_eq!(scene.server.calls("evalsha") - before, 3);
    drop(locks);
    scene.end().await;
}

/// A hold is confirmed only if somebody joined since the last answer.
#[tokio::test]
async fn one_long_reader_is_not_confirmed() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let guard = reader(&locks, 20 * MS).lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    sleep(200 * MS).await; // ten times the time: what is not sent cannot be waited for
    assert_eq!(scene.server.calls("evalsha"), before);
    guard.unlock().await.unwrap();
    assert!(!is_held(&scene), "nobody could join it, so it does not linger");
    drop(locks);
    scene.end().await;
}

/// A hold that lingers for readers is none for a writer of the same client.
#[tokio::test]
async fn a_writer_of_the_same_client_does_not_wait_for_an_idle_hold() {
    let scene = Scene::start();
    let locks = scene.client().await;
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
    drop((both, locks));
    scene.end().await;
}

/// It waits for those who read when it comes, and for nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_of_the_same_client_comes_in_beside_readers_that_always_overlap() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let readers = Readers::start(&locks, SECOND, 8, 5 * MS);
    for _ in 0..10 {
        let guard = soon(writer(&locks).lock()).await.unwrap();
        guard.unlock().await.unwrap();
    }
    assert!(readers.end().await > 0);
    drop(locks);
    scene.end().await;
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
    drop((one, two, other));
    scene.end().await;
}

/// A writer of Redisson listens for messages and sets no intent. Two clients keep the lock, and neither ends the hold of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_cannot_stop_readers_comes_in() {
    let scene = Scene::start();
    let (one, two) = (scene.client().await, scene.client().await);
    let readers = [&one, &two].map(|locks| Readers::start(locks, 50 * MS, 8, 20 * MS));
    let client = redis::Client::open(scene.server.url()).unwrap();
    for _ in 0..5 {
        let mut messages = client.get_async_pubsub().await.unwrap();
        messages.subscribe("redisson_rwlock:{a}").await.unwrap();
        // It tries when it hears that the lock is free, as Redisson does.
        let mut heard = messages.on_message();
        let start = Instant::now();
        loop {
            soon(heard.next()).await.unwrap();
            let (mode, hold) = ("write", "8743c9c0-0795-8907-87fd-6c719a6b4586:1:write");
            let script = "if redis.call('exists', KEYS[1]) == 1 then return 0 end \
                          redis.call('hset', KEYS[1], 'mode', ARGV[1], ARGV[2], 1) \
                          redis.call('pexpire', KEYS[1], 30000) return 1";
            if scene.server.run::<i64>(&["EVAL", script, "1", "a", mode, hold]) == 1 {
                break;
            }
        }
        assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
        drop(heard);
        drop(messages);
        scene.server.run::<()>(&["DEL", "a"]);
        scene.server.run::<()>(&["PUBLISH", "redisson_rwlock:{a}", "1"]);
    }
    for readers in readers {
        assert!(readers.end().await > 0);
    }
    drop((one, two));
    scene.end().await;
}
