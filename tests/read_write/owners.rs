//! What one owner can do with the read lock and the write lock, and what other owners can do meanwhile.

use lockkeeper::Error;

use crate::read_write::{can_read, can_write, holds, reader};
use crate::support::{SECOND, Scene, soon};

/// Guarantee 3. Redisson: testWR, testWriteReadReentrancy, testWriteLock, testHoldCount.
#[tokio::test]
async fn a_writer_can_read_and_downgrade() {
    let (scene, ours, theirs) = Scene::with_two_clients().await;
    let mut lock = ours.read_write_lock("a");
    let outer = lock.write().lock().await.unwrap();
    let inner = lock.write().lock().await.unwrap();
    assert_eq!((lock.write().hold_count(), lock.read().hold_count()), (2, 0));
    inner.unlock().await.unwrap();
    // Any number of read holds, released or dropped in any order.
    for _ in 0..20 {
        let first = lock.read().lock().await.unwrap();
        let second = lock.read().lock().await.unwrap();
        assert_eq!((lock.write().hold_count(), lock.read().hold_count()), (1, 2));
        assert_eq!(holds(&scene).len(), 1);
        first.unlock().await.unwrap();
        drop(second);
        assert!(!can_read(&theirs).await);
    }
    let reading = lock.read().lock().await.unwrap();
    assert!(lock.read().is_locked().await.unwrap() && lock.write().is_locked().await.unwrap());
    outer.unlock().await.unwrap();
    assert!(lock.read().is_locked().await.unwrap() && !lock.write().is_locked().await.unwrap());
    assert!(can_read(&theirs).await && !can_write(&theirs).await);
    reading.unlock().await.unwrap();
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    reading.unlock().await.unwrap();
    assert!(lock.write().is_locked().await.unwrap());
    writing.unlock().await.unwrap();
    assert!(can_write(&theirs).await);
    scene.end((lock, ours, theirs)).await;
}

#[tokio::test]
async fn an_upgrade_is_an_error_at_once_and_changes_nothing() {
    let (scene, locks) = Scene::with_client().await;
    let is_upgrade = |error: Error| {
        assert!(matches!(&error, Error::UpgradeWouldDeadlock(lock) if lock.name == "a"), "{error:?}");
        assert!(!error.is_transient() && !error.outcome_unknown());
    };
    let mut lock = locks.read_write_lock("a");
    let guard = lock.read().lock().await.unwrap();
    // The first command of an acquire of the write lock that finds readers. No renewal sends it.
    let acquires = || scene.server.calls("hget");
    let before = acquires();
    is_upgrade(soon(lock.write().lock()).await.unwrap_err());
    is_upgrade(soon(lock.write().try_lock()).await.unwrap_err());
    is_upgrade(soon(lock.write().try_lock_for(10 * SECOND)).await.unwrap_err());
    assert_eq!(acquires(), before, "nothing was sent");
    guard.unlock().await.unwrap();
    lock.write().lock().await.unwrap().unlock().await.unwrap();

    // The same through an `Owner`, and after a downgrade.
    let mut me = locks.owner();
    let writing = me.read_write_lock("a").write().lock().await.unwrap();
    let reading = me.read_write_lock("a").read().lock().await.unwrap();
    let again = me.read_write_lock("a").write().lock().await.expect("the owner holds the write lock");
    again.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    is_upgrade(me.read_write_lock("a").write().lock().await.unwrap_err());
    reading.unlock().await.unwrap();

    // A dropped hold that is not released yet blocks nobody.
    for _ in 0..50 {
        drop(lock.read().lock().await.unwrap());
        drop(lock.write().try_lock().await.unwrap().expect("its own dropped hold does not block it"));
    }
    let other = me.rlock("b").lock().await.unwrap();
    assert!(matches!(me.read_write_lock("b").read().lock().await, Err(Error::WrongKind { .. })));
    assert!(matches!(me.read_write_lock("b").write().lock().await, Err(Error::WrongKind { .. })));
    other.unlock().await.unwrap();
    scene.end((me, lock, locks)).await;
}

/// Guarantee 5. One owner, one name, two kinds: the second is refused, in either order.
#[tokio::test]
async fn an_owner_holds_one_kind_of_lock_per_name() {
    let (scene, locks, beside) = Scene::with_two_clients().await;
    let is_wrong = |error: Error| assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
    let mut me = locks.owner();
    let reading = me.read_write_lock("a").read().lock().await.unwrap();
    is_wrong(me.rlock("a").lock().await.unwrap_err());
    is_wrong(me.fair_lock("a").try_lock().await.unwrap_err());
    reading.unlock().await.unwrap();

    let plain = me.rlock("a").lock().await.unwrap();
    is_wrong(me.fair_lock("a").lock().await.unwrap_err());
    is_wrong(me.fenced_lock("a").lock().await.unwrap_err()); // the guard would have no token
    is_wrong(me.read_write_lock("a").read().lock().await.unwrap_err());
    scene.server.run::<()>(&["DEL", "a"]);
    is_wrong(me.read_write_lock("a").read().lock().await.unwrap_err());
    let theirs = reader(&beside).lock().await.unwrap();
    assert!(matches!(plain.unlock().await, Err(Error::NotHeld { .. })));
    assert!(!can_write(&beside).await, "the release must not touch the hold of another owner");
    theirs.unlock().await.unwrap();
    scene.end((me, locks, beside)).await;
}
