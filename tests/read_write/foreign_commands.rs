//! Commands of other clients and of administrators: which holds they end, and that they affect no other hold.

use std::time::Duration;

use lockkeeper::Error;

use crate::read_write::{can_write, holds, reader};
use crate::support::{
    SECOND, Scene, eventually, fixed, only_this_is_lost, patient, renewing, soon, throughout,
};

/// Guarantee 7. Java's watchdog sets the lease of the lock to its own, even if another reader has a longer one. Before
/// 4.4.0 it also shortened the leases of all readers. Here renewal raises them again, fixed leases to what is left of
/// them.
#[tokio::test]
async fn a_lease_that_another_client_shortened_is_raised_again() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(5 * SECOND)).await;
    for lease in [20 * SECOND, 30 * SECOND] {
        let options = if lease < 30 * SECOND { fixed(lease) } else { renewing(lease) };
        let mut lock = reader(&locks).with(&options);
        let guard = lock.lock().await.unwrap();
        let key = holds(&scene).remove(0);
        for both in [false, true] {
            scene.server.run::<()>(&["PEXPIRE", "a", "5000"]);
            if both {
                scene.server.run::<()>(&["PEXPIRE", &key, "5000"]);
            }
            let left = || ["a", &key].map(|key| scene.server.run::<i64>(&["PTTL", key]));
            let is_raised = |left: &[i64; 2]| left.iter().all(|&ms| ms > 5_100);
            let raised = eventually("the leases are raised", left, is_raised).await;
            assert!(raised.iter().all(|&ms| ms <= i64::try_from(lease.as_millis()).unwrap()), "{raised:?}");
            assert!(!can_write(&locks).await && !guard.is_lost());
        }
        if lease < 30 * SECOND {
            assert!(guard.remaining() < lease - SECOND / 4, "a fixed lease is not extended");
        }
        guard.unlock().await.unwrap();
    }
    drop(locks);
    scene.end().await;
}

/// Guarantee 7. Of several holds of one owner, the longest counts.
#[tokio::test]
async fn a_lease_is_raised_to_its_longest_hold() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(5 * SECOND)).await;
    let mut owner = locks.owner();
    let mut guards = Vec::new();
    for lease in [20 * SECOND, 60 * SECOND, 20 * SECOND] {
        guards.push(owner.read_write_lock("a").with(&fixed(lease)).read().lock().await.unwrap());
    }
    let first = holds(&scene).remove(0);
    for key in ["a", &first] {
        scene.server.run::<()>(&["PEXPIRE", key, "5000"]);
    }
    let left = || ["a", &first].map(|key| scene.server.run::<i64>(&["PTTL", key]));
    eventually("the leases are raised", left, |left| left.iter().all(|&ms| ms > 40_000)).await;
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    drop((owner, locks));
    scene.end().await;
}

/// Guarantee 2. An administrator deletes one hold. That hold is lost, and no other.
#[tokio::test]
async fn a_removed_hold_is_lost_and_affects_no_other_hold() {
    let scene = Scene::start();
    let config = patient().watchdog_lease(5 * SECOND).sharing(Duration::ZERO);
    let locks = scene.client_with(config).await;
    let first = reader(&locks).lock().await.unwrap();
    let key = holds(&scene).remove(0);
    let second = reader(&locks).lock().await.unwrap();
    scene.server.run::<()>(&["DEL", &key]);
    soon(first.ended()).await.unwrap_err();
    assert!(!second.is_lost() && !can_write(&locks).await);
    assert!(matches!(first.unlock().await, Err(Error::NotHeld { .. })));
    second.unlock().await.expect("the second hold was not removed");

    let mut lock = locks.read_write_lock("a");
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    scene.server.run::<()>(&["DEL", "a"]);
    soon(writing.ended()).await.unwrap_err();
    soon(reading.ended()).await.unwrap_err();
    drop((writing, reading));
    eventually("no key of the read hold is left", || holds(&scene), Vec::is_empty).await;
    drop((lock, locks));
    scene.end().await;
}

/// Guarantee 7. A key of a read hold is replaced by another type, or loses its expiry. At most its owner loses the
/// hold. Renewals and releases of all others work.
#[tokio::test]
async fn a_key_of_another_type_affects_no_other_hold() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(5 * SECOND)).await;
    let mut guards = Vec::new();
    for number in 0..10 {
        guards.push(locks.read_write_lock(format!("{number}")).read().lock().await.unwrap());
    }
    let broken: Vec<String> = scene.server.run(&["KEYS", "{3}:*"]);
    scene.server.run::<()>(&["DEL", &broken[0]]);
    scene.server.run::<()>(&["RPUSH", &broken[0], "a list"]);
    only_this_is_lost(guards, "3").await;
    scene.server.run::<()>(&["DEL", "3", &broken[0]]);

    // The key of another reader of the same lock.
    let fixed = reader(&locks).with(&fixed(60 * SECOND)).lock().await.unwrap();
    let key = holds(&scene).remove(0);
    scene.server.run::<()>(&["PERSIST", &key]);
    throughout(2 * SECOND, async || assert!(!fixed.is_lost() && !can_write(&locks).await)).await;
    let other = reader(&locks).lock().await.unwrap();
    scene.server.run::<()>(&["DEL", &key]);
    scene.server.run::<()>(&["RPUSH", &key, "a list"]);
    other.unlock().await.expect("the lock was held");
    assert!(!can_write(&locks).await, "a key of unknown content counts as a reader");
    drop(fixed);
    scene.server.run::<()>(&["DEL", &key]);
    drop(locks);
    scene.end().await;
}
