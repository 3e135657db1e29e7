//! `LockClient::force_unlock`: a release by force of the holders that `inspect` found, of whatever type the lock is.

use std::time::Duration;

use crate::support::{SECOND, Scene, listens, patient, poll_until, soon, waiter};
use futures_util::FutureExt;
use lockkeeper::{BaseLock, Error, Lock, LockClient, LockConfigBuilder, LockInfo};

/// What `inspect` tells of the lock `a`.
async fn found(locks: &LockClient) -> LockInfo {
    soon(locks.inspect("a")).await.unwrap().expect("it is held")
}

async fn force(locks: &LockClient, info: &LockInfo) -> bool {
    soon(locks.force_unlock(info)).await.unwrap()
}

/// Keeps only this holder.
fn only(mut info: LockInfo, owner: &str) -> LockInfo {
    info.holders.retain(|holder| holder.owner == owner);
    assert_eq!(info.holders.len(), 1);
    info
}

/// The holder of `first` is released, and the one of `second`, which waits for it, is not.
async fn ends_the_hold_that_was_found(
    scene: &Scene,
    locks: &LockClient,
    mut first: Lock<'_, impl BaseLock>,
    second: Lock<'static, impl BaseLock>,
) {
    let guard = first.lock().await.unwrap();
    let info = found(locks).await;
    let waiting = waiter(second);
    listens(&scene.server).await;
    assert!(force(locks, &info).await);
    let later = soon(waiting).await.unwrap();
    assert!(!force(locks, &info).await, "another owner holds it by now");
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld(_))));
    later.unlock().await.unwrap();
    assert!(!force(locks, &info).await, "it is free");
    scene.quiet().await;
}

/// Guarantees 2 and 8.
#[tokio::test]
async fn a_forced_release_ends_no_hold_of_a_later_owner() {
    let (scene, ours, theirs) = Scene::with_two_clients().await;
    let looking = scene.client().await;
    ends_the_hold_that_was_found(&scene, &looking, ours.rlock("a"), theirs.rlock("a")).await;
    ends_the_hold_that_was_found(&scene, &looking, ours.fair_lock("a"), theirs.fair_lock("a")).await;
    ends_the_hold_that_was_found(&scene, &looking, ours.fenced_lock("a"), theirs.fenced_lock("a")).await;
    let sides = |locks: &LockClient| locks.read_write_lock("a");
    ends_the_hold_that_was_found(&scene, &looking, sides(&ours).into_write(), sides(&theirs).into_read())
        .await;
    ends_the_hold_that_was_found(&scene, &looking, sides(&ours).into_read(), sides(&theirs).into_write())
        .await;
    scene.end((ours, theirs, looking)).await;
}

/// The same for readers, and for an owner that writes and reads.
#[tokio::test]
async fn a_forced_release_ends_only_the_given_holds_of_a_read_write_lock() {
    let scene = Scene::start();
    let (locks, looking) = (scene.client_with(patient().sharing(Duration::ZERO)).await, scene.client().await);
    let reader = || locks.read_write_lock("a").into_read();
    let (one, two) = (reader().lock().await.unwrap(), reader().lock().await.unwrap());
    let info = only(found(&looking).await, &one.owner_id());
    let three = reader().lock().await.unwrap();
    assert!(force(&looking, &info).await);
    assert!(!force(&looking, &info).await);
    assert!(matches!(one.unlock().await, Err(Error::NotHeld(_))));
    two.unlock().await.unwrap();
    three.unlock().await.unwrap();

    let mut both = locks.read_write_lock("a");
    let (writing, reading) = (both.write().lock().await.unwrap(), both.read().lock().await.unwrap());
    let info = found(&looking).await;
    assert_eq!(info.holders.len(), 2);
    assert!(force(&looking, &only(info.clone(), &reading.owner_id())).await);
    assert!(matches!(reading.unlock().await, Err(Error::NotHeld(_))));
    assert!(force(&looking, &info).await, "the write hold is left");
    assert!(matches!(writing.unlock().await, Err(Error::NotHeld(_))));
    scene.end((both, locks, looking)).await;
}

#[tokio::test]
async fn a_forced_release_ends_only_the_given_permits() {
    let (scene, locks, looking) = Scene::with_two_clients().await;
    let semaphore = locks.semaphore("a", 2);
    let (one, two) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    let info = found(&looking).await;
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    listens(&scene.server).await;
    assert!(force(&looking, &only(info.clone(), &one.id().to_string())).await);
    let later = soon(waiting).await.unwrap();
    assert!(one.unlock().await.is_err());
    assert!(force(&looking, &info).await, "one of them is left");
    assert!(two.unlock().await.is_err());
    assert!(!force(&looking, &info).await);
    later.unlock().await.unwrap();
    assert!(!force(&looking, &info).await, "it exists, and no permit is in use");
    assert!(semaphore.delete().await.unwrap());
    assert!(!force(&looking, &info).await, "it is deleted");
    scene.end((semaphore, locks, looking)).await;
}

/// Another owner uses the name for another type of lock by then. Other data is an error, and stays as it is.
#[tokio::test]
async fn a_forced_release_after_the_type_has_changed_ends_nothing() {
    let (scene, locks, looking) = Scene::with_two_clients().await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let mut info = found(&looking).await;
    guard.unlock().await.unwrap();
    let reading = locks.read_write_lock("a").read().lock().await.unwrap();
    assert!(!force(&looking, &info).await);
    reading.unlock().await.unwrap();
    let permit = locks.semaphore("a", 1).acquire().await.unwrap();
    assert!(!force(&looking, &info).await);
    permit.unlock().await.unwrap();
    assert!(locks.semaphore("a", 1).delete().await.unwrap());
    scene.server.run::<()>(&["HSET", "a", "title", "1"]);
    let refused = soon(looking.force_unlock(&info)).await.unwrap_err();
    assert!(matches!(refused, Error::WrongKind { .. }), "{refused:?}");
    assert_eq!(scene.server.run::<Vec<String>>(&["HGETALL", "a"]), ["title", "1"]);
    scene.server.run::<()>(&["DEL", "a"]);

    let guard = locks.rlock("a").lock().await.unwrap();
    info.holders.clear();
    assert!(!force(&looking, &info).await);
    guard.unlock().await.unwrap();
    info.name.clear();
    let refused = soon(looking.force_unlock(&info)).await.unwrap_err();
    assert!(matches!(refused, Error::InvalidName { .. }), "{refused:?}");
    scene.end((locks, looking)).await;
}

/// Holds are shared for long enough that no test reaches the end of it.
fn shares() -> LockConfigBuilder {
    patient().sharing(SECOND)
}

/// Guarantees 1 and 19.
#[tokio::test]
async fn no_reader_joins_a_hold_that_its_client_forced() {
    let scene = Scene::start();
    let (locks, looking) = (scene.client_with(shares()).await, scene.client().await);
    let reader = || locks.read_write_lock("a").into_read();
    for by_name in [true, false] {
        let (one, two) = (reader().lock().await.unwrap(), reader().lock().await.unwrap());
        assert_eq!(one.owner_id(), two.owner_id(), "readers share");
        let info = found(&looking).await;
        assert!(if by_name { force(&locks, &info).await } else { reader().force_unlock().await.unwrap() });
        let later = reader().lock().await.unwrap();
        assert_ne!(later.owner_id(), one.owner_id());
        assert_eq!(found(&looking).await.holders.len(), 1, "the server knows it");
        let _ = one.unlock().await; // of those that share a hold, only the last is told
        assert!(matches!(two.unlock().await, Err(Error::NotHeld(_))));
        later.unlock().await.unwrap();
        scene.quiet().await;
    }
    scene.end((locks, looking)).await;
}

/// A client forced a hold of its own, and another client acquired the lock. A waiter of the first client, which comes only then, is not
/// given the hold that is gone.
async fn is_not_handed_over<K: BaseLock>(scene: &Scene, make: impl Fn(&LockClient) -> Lock<'static, K>) {
    let (locks, other) = (scene.client_with(shares()).await, scene.client().await);
    let first = make(&locks).lock().await.unwrap();
    assert!(make(&locks).force_unlock().await.unwrap());
    let rival = make(&other).lock().await.unwrap();
    let mut waiting = waiter(make(&locks));
    listens(&scene.server).await;
    locks.inspect("a").await.unwrap(); // so the answers to all attempts have arrived
    assert!(matches!(first.unlock().await, Err(Error::NotHeld(_))));
    assert!((&mut waiting).now_or_never().is_none(), "two owners hold the lock");
    rival.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    drop((locks, other));
    scene.quiet().await;
}

/// Guarantees 1 and 19.
#[tokio::test]
async fn a_forced_hold_is_not_handed_over_to_a_waiter_that_comes_later() {
    let scene = Scene::start();
    is_not_handed_over(&scene, |locks| locks.rlock("a")).await;
    is_not_handed_over(&scene, |locks| locks.read_write_lock("a").into_write()).await;
    scene.end(()).await;
}

/// The server granted the lock before the forced release, and the call that acquires reads the answer only after it. Then its client
/// shares the hold with nobody: the server does not have it.
async fn is_not_shared_by_a_late_reader_of_the_answer<K: BaseLock>(
    scene: &Scene,
    make: impl Fn(&LockClient) -> Lock<'static, K>,
    rival: Lock<'_, impl BaseLock>,
) {
    let (locks, mut rival) = (scene.client_with(shares()).await, rival);
    let mut lock = make(&locks);
    let mut late = Box::pin(lock.lock());
    poll_until(&mut late, || scene.server.keys().iter().any(|key| key == "a")).await;
    assert!(make(&locks).force_unlock().await.unwrap());
    let rival = rival.lock().await.unwrap();
    let late = soon(late).await.unwrap();
    let mut waiting = waiter(make(&locks));
    listens(&scene.server).await;
    locks.inspect("a").await.unwrap(); // so the answers to all attempts have arrived
    assert!((&mut waiting).now_or_never().is_none(), "it joined a hold that is gone");
    assert!(matches!(late.unlock().await, Err(Error::NotHeld(_))));
    assert!((&mut waiting).now_or_never().is_none(), "two owners hold the lock");
    rival.unlock().await.unwrap();
    soon(waiting).await.unwrap().unlock().await.unwrap();
    drop((lock, locks));
    scene.quiet().await;
}

/// Guarantees 1 and 19.
#[tokio::test]
async fn a_forced_hold_is_not_shared_when_its_answer_is_read_late() {
    let scene = Scene::start();
    let other = scene.client().await;
    is_not_shared_by_a_late_reader_of_the_answer(&scene, |locks| locks.rlock("a"), other.rlock("a")).await;
    let write = || other.read_write_lock("a").into_write();
    let sides = |locks: &LockClient| locks.read_write_lock("a");
    is_not_shared_by_a_late_reader_of_the_answer(&scene, |locks| sides(locks).into_write(), write()).await;
    is_not_shared_by_a_late_reader_of_the_answer(&scene, |locks| sides(locks).into_read(), write()).await;
    scene.end(other).await;
}
