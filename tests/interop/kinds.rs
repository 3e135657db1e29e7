//! Other kinds of Redisson's locks on the name of an `RLock`.

use lockkeeper::{Error, LockConfig};
use tokio::time::sleep;

use crate::support::{MS, SECOND, Scene, timed};
use crate::{Java, waiting};

/// `getSpinLock` has the same hash as `getLock`, and publishes nothing.
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
    assert_eq!(scene.server.calls("publish"), 0);
    let (guard, took) = timed(found).await;
    assert!(took < 2 * SECOND, "{took:?}");

    let spins = tokio::spawn({
        let spin = spin.clone();
        async move { spin.lock("a").await }
    });
    sleep(300 * MS).await;
    assert!(!spins.is_finished());
    guard.unwrap().unlock().await.unwrap();
    let (woken, took) = timed(spins).await;
    woken.unwrap().unwrap();
    assert!(took < SECOND, "{took:?}");
    spin.unlock("a").await.unwrap();
    java.end(&scene).await;
    drop(locks);
    scene.end().await;
}

/// On the name of a read-write lock an `RLock` is an error here. The other way round it is in Redisson's hands, and it
/// looks for nobody: both have the lock then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_write_lock_on_the_same_name_is_refused_by_rust_and_not_by_java() {
    let scene = Scene::start();
    let java = Java::start(&scene).await;
    let locks = scene.client().await;
    for kind in ["read", "write"] {
        let holder = java.actor(kind, kind);
        holder.lock("a").await.unwrap();
        assert!(matches!(locks.rlock("a").try_lock().await, Err(Error::WrongKind { .. })), "{kind}");
        holder.unlock("a").await.unwrap();

        let guard = locks.rlock("a").lock().await.unwrap();
        assert!(holder.try_lock("a").await.unwrap(), "{kind}");
        guard.unlock().await.unwrap();
        assert!(!holder.is_locked("a").await.unwrap(), "and the first to leave takes both away");
        // Before 3.44.0 that was a success to Redisson.
        assert_eq!(holder.unlock("a").await.is_err(), java.is_at_least(3, 44));
        scene.server.run::<()>(&["FLUSHALL"]);
    }
    java.end(&scene).await;
    drop(locks);
    scene.end().await;
}
