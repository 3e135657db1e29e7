//! The options of one lock, and work that runs while a lock is held.

use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper::leader::{Candidate, Leadership};
use lockkeeper::{Error, LockConfig, MultiLock};

use crate::support::{
    MS, SECOND, Scene, eventually, grouped, lingering, patient, renewing, soon, throughout,
};

/// How long the server keeps a lock, in milliseconds.
fn left(scene: &Scene, key: &str) -> i64 {
    scene.server.run(&["PTTL", key])
}

/// The watchdog of the client renews 30 s; this lock has a second.
#[tokio::test]
async fn a_lease_of_its_own_is_renewed_beside_that_of_the_client() {
    let (scene, locks) = Scene::with_client_of(LockConfig::builder()).await;
    let usual = locks.rlock("usual").lock().await.unwrap();
    let mut own = locks.rlock("own").with(&renewing(SECOND));
    let guard = own.lock().await.unwrap();
    assert!(left(&scene, "own") <= 1_000 && left(&scene, "usual") > 20_000);
    throughout(4 * SECOND, async || {
        assert!(!guard.is_lost() && guard.remaining() <= SECOND);
        assert!((1..=1_000).contains(&left(&scene, "own")), "it is renewed, to a second");
    })
    .await;
    guard.unlock().await.unwrap();
    usual.unlock().await.unwrap();
    scene.end((own, locks)).await;
}

/// A hold of the same owner with the lease of the client makes the lease longer, and never shorter again.
#[tokio::test]
async fn the_longest_lease_of_an_owner_is_renewed() {
    let (scene, locks) = Scene::with_client_of(LockConfig::builder()).await;
    let mut owner = locks.owner();
    let outer = owner.rlock("a").with(&renewing(SECOND)).lock().await.unwrap();
    let inner = owner.rlock("a").lock().await.unwrap();
    assert!(left(&scene, "a") > 20_000);
    eventually("the outer hold has the lease, too", || outer.remaining(), |&left| left > 20 * SECOND).await;
    inner.unlock().await.unwrap();
    assert!(left(&scene, "a") > 20_000, "a release shortens nothing");
    outer.unlock().await.unwrap();
    scene.end((owner, locks)).await;
}

#[tokio::test]
async fn options_replace_those_before() {
    let (scene, locks) = Scene::with_client_of(LockConfig::builder()).await;
    let lock = locks.rlock("a").with(&renewing(SECOND));
    let guard = lock.with(&grouped("orders")).lock().await.unwrap();
    assert!(left(&scene, "a") > 20_000, "the lease is that of the client again");
    guard.unlock().await.unwrap();
    scene.end(locks).await;
}

// --- run ---------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_busy_lock_runs_nothing() {
    let (scene, locks) = Scene::with_client().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let ran = AtomicBool::new(false);
    let work = || async { ran.store(true, Ordering::Relaxed) };
    let mut lock = locks.rlock("a");
    assert!(lock.try_run(work()).await.unwrap().is_none());
    assert!(lock.try_run_for(50 * MS, work()).await.unwrap().is_none());
    assert!(!ran.load(Ordering::Relaxed));
    guard.unlock().await.unwrap();
    assert!(lock.try_run(work()).await.unwrap().is_some());
    assert!(lock.try_run_for(SECOND, work()).await.unwrap().is_some());
    scene.end((lock, locks)).await;
}

/// If only the release fails, the work was protected, so its result counts.
#[tokio::test]
async fn a_release_that_fails_costs_no_result() {
    let (scene, locks) = Scene::with_client_of(patient().retry_timeout(100 * MS)).await;
    let mut lock = locks.rlock("a");
    let done = lock.run(async {
        scene.server.run::<()>(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
        7
    });
    assert_eq!(soon(done).await.unwrap(), 7);
    scene.server.run::<()>(&["ACL", "SETUSER", "default", "+evalsha", "+eval"]);
    eventually("released in the background", || left(&scene, "a"), |&left| left == -2).await;
    scene.end((lock, locks)).await;
}

/// An option without effect is an error, except on the side to write of a pair, which has the options of both.
#[tokio::test]
async fn linger_is_an_error_for_locks_that_do_not_linger() {
    let scene = Scene::start();
    let (locks, linger) = (scene.client().await, lingering(50 * MS));
    let read = |name: &str| locks.read_write_lock(name).with(&linger).into_read();
    let refused = [
        soon(locks.rlock("a").with(&linger).lock()).await.err(),
        soon(locks.fair_lock("a").with(&linger).try_lock()).await.err(),
        soon(locks.fenced_lock("a").with(&linger).check()).await.err(),
        soon(locks.semaphore("a", 1).with(&linger).acquire()).await.err(),
        soon(locks.claims("a").with(&linger).claim([1])).await.err(),
        soon(MultiLock::new([read("a"), read("b")]).unwrap().lock()).await.err(),
        soon(Candidate::new(&locks, "a").with(&linger).run(async |_: Leadership| ())).await.err(),
    ];
    for (index, error) in refused.iter().enumerate() {
        let is_named = matches!(error, Some(Error::Config(wrong)) if wrong.field() == "linger");
        assert!(is_named, "{index}: {error:?}");
    }
    let mut pair = locks.read_write_lock("a").with(&linger);
    soon(pair.write().lock()).await.unwrap().unlock().await.unwrap();
    soon(pair.read().lock()).await.unwrap().unlock().await.unwrap();
    scene.end((pair, locks)).await;
}
