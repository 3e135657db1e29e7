//! Who holds a lock, who may acquire it, and who may release it.

use lockkeeper::{Error, LockKind};

use crate::conformance::{Fixture, Lending, Subject};
use crate::support::fixture::Acquire;
use crate::support::{LIMIT, MS, SECOND, Scene, eventually, soon};
use tokio::time::timeout;

/// Redisson: testLockUnlock, testIsLocked, testIsHeldByCurrentThread, testIsHeldByCurrentThreadOtherThread.
pub async fn a_lock_is_free_held_and_free_again<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    let (mut lock, rival) = (F::lock(&locks, "a"), F::rival(&locks, "a"));
    for _ in 0..2 {
        assert!(!lock.is_locked().await.unwrap());
        assert!(!lock.is_held());
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.name(), lock.name());
        assert!(lock.name().starts_with('a'));
        assert!(lock.is_locked().await.unwrap());
        assert!(lock.is_held() && !rival.is_held() && !guard.is_lost());
        guard.unlock().await.unwrap();
    }
    assert!(!lock.is_locked().await.unwrap());
    scene.end((lock, rival, locks)).await;
}

/// Guarantee 1. Redisson: testReentrancy, testIsLockedOtherThread.
pub async fn a_rival_is_refused<F: Subject>() {
    let (scene, ours, theirs) = Scene::with_two_clients().await;
    let guard = F::lock(&ours, "a").lock().await.unwrap();
    for client in [&ours, &theirs] {
        let mut rival = F::rival(client, "a");
        assert!(rival.try_lock().await.unwrap().is_none());
        assert!(rival.try_lock_for(20 * MS).await.unwrap().is_none());
    }
    guard.unlock().await.unwrap();
    for client in [&ours, &theirs] {
        F::rival(client, "a").try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
    }
    scene.end((ours, theirs)).await;
}

/// Guarantee 14. A call for what is free, a call that is refused, and a release.
pub async fn what_a_call_costs<F: Subject>() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    let (mut lock, mut rival) = (F::lock(&locks, "a"), F::rival(&beside, "a"));
    // The scripts are loaded.
    for _ in 0..2 {
        lock.lock().await.unwrap().unlock().await.unwrap();
        rival.lock().await.unwrap().unlock().await.unwrap();
    }
    let (mut before, scripts) = (scene.server.scripts(), || scene.server.scripts());
    let mut sent = move || scripts() - std::mem::replace(&mut before, scripts());
    for tries in [false, true] {
        let guard = if tries {
            lock.try_lock().await.unwrap().expect("it is free")
        } else {
            lock.lock().await.unwrap()
        };
        assert_eq!(sent(), F::COMMANDS, "to acquire it");
        assert!(rival.try_lock().await.unwrap().is_none());
        assert_eq!(sent(), 1, "to be refused");
        guard.unlock().await.unwrap();
        assert_eq!(sent(), F::COMMANDS, "to release it");
    }
    scene.end((lock, rival, locks, beside)).await;
}

/// An owner of the same client, or of another one.
pub async fn a_holder_hears_that_an_owner_waits<F: Subject>() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    for client in [&locks, &beside] {
        let guard = F::lock(&locks, "a").lock().await.unwrap();
        let mut wanted = Box::pin(guard.wanted());
        let a_question_later = SECOND;
        assert!(timeout(a_question_later, &mut wanted).await.is_err(), "nobody waits");
        let mut rival = F::rival(client, "a");
        let waits = tokio::spawn(async move { rival.lock().await.unwrap().unlock().await.unwrap() });
        soon(wanted).await;
        guard.unlock().await.unwrap();
        soon(waits).await.unwrap();
    }
    scene.end((locks, beside)).await;
}

/// Guarantee 3. Redisson: testReentrancy, testGetHoldCount.
pub async fn a_handle_reenters<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    let mut lock = F::lock(&locks, "a");
    assert_eq!(lock.hold_count(), 0);
    let outer = lock.lock().await.unwrap();
    assert_eq!(lock.hold_count(), 1);
    let inner = lock.try_lock().await.unwrap().expect("the owner can re-enter");
    let inmost = lock.try_lock_for(MS).await.unwrap().expect("the owner can re-enter");
    assert_eq!((lock.hold_count(), inner.hold_count()), (3, 3));
    assert_eq!(
        locks.inspect("a").await.unwrap().unwrap().holders[0].holds,
        3,
        "the server has the same count"
    );
    // In any order: guards are holds, not levels.
    outer.unlock().await.unwrap();
    inmost.unlock().await.unwrap();
    assert_eq!(lock.hold_count(), 1);
    assert!(F::rival(&locks, "a").try_lock().await.unwrap().is_none());
    inner.unlock().await.unwrap();
    assert_eq!(lock.hold_count(), 0);
    assert!(!lock.is_locked().await.unwrap());
    scene.end((lock, locks)).await;
}

/// Guarantee 3.
pub async fn an_owner_reenters_by_name<F: Lending>() {
    let (scene, locks) = Scene::with_client().await;
    let (mut me, mut other) = (locks.owner(), locks.owner());
    let outer = F::lent(&mut me, "a").lock().await.unwrap();
    let inner = F::lent(&mut me, "a").lock().await.unwrap();
    let beside = F::lent(&mut me, "b").lock().await.unwrap();
    assert_eq!(F::lent(&mut me, "a").hold_count(), 2);
    assert_eq!(F::lent(&mut me, "b").hold_count(), 1);
    assert_eq!(F::lent(&mut other, "a").hold_count(), 0);
    for guard in [outer, inner, beside] {
        guard.unlock().await.unwrap();
    }
    scene.end((me, other, locks)).await;
}

/// Guarantee 2. Redisson: testUnlockFail, testExpire.
pub async fn only_the_owner_releases<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    let mut lock = F::lock(&locks, "a");
    let stale = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    let mut rival = F::rival(&locks, "a");
    let theirs = rival.try_lock().await.unwrap().expect("the lock is free");

    assert!(matches!(stale.unlock().await, Err(Error::NotHeld(lost)) if lost.lock.name == lock.name()));
    assert!(rival.is_locked().await.unwrap(), "the rival's hold is not touched");
    theirs.unlock().await.unwrap();
    scene.end((lock, rival, locks)).await;
}

/// Guarantee 2.
pub async fn releasing_a_hold_that_is_gone_returns_not_held<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    let mut lock = F::lock(&locks, "a");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    scene.server.run::<()>(&["FLUSHALL"]);
    assert!(matches!(inner.unlock().await, Err(Error::NotHeld { .. })));
    assert!(outer.is_lost(), "a loss that one release finds applies to all guards of the owner");
    assert!(matches!(outer.unlock().await, Err(Error::NotHeld { .. })));

    // A re-entry finds the loss: it acquires the lock as a new hold.
    let outer = lock.lock().await.unwrap();
    scene.server.run::<()>(&["FLUSHALL"]);
    let anew = lock.lock().await.unwrap();
    assert!(outer.is_lost() && !anew.is_lost());
    assert_eq!(lock.hold_count(), 1);
    assert!(matches!(outer.unlock().await, Err(Error::NotHeld { .. })));
    assert!(lock.is_locked().await.unwrap(), "the old guard did not end the new hold");
    anew.unlock().await.unwrap();
    scene.end((lock, locks)).await;
}

/// Guarantee 8. Redisson: testForceUnlock.
pub async fn force_unlock_ends_the_hold_and_wakes_a_waiter<F: Fixture>() {
    let (scene, ours, theirs) = Scene::with_two_clients().await;
    assert!(!F::lock(&ours, "a").force_unlock().await.unwrap(), "no owner holds the lock");
    let mut lock = F::lock(&ours, "a");
    let guards = [lock.lock().await.unwrap(), lock.lock().await.unwrap()];
    let waiting = tokio::spawn({
        let theirs = theirs.clone();
        async move { F::rival(&theirs, "a").lock().await.unwrap().unlock().await }
    });
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    assert!(F::lock(&theirs, "a").force_unlock().await.unwrap());
    soon(waiting).await.unwrap().unwrap();
    drop(guards);
    scene.end((lock, ours, theirs)).await;
}

/// Guarantee 11.
pub async fn a_dropped_guard_frees_the_lock_for_its_handle_at_once<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    let mut lock = F::lock(&locks, "a");
    for _ in 0..100 {
        drop(lock.try_lock().await.unwrap().expect("its own hold does not block it"));
    }
    scene.end((lock, locks)).await;
}

pub async fn inspect_shows_the_holder<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    assert_eq!(locks.inspect("a").await.unwrap(), None);
    let mut lock = F::leased(&locks, "a", LIMIT);
    let guards = [lock.lock().await.unwrap(), lock.lock().await.unwrap()];
    let found = locks.inspect("a").await.unwrap().expect("the lock is held");
    assert_eq!(found.holders.len(), 1);
    assert_eq!(found.holders[0].holds, 2);
    assert_eq!(matches!(found.kind, LockKind::Read | LockKind::Write), F::IS_READ_WRITE);
    let owner = found.holders[0].owner.trim_end_matches(":write");
    assert!(owner.starts_with(&format!("{}:", locks.id())), "{found:?}");
    assert!(guards[0].owner_id().split(", ").any(|id| id == found.holders[0].owner), "{found:?}");
    let left = found.remaining_lease.duration().unwrap();
    assert!(left <= LIMIT && left > LIMIT / 2, "{found:?}");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    scene.end((lock, locks)).await;
}
