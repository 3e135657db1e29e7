//! Each hold has a lease of its own.

use futures_util::future::join_all;
use lockkeeper::ReadLock;

use crate::support::{MS, Scene, patient, renewed, throughout};

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
