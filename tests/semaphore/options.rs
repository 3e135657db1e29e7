//! The options of a lock, for permits: they are renewed, end at their longest hold, and stay for their shortest.

use lockkeeper::{Error, LockOptions};
use tokio::time::{Instant, sleep};

use super::{end, is_whole};
use crate::support::{MS, SECOND, Scene, at_least, at_most, eventually, fixed, patient, renewing, soon};

/// Guarantee 7. All permits of a batch are renewed, and those of several holds with one command.
#[tokio::test]
async fn the_watchdog_renews_permits_in_batches() {
    let scene = Scene::start();
    let lease = SECOND;
    let locks = scene.client_with(patient().watchdog_lease(lease)).await;
    let semaphore = locks.semaphore("a", 50);
    let mut permits = vec![semaphore.acquire_many(3).await.unwrap()];
    for _ in 0..40 {
        permits.push(semaphore.acquire().await.unwrap());
    }
    let short = semaphore.clone().with(&renewing(500 * MS)).acquire().await.unwrap();
    let before = scene.server.scripts();
    sleep(3 * lease).await;
    assert!(permits.iter().chain([&short]).all(|permit| !permit.is_lost()));
    assert_eq!(semaphore.available_permits().await.unwrap(), 50 - 44);
    let scripts = scene.server.scripts() - before;
    // Nine thirds of a lease, over which the renewals are spread, and 18 of the short lease.
    assert!(scripts < 300, "{scripts} scripts");
    for permit in permits {
        permit.unlock().await.unwrap();
    }
    short.unlock().await.unwrap();
    is_whole(&scene, &semaphore, 50).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

#[tokio::test]
async fn a_fixed_lease_is_lost_at_its_end_and_its_permit_comes_back() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let semaphore = locks.semaphore("a", 1);
    let permit = semaphore.clone().with(&fixed(500 * MS)).acquire().await.unwrap();
    permit.extend(SECOND).await.unwrap();
    assert!(permit.remaining() > 600 * MS);
    let begin = Instant::now();
    assert!(permit.run(std::future::pending::<()>()).await.is_err());
    assert!(begin.elapsed() > 500 * MS && permit.is_lost() && permit.remaining().is_zero());
    assert!(matches!(permit.extend(SECOND).await, Err(Error::Lost(_))));
    let next = soon(semaphore.acquire()).await.unwrap();
    assert!(matches!(permit.unlock().await, Err(Error::NotHeld(_))));
    assert!(semaphore.try_acquire().await.unwrap().is_none(), "a release of the lost permit adds none");
    next.unlock().await.unwrap();
    is_whole(&scene, &semaphore, 1).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

#[tokio::test]
async fn a_permit_ends_at_its_longest_hold_and_stays_for_its_shortest() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let semaphore = locks.semaphore("a", 1);
    let longest = semaphore.clone().with(&at_most(300 * MS)).acquire().await.unwrap();
    soon(longest.ended()).await.unwrap_err();
    // The background releases it, long before the lease ends.
    let kept = soon(semaphore.clone().with(&at_least(500 * MS)).acquire()).await.unwrap();
    let begin = Instant::now();
    kept.unlock().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none(), "it is kept");
    let next = soon(semaphore.acquire()).await.unwrap();
    assert!(begin.elapsed() > 400 * MS);
    drop((longest, next));
    is_whole(&scene, &semaphore, 1).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

#[tokio::test]
async fn run_releases_the_permit_and_reports_a_loss() {
    let scene = Scene::start();
    let locks = scene.client().await;
    let semaphore = locks.semaphore("a", 1);
    assert_eq!(semaphore.run(async { 7 }).await.unwrap(), 7);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    let short = semaphore.clone().with(&LockOptions::builder().fixed(200 * MS).build().unwrap());
    let lost = soon(short.run(std::future::pending::<()>())).await.unwrap_err();
    assert!(lost.work_was_unprotected(), "{lost:?}");
    drop(short);
    let available = async || semaphore.available_permits().await.unwrap();
    while available().await == 0 {
        sleep(10 * MS).await;
    }
    eventually("nothing is held", || scene.server.run::<u32>(&["ZCARD", "{a}:timeout"]), |&held| held == 0)
        .await;
    is_whole(&scene, &semaphore, 1).await;
    drop(semaphore);
    end(scene, [locks]).await;
}
