//! Guarantees 1, 2, 3 and 8 where the readers of one client share one read hold of the server.

use std::time::Instant;

use crate::support::{MS, SECOND, Scene, at_most, eventually, fixed, patient, soon};
use lockkeeper::{LockClient, LockConfigBuilder, ReadLock, WriteLock};
use tokio::time::sleep;

/// Readers join for long enough that no test reaches the end of it.
fn shares() -> LockConfigBuilder {
    patient().sharing(SECOND)
}

fn reader(locks: &LockClient) -> ReadLock<'static> {
    locks.read_write_lock("a").into_read()
}

fn writer(locks: &LockClient) -> WriteLock<'static> {
    locks.read_write_lock("a").into_write()
}

/// The number of readers that the server knows.
fn known(scene: &Scene) -> i64 {
    (scene.server.run::<i64>(&["HLEN", "a"]) - 1).max(0)
}

async fn can_write(locks: &LockClient) -> bool {
    let guard = writer(locks).try_lock().await.unwrap();
    let can = guard.is_some();
    if let Some(guard) = guard {
        guard.unlock().await.unwrap();
    }
    can
}

/// The server sees one reader, and the last one that leaves releases the lock, whoever acquired it.
#[tokio::test]
async fn readers_join_without_a_command_and_the_last_one_releases() {
    let scene = Scene::start();
    let (locks, other) = (scene.client_with(shares()).await, scene.client().await);
    let (mut one, mut two, mut three) = (reader(&locks), reader(&locks), reader(&locks));
    let first = one.lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    let second = two.lock().await.unwrap();
    let third = three.try_lock().await.unwrap().expect("nobody writes");
    assert_eq!((scene.server.calls("evalsha"), known(&scene)), (before, 1));
    assert_eq!((first.owner_id(), second.owner_id()), (second.owner_id(), third.owner_id()));
    for (lock, guard) in [(&one, &first), (&two, &second), (&three, &third)] {
        assert_eq!((lock.hold_count(), guard.hold_count()), (1, 1), "each owner counts its own holds");
    }
    first.unlock().await.unwrap();
    drop(second);
    assert_eq!((scene.server.calls("evalsha"), one.hold_count(), two.hold_count()), (before, 0, 0));
    assert!(!can_write(&other).await);
    third.unlock().await.unwrap();
    assert!(can_write(&other).await);
    scene.end((one, two, three, locks, other)).await;
}

/// A reader that comes later than `sharing` after the grant asks the server.
#[tokio::test]
async fn a_hold_that_is_too_old_is_not_joined() {
    let (scene, locks) = Scene::with_client_of(shares().sharing(20 * MS)).await;
    let first = reader(&locks).lock().await.unwrap();
    sleep(25 * MS).await; // the time itself is what is tested
    let second = reader(&locks).lock().await.unwrap();
    assert_ne!(first.owner_id(), second.owner_id());
    scene.end((first, second, locks)).await;
}

/// Leases of their own are not shared: such a hold must end when its lease does.
#[tokio::test]
async fn readers_with_a_lease_of_their_own_share_nothing() {
    let (scene, locks) = Scene::with_client_of(shares()).await;
    let renewed = reader(&locks).lock().await.unwrap();
    let leased = reader(&locks).with(&fixed(20 * SECOND)).lock().await.unwrap();
    let bounded = reader(&locks).with(&at_most(20 * SECOND)).lock().await.unwrap();
    assert_eq!(known(&scene), 3);
    drop((renewed, leased, bounded));
    scene.quiet().await;
    let leased = reader(&locks).with(&fixed(20 * SECOND)).lock().await.unwrap();
    let renewed = reader(&locks).lock().await.unwrap();
    assert_eq!(known(&scene), 2);
    scene.end((renewed, leased, locks)).await;
}

/// While a writer of this client waits, readers do not pass it by joining.
#[tokio::test]
async fn nobody_joins_while_a_writer_of_the_client_waits() {
    let (scene, locks) = Scene::with_client_of(shares()).await;
    let first = reader(&locks).lock().await.unwrap();
    let mut waiting = tokio::spawn({
        let locks = locks.clone();
        async move { writer(&locks).lock().await.unwrap() }
    });
    eventually(
        "it stops readers",
        || scene.server.keys(),
        |keys| keys.iter().any(|key| key.contains("intent")),
    )
    .await;
    assert!(reader(&locks).try_lock().await.unwrap().is_none());
    first.unlock().await.unwrap();
    soon(&mut waiting).await.unwrap().unlock().await.unwrap();
    scene.end(locks).await;
}

/// Guarantee 7. For the server, readers that share have one hold. So the watchdog has one row for them, however many they are: five
/// hundred rows would be five commands in each period.
#[tokio::test]
async fn five_hundred_readers_that_share_are_one_renewal() {
    let scene = Scene::start();
    let period = SECOND;
    let locks = scene.client_with(shares().watchdog_lease(3 * period)).await;
    let mut guards = Vec::new();
    for _ in 0..500 {
        guards.push(reader(&locks).lock().await.unwrap());
    }
    let scripts = || scene.server.calls("evalsha");
    let before = scripts();
    eventually("the first renewal", scripts, |&scripts| scripts > before).await;
    // The hold is recorded soon after it.
    eventually("the record", || scene.server.records(), |records| records.len() == 1).await;
    let (before, start) = (scripts(), Instant::now());
    eventually("two more", scripts, |&scripts| scripts >= before + 2).await;
    // A renewal can come a part of the period early. Five commands for each period would come together.
    assert!(start.elapsed() > period / 2, "{:?} for two renewals", start.elapsed());
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    scene.end((guards, locks)).await;
}
