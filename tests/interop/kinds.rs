//! Other kinds of Redisson's locks on the name of an `RLock`.

use lockkeeper::{Error, LockClient, LockConfig};

use crate::java::IN_VAIN;
use crate::roles::{HAND_OFF, hand_back_on, hand_over};
use crate::support::fixture::Subject;
use crate::support::{MS, SECOND, Scene, throughout, timed};
use crate::{Java, Row, Stage, fair, rlock, waiting};

/// Guarantees 1 and 10. `getSpinLock` has the same hash as `getLock`, and publishes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spin_lock_excludes_and_is_found_free_by_polling() {
    let scene = Scene::start();
    let java = Java::start(&scene).await;
    let locks = scene.client_with(LockConfig::builder().safety_poll(SECOND)).await;
    let spin = java.actor("spin", "spin");
    spin.lock("a").await.unwrap();
    assert!(locks.rlock("a").try_lock().await.unwrap().is_none());
    let mut waiter = locks.rlock("a");
    let found = waiting::<rlock::Row, _>(&scene.server, async move { waiter.lock().await.unwrap() }).await;
    spin.unlock("a").await.unwrap();
    assert_eq!(scene.server.calls("publish"), 0);
    let (guard, took) = timed(found).await;
    assert!(took < SECOND + HAND_OFF, "{took:?}");

    let spins = tokio::spawn({
        let spin = spin.clone();
        async move { spin.lock("a").await }
    });
    throughout(300 * MS, async || assert!(!spins.is_finished())).await;
    guard.unwrap().unlock().await.unwrap();
    let (woken, took) = timed(spins).await;
    woken.unwrap().unwrap();
    assert!(took < HAND_OFF, "{took:?}");
    spin.unlock("a").await.unwrap();
    java.end(&scene).await;
    scene.end(locks).await;
}

/// Guarantees 1 and 8. `getNonReentrantLock` and `getNonReentrantFairLock` have the keys and the messages of the reentrant ones. Redisson has them from
/// 4.4 on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_non_reentrant_lock_is_an_rlock_and_a_non_reentrant_fair_lock_is_a_fair_lock() {
    let stage = Stage::start().await;
    excludes_and_wakes::<rlock::Row>(&stage, "non_reentrant").await;
    excludes_and_wakes::<fair::Row>(&stage, "non_reentrant_fair").await;
    stage.end().await;
}

/// Guarantees 1 and 8. For Java, a claimed name is an `RLock`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claimed_name_is_an_rlock_for_java() {
    let stage = Stage::start().await;
    let Stage { scene, java, locks } = &stage;
    let (actor, jobs) = (java.actor("claims", "rlock"), locks.claims("jobs"));
    actor.lock("{jobs}:1").await.unwrap();
    let claim = jobs.claim([1, 2]).await.unwrap().unwrap();
    assert_eq!(claim.name(), "2", "Java holds the first");
    assert!(actor.is_locked("{jobs}:2").await.unwrap() && !actor.try_lock("{jobs}:2").await.unwrap());
    hand_over(&scene.server, claim, &actor, "{jobs}:2").await;
    actor.unlock("{jobs}:1").await.unwrap();
    assert_eq!(jobs.claim([1, 2]).await.unwrap().unwrap().name(), "1");
    scene.quiet().await;
    drop(jobs);
    stage.end().await;
}

async fn excludes_and_wakes<R: Row>(stage: &Stage, kind: &'static str) {
    let Stage { scene, java, locks } = stage;
    let actor = java.actor(kind, kind);
    actor.lock("a").await.unwrap();
    assert!(R::Rust::lock(locks, "a").try_lock().await.unwrap().is_none());
    hand_back_on::<R>(&scene.server, locks, &actor, "a").await;
    let guard = R::Rust::lock(locks, "a").lock().await.unwrap();
    assert!(!actor.try_lock("a").await.unwrap());
    hand_over(&scene.server, guard, &actor, "a").await;
}

/// Guarantee 5. On the name of a read-write lock, an `RLock` or a fair lock is an error in Rust. In the other order,
/// Redisson does not check: then both hold the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_write_lock_on_the_same_name_is_refused_by_rust_and_not_by_java() {
    let scene = Scene::start();
    let java = Java::start(&scene).await;
    let locks = scene.client().await;
    for kind in ["read", "write"] {
        let holder = java.actor(kind, kind);
        holder.lock("a").await.unwrap();
        for result in [locks.rlock("a").try_lock().await, locks.fair_lock("a").try_lock().await] {
            assert!(matches!(result, Err(Error::WrongKind { .. })), "{kind}");
        }
        holder.unlock("a").await.unwrap();

        for guard in [locks.rlock("a").lock().await.unwrap(), locks.fair_lock("b").lock().await.unwrap()] {
            let name = guard.name().to_owned();
            assert!(holder.try_lock(&name).await.unwrap(), "{kind}");
            guard.unlock().await.unwrap();
            assert!(holder.is_locked(&name).await.unwrap(), "the release in Rust removes only its own hold");
            assert!(scene.server.run::<i64>(&["PTTL", &name]) > 0, "the lock still has an expiry");
            holder.unlock(&name).await.unwrap();
        }
        scene.server.run::<()>(&["FLUSHALL"]);
    }
    java.end(&scene).await;
    scene.end(locks).await;
}

/// Guarantee 5. On the name of an `RLock` or a fair lock, a read-write lock is an error in Rust, whichever side holds
/// the lock. In Java, an `RLock` or a fair lock waits for a read-write lock of Rust, but no message tells it about the
/// release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_write_lock_in_rust_does_not_mix_with_other_kinds() {
    let scene = Scene::start();
    let java = Java::start(&scene).await;
    let locks = scene.client().await;
    for kind in ["rlock", "fair"] {
        let holder = java.actor(kind, kind);
        holder.lock("a").await.unwrap();
        let before = holder.remaining("a").await.unwrap();
        refused(&locks).await;
        assert!(holder.is_held("a").await.unwrap() && holder.remaining("a").await.unwrap() <= before);
        holder.unlock("a").await.unwrap();

        let mut ours = locks.read_write_lock("a");
        for is_write in [false, true] {
            let guard = match is_write {
                false => ours.read().lock().await.unwrap(),
                true => ours.write().lock().await.unwrap(),
            };
            assert!(!holder.try_lock("a").await.unwrap(), "{kind}");
            assert!(!holder.try_lock_within("a", IN_VAIN).await.unwrap(), "{kind}");
            assert!(!guard.is_lost());
            guard.unlock().await.unwrap();
            assert!(holder.try_lock("a").await.unwrap(), "{kind}");
            holder.unlock("a").await.unwrap();
        }
    }
    let guard = locks.rlock("a").lock().await.unwrap();
    refused(&locks).await;
    guard.unlock().await.unwrap();
    let guard = locks.fair_lock("a").lock().await.unwrap();
    refused(&locks).await;
    guard.unlock().await.unwrap();
    java.end(&scene).await;
    scene.end(locks).await;
}

async fn refused(locks: &LockClient) {
    let mut lock = locks.read_write_lock("a");
    for result in [lock.read().try_lock().await, lock.write().try_lock().await] {
        assert!(matches!(result, Err(Error::WrongKind { .. })), "{result:?}");
    }
    let forced = [lock.read().force_unlock().await, lock.write().force_unlock().await];
    assert!(forced.iter().all(|result| matches!(result, Err(Error::WrongKind { .. }))), "{forced:?}");
}
