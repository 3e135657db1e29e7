//! The options of a lock, for permits: they are renewed, end at their longest hold, and stay for their shortest.

use tokio::time::sleep;

use super::{end, is_whole};
use crate::support::{MS, SECOND, Scene, patient, renewing};

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
