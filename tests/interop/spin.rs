//! Redisson's `getSpinLock`: the same hash as its `getLock`, and no messages.

use lockkeeper::LockConfig;
use tokio::time::sleep;

use crate::support::{MS, SECOND, Scene, timed};
use crate::{Java, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spin_lock_excludes_and_is_found_free_by_polling() {
    let scene = Scene::start();
    let java = Java::start(&scene).await;
    let locks = scene.client_with(LockConfig::default().safety_poll(SECOND)).await;
    let spin = java.actor("spin", "spin");
    spin.lock("a").await.unwrap();
    assert!(locks.rlock("a").try_lock().await.unwrap().is_none());
    let mut waiter = locks.rlock("a");
    let found = waiting(&scene, async move { waiter.lock().await.unwrap() }).await;
    spin.unlock("a").await.unwrap();
    let (guard, took) = timed(found).await;
    assert!(took < 2 * SECOND, "{took:?}");

    let spins = tokio::spawn({
        let spin = spin.clone();
        async move { spin.lock("a").await }
    });
    sleep(300 * MS).await;
    guard.unwrap().unlock().await.unwrap();
    let (woken, took) = timed(spins).await;
    woken.unwrap().unwrap();
    assert!(took < SECOND, "{took:?}");
    spin.unlock("a").await.unwrap();
    java.end(&scene).await;
    drop(locks);
    scene.end().await;
}
