//! Each hold has a lease of its own.

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Error, LockConfig, ReadLock};
use tokio::time::{Instant, sleep};

use crate::support::{MS, SECOND, Scene, eventually, soon, throughout, timed};
use crate::{holds, reader, wants_to_write, writer};

/// Promise 7, and Redisson: testReadWriteTTL, testReadLockExpirationRenewal, testName.
#[tokio::test]
async fn both_holds_of_an_owner_are_renewed_side_by_side() {
    let scene = Scene::start();
    let lease = 900 * MS;
    let locks = scene.client_with(LockConfig::default().watchdog_lease(lease)).await;
    let mut lock = locks.read_write_lock("{test}:abc:key");
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    let mut outlives = Vec::new();
    for number in 0..20 {
        outlives.push(locks.read_write_lock(format!("{number}")).read().lock().await.unwrap());
    }
    let left = async |lock: &ReadLock| lock.remaining_lease().await.unwrap().expect("it is held");
    throughout(2 * lease, async || assert!(left(lock.read()).await > lease / 3)).await;
    // A read hold that ends must not take the renewal of the write hold with it.
    reading.unlock().await.unwrap();
    let is_long = |left: Option<Duration>| left.is_some_and(|left| left > lease / 3);
    throughout(2 * lease, async || assert!(is_long(lock.write().remaining_lease().await.unwrap()))).await;
    let reading = lock.read().lock().await.unwrap();
    writing.unlock().await.unwrap();
    throughout(2 * lease, async || assert!(left(lock.read()).await > lease / 3 && !reading.is_lost())).await;
    reading.unlock().await.unwrap();
    for guard in outlives {
        guard.unlock().await.unwrap();
    }
    drop((lock, locks));
    scene.end().await;
}

/// Redisson: testReadLockExpiration, testReadLockLeaseTimeoutDiffThreadsRRW and …WRR, testReadLockLeaseTimeout.
#[tokio::test]
async fn each_read_hold_ends_with_its_own_lease() {
    let scene = Scene::start();
    let locks = scene.client_with(LockConfig::default().safety_poll(300 * MS)).await;
    // The one that lasts longest is what a writer waits for, whoever leaves before.
    let long = reader(&locks).lease(1_500 * MS).lock().await.unwrap();
    let start = Instant::now();
    let short = reader(&locks).lease(500 * MS).lock().await.unwrap();
    let waiting = wants_to_write(&scene, &locks).await;
    short.unlock().await.unwrap();
    let took = soon(waiting).await.unwrap() - start;
    assert!(took > 1_400 * MS && took < 2_500 * MS, "{took:?}");
    assert!(matches!(long.unlock().await, Err(Error::NotHeld { .. })));

    // A later reader that left does not make it longer.
    reader(&locks).lease(SECOND).lock().await.unwrap().leak();
    let start = Instant::now();
    sleep(500 * MS).await; // half of its lease
    reader(&locks).lease(10 * SECOND).lock().await.unwrap().unlock().await.unwrap();
    let got = soon(writer(&locks).try_lock_for(3 * SECOND)).await.unwrap().expect("in that time");
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
    got.unlock().await.unwrap();

    // Readers follow a writer whose lease ended.
    writer(&locks).lease(500 * MS).lock().await.unwrap().leak();
    let (guards, took) = timed(join_all([(); 2].map(async |()| reader(&locks).lock().await.unwrap()))).await;
    assert!(took < 1_500 * MS, "{took:?}");
    drop(guards);

    // An inner hold that was given back does not keep the outer one.
    let mut lock = locks.read_write_lock("a").lease(400 * MS);
    let outer = lock.read().lock().await.unwrap();
    sleep(300 * MS).await; // most of its lease
    lock.read().lock().await.unwrap().unlock().await.unwrap();
    soon(outer.lost()).await;
    lock.write().try_lock().await.unwrap().expect("nobody reads any more").unlock().await.unwrap();
    drop((outer, lock, locks));
    scene.end().await;
}

/// Left to its lease: nothing renews or ends it, and it keeps no client.
#[tokio::test]
async fn a_read_hold_that_is_leaked_lasts_for_its_lease() {
    let scene = Scene::start();
    let locks = scene.client().await;
    reader(&locks).lease(1_500 * MS).lock().await.unwrap().leak();
    let start = Instant::now();
    drop(locks);
    eventually("the client is gone", || scene.server.clients(), Vec::is_empty).await;
    assert!(start.elapsed() < SECOND);
    eventually("it ends", || holds(&scene), Vec::is_empty).await;
    assert!(start.elapsed() > 1_450 * MS, "{:?}", start.elapsed());
    scene.end().await;
}

/// Each side answers for itself.
#[tokio::test]
async fn each_side_tells_its_own_lease() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut me = locks.owner();
    let writing = me.read_write_lock("a").lease(600 * SECOND).write().lock().await.unwrap();
    let reading = me.read_write_lock("a").lease(5 * SECOND).read().lock().await.unwrap();
    let left = reader(&locks).remaining_lease().await.unwrap().expect("it is held");
    assert!(left <= 5 * SECOND, "{left:?}");
    let left = writer(&locks).remaining_lease().await.unwrap().expect("it is held");
    assert!(left > 590 * SECOND, "{left:?}");
    reading.unlock().await.unwrap();
    assert_eq!(reader(&locks).remaining_lease().await.unwrap(), None);
    writing.unlock().await.unwrap();
    drop((me, locks));
    scene.end().await;
}
