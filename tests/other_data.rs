//! The name of a lock is a key. If the key holds data of an application, every operation returns a typed error and the
//! data is not changed.

use crate::support::events::Events;
use crate::support::fixture::{Fixture, for_each_lock};
use crate::support::{Scene, soon};
use lockkeeper::Error;

/// What applications store, as the words of a command without the key.
const DATA: [&[&str]; 13] = [
    &["SET", "text"],
    &["RPUSH", "1"],
    &["HSET", "items", "3", "total", "42"],
    &["HSET", "items", "3"],
    &["HSET", "mode", "dark"],
    &["HSET", "mode", "read"],
    &["HSET", "mode", "write"],
    &["HSET", "mode", "write", "path", "/tmp/x"],
    &["HSET", "mode", "read", "title", "x", "size", "2"],
    &["HSET", "user:7", "Ann", "user:8", "Bob"],
    &["HSET", "item:1", "2"],
    &["HSET", "mode", "write", "item:1:write", "3000000"],
    &["HSET", "mode", "read", "item:1", "3000000"],
];

/// Guarantee 5.
async fn data_of_the_application_is_refused_and_not_changed<F: Fixture>() {
    let (scene, locks) = Scene::with_client().await;
    for data in DATA {
        scene.server.run::<()>(&[&[data[0], "cart:7"], &data[1..]].concat());
        let kept = || -> Vec<u8> { scene.server.run(&["DUMP", "cart:7"]) };
        let before = kept();
        let mut lock = F::lock(&locks, "cart:7");
        let is_refused = |error: Error| {
            let Error::WrongKind { lock, .. } = &error else { panic!("{data:?}: {error:?}") };
            assert_eq!(lock.name, "cart:7");
        };
        is_refused(soon(lock.try_lock()).await.unwrap_err());
        is_refused(soon(lock.lock()).await.unwrap_err());
        is_refused(soon(lock.force_unlock()).await.unwrap_err());
        is_refused(soon(lock.remaining_lease()).await.unwrap_err());
        is_refused(soon(locks.inspect("cart:7")).await.unwrap_err());
        // The side that the mode does not name sees no holder.
        if data[1] != "mode" || data[2] == "dark" || !F::IS_READ_WRITE {
            is_refused(soon(lock.is_locked()).await.unwrap_err());
        }
        assert_eq!(kept(), before);
        assert_eq!(scene.server.run::<i64>(&["PTTL", "cart:7"]), -1, "the data has no expiry");
        scene.server.run::<()>(&["DEL", "cart:7"]);
        drop(lock);
    }
    drop(locks);
    scene.server.run::<()>(&["FLUSHALL"]); // token counters never expire
    scene.end(()).await;
}

/// Guarantee 5. A program writes to the key of a held lock. The hold is released, and the data stays.
async fn data_that_is_written_to_a_held_lock_outlives_it<F: Fixture>() {
    let events = Events::default();
    let _collecting = events.collect();
    let (scene, locks) = Scene::with_client().await;
    let guard = F::lock(&locks, "a").lock().await.unwrap();
    scene.server.run::<()>(&["HSET", "a", "items", "3"]);
    guard.unlock().await.unwrap();
    assert_eq!(scene.server.run::<Vec<String>>(&["HGETALL", "a"]), ["items", "3"]);
    assert_eq!(scene.server.run::<i64>(&["PTTL", "a"]), -1);
    events.tell("in whose key somebody else keeps data").await;
    assert!(matches!(soon(F::rival(&locks, "a").try_lock()).await, Err(Error::WrongKind { .. })));
    scene.server.run::<()>(&["FLUSHALL"]);
    scene.end(locks).await;
}

/// Guarantee 5. The fields of Redisson's holders, `UUID:threadId` with a count, are recognized and not taken for data.
#[tokio::test]
async fn java_holders_are_not_taken_for_data() {
    let (scene, locks) = Scene::with_client().await;
    scene.server.run::<()>(&["HSET", "a", "8743c9c0-0795-4907-87fd-6c719a6b4586:77", "2"]);
    assert!(locks.rlock("a").try_lock().await.unwrap().is_none());
    assert!(locks.rlock("a").is_locked().await.unwrap());
    assert_eq!(locks.inspect("a").await.unwrap().expect("the lock is held").holders[0].holds, 2);
    assert!(locks.rlock("a").force_unlock().await.unwrap());
    scene.end(locks).await;
}

for_each_lock! { data_of_the_application_is_refused_and_not_changed }

mod written {
    use super::*;

    for_each_lock! {
        fair: FairLocks, fenced: FencedLocks, read: ReadLocks, red: SingleRedLocks, rlock: RLocks, write: WriteLocks => {
            data_that_is_written_to_a_held_lock_outlives_it
        }
    }
}
