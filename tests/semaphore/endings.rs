//! How permits end: by force, with the data of the server, with their process, and at a shutdown.

use lockkeeper::Error;
use tokio::time::sleep;

use super::{end, is_whole};
use crate::support::{MS, SECOND, Scene, eventually, listens, patient, soon};

#[tokio::test]
async fn a_permit_that_is_released_by_force_is_told_to_its_holder() {
    let scene = Scene::start();
    let (locks, beside) =
        (scene.client_with(patient().safety_poll(3_600 * SECOND)).await, scene.client().await);
    let semaphore = locks.semaphore("a", 2);
    let (batch, other) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    listens(&scene.server).await;
    assert!(beside.semaphore("a", 2).force_unlock(batch.id()).await.unwrap());
    let next = soon(waiting).await.unwrap();
    assert!(!beside.semaphore("a", 2).force_unlock(batch.id()).await.unwrap(), "it is gone");
    assert!(matches!(batch.extend(30 * SECOND).await, Err(Error::Lost(_))));
    assert!(batch.is_lost() && !other.is_lost() && !next.is_lost());
    assert!(matches!(batch.unlock().await, Err(Error::NotHeld(_))));
    assert_eq!(
        semaphore.available_permits().await.unwrap(),
        0,
        "a release of a permit that is gone adds none"
    );
    drop((other, next));
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks, beside]).await;
}

/// One permit of a batch is gone, so all are lost. The others come back.
#[tokio::test]
async fn a_batch_of_which_a_permit_is_gone_is_lost_and_gives_the_others_back() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let semaphore = locks.semaphore("a", 3);
    for tells in [true, false] {
        let batch = semaphore.acquire_many(3).await.unwrap();
        let ids: Vec<_> = batch.ids().collect();
        assert!(semaphore.force_unlock(ids[1]).await.unwrap());
        if tells {
            assert!(matches!(batch.extend(60 * SECOND).await, Err(Error::Lost(_))));
        }
        assert!(matches!(batch.unlock().await, Err(Error::NotHeld(_))));
        is_whole(&scene, &semaphore, 3).await;
    }
    drop(semaphore);
    end(scene, [locks]).await;
}

/// The data is lost, or deleted by hand: permits are told at their next renewal, and the number is repaired.
#[tokio::test]
async fn deleted_keys_are_told_at_the_next_renewal() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(SECOND)).await;
    let semaphore = locks.semaphore("a", 2);
    let permit = semaphore.acquire().await.unwrap();
    scene.server.run::<()>(&["DEL", "a", "{a}:timeout"]);
    soon(permit.ended()).await.unwrap_err();
    assert!(matches!(permit.unlock().await, Err(Error::NotHeld(_))));
    assert_eq!(
        semaphore.available_permits().await.unwrap(),
        2,
        "a new semaphore has the number of the program"
    );

    // Of the set alone: its permits never come back, so the total is too small until it is set anew.
    let permit = semaphore.acquire().await.unwrap();
    scene.server.run::<()>(&["DEL", "{a}:timeout"]);
    soon(permit.ended()).await.unwrap_err();
    assert!(permit.unlock().await.is_err());
    let one = semaphore.try_acquire().await.unwrap().expect("one of one");
    assert!(matches!(soon(semaphore.acquire_many(2)).await, Err(Error::InvalidPermits { total: 1, .. })));
    semaphore.resize(2).await.unwrap();
    one.unlock().await.unwrap();
    is_whole(&scene, &semaphore, 2).await;

    // Of the set alone while all permits were in use: nothing is left, so the number of the program counts again.
    let both = semaphore.acquire_many(2).await.unwrap();
    let _: u64 = scene.server.run(&["EXPIRE", "a", "1000"]);
    scene.server.run::<()>(&["DEL", "{a}:timeout"]);
    assert_eq!((semaphore.available_permits().await.unwrap(), semaphore.total().await.unwrap()), (2, 2));
    soon(both.ended()).await.unwrap_err();
    assert!(matches!(both.unlock().await, Err(Error::NotHeld(_))));
    assert!(matches!(semaphore.acquire_many(3).await, Err(Error::InvalidPermits { total: 2, .. })));
    let one = semaphore.acquire().await.unwrap();
    let two = semaphore.acquire().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    drop((one, two));
    is_whole(&scene, &semaphore, 2).await;
    assert!(scene.server.run::<i64>(&["TTL", "a"]) > 900, "an expiry stays");

    // Of the number alone: permits in use count.
    let permit = semaphore.acquire().await.unwrap();
    scene.server.run::<()>(&["DEL", "a"]);
    let second = semaphore.try_acquire().await.unwrap().expect("one of two is in use");
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    scene.server.run::<()>(&["DEL", "a"]);
    permit.unlock().await.unwrap();
    second.unlock().await.unwrap();
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

/// The number of available permits stays after the last release, and nothing else.
#[tokio::test]
async fn only_the_number_stays_after_the_last_release() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let semaphore = locks.semaphore("a", 2);
    semaphore.acquire_many(2).await.unwrap().unlock().await.unwrap();
    eventually("the set is gone", || scene.server.keys(), |keys| keys == &["a"]).await;
    sleep(10 * MS).await;
    assert!(scene.server.channels().is_empty());
    assert!(semaphore.delete().await.unwrap() && !semaphore.delete().await.unwrap());
    assert!(scene.server.keys().is_empty());
    drop(semaphore);
    end(scene, [locks]).await;
}
