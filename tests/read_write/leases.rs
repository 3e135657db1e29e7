//! Each hold has a lease of its own.

use futures_util::future::join_all;
use lockkeeper::{Error, ReadLock};
use tokio::time::{Instant, sleep};

use crate::read_write::{reader, waits_to_write, writer};
use crate::support::{LIMIT, MS, SECOND, Scene, fixed, patient, renewed, soon, throughout, timed};

/// Guarantee 7. Redisson: testReadWriteTTL, testReadLockExpirationRenewal, testName.
#[tokio::test]
async fn both_holds_of_an_owner_are_renewed_side_by_side() {
    let scene = Scene::start();
    let lease = 4_500 * MS;
    let locks = scene.client_with(patient().watchdog_lease(lease)).await;
    let mut lock = locks.read_write_lock("{test}:abc:key");
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    let mut outlives = Vec::new();
    for number in 0..20 {
        outlives.push(locks.read_write_lock(format!("{number}")).read().lock().await.unwrap());
    }
    let left = async |lock: &ReadLock<'_>| {
        lock.remaining_lease().await.unwrap().expect("the lock is held").duration().unwrap()
    };
    throughout(lease + 500 * MS, async || assert!(left(lock.read()).await > lease / 10)).await;
    join_all([&writing, &reading].map(renewed)).await;
    // The end of a read hold must not end the renewal of the write hold.
    reading.unlock().await.unwrap();
    for _ in 0..3 {
        renewed(&writing).await;
    }
    let reading = lock.read().lock().await.unwrap();
    writing.unlock().await.unwrap();
    for _ in 0..2 {
        renewed(&reading).await;
        assert!(left(lock.read()).await > lease / 3);
    }
    reading.unlock().await.unwrap();
    for guard in outlives {
        guard.unlock().await.unwrap();
    }
    drop((lock, locks));
    scene.end().await;
}

/// Guarantee 8. Redisson: testReadLockExpiration, testReadLockLeaseTimeoutDiffThreadsRRW and …WRR,
/// testReadLockLeaseTimeout.
#[tokio::test]
async fn each_read_hold_ends_with_its_own_lease() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(300 * MS)).await;
    // A writer waits for the longest lease, whichever reader releases before.
    let start = Instant::now();
    let long = reader(&locks).with(&fixed(3_500 * MS)).lock().await.unwrap();
    let short = reader(&locks).with(&fixed(3 * SECOND)).lock().await.unwrap();
    let waiting = waits_to_write(&scene, &locks).await;
    short.unlock().await.unwrap();
    let took = soon(waiting).await.unwrap() - start;
    assert!(took >= 3_500 * MS && took < LIMIT / 2, "{took:?}");
    assert!(matches!(long.unlock().await, Err(Error::NotHeld { .. })));

    // A later reader with a long lease, since released, does not extend the wait.
    reader(&locks).with(&fixed(SECOND)).lock().await.unwrap().leak();
    sleep(500 * MS).await; // half of its lease
    reader(&locks).with(&fixed(60 * SECOND)).lock().await.unwrap().unlock().await.unwrap();
    let got = soon(writer(&locks).try_lock_for(10 * SECOND))
        .await
        .unwrap()
        .expect("the leaked lease ends within the limit");
    got.unlock().await.unwrap();

    // Readers acquire when the lease of a writer ends.
    writer(&locks).with(&fixed(500 * MS)).lock().await.unwrap().leak();
    let (guards, took) = timed(join_all([(); 2].map(async |()| reader(&locks).lock().await.unwrap()))).await;
    assert!(took < LIMIT / 2, "{took:?}");
    drop(guards);

    // A released inner hold does not extend the outer one.
    let mut lock = locks.read_write_lock("a").with(&fixed(3 * SECOND));
    let outer = lock.read().lock().await.unwrap();
    sleep(SECOND).await; // much of its lease
    lock.read().lock().await.unwrap().unlock().await.unwrap();
    soon(outer.ended()).await.unwrap_err();
    lock.write().try_lock().await.unwrap().expect("no reader is left").unlock().await.unwrap();
    drop((outer, lock, locks));
    scene.end().await;
}

/// `remaining_lease` of the read lock and of the write lock are independent.
#[tokio::test]
async fn each_side_reports_its_own_lease() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let mut me = locks.owner();
    let writing = me.read_write_lock("a").with(&fixed(600 * SECOND)).write().lock().await.unwrap();
    let reading = me.read_write_lock("a").with(&fixed(LIMIT)).read().lock().await.unwrap();
    let left = reader(&locks).remaining_lease().await.unwrap().expect("the lock is held").duration().unwrap();
    assert!(left <= LIMIT, "{left:?}");
    let left = writer(&locks).remaining_lease().await.unwrap().expect("the lock is held").duration().unwrap();
    assert!(left > 590 * SECOND, "{left:?}");
    reading.unlock().await.unwrap();
    assert_eq!(reader(&locks).remaining_lease().await.unwrap(), None);
    writing.unlock().await.unwrap();
    drop((me, locks));
    scene.end().await;
}
