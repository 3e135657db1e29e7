//! Faults of the connection: a lost reply, a copy that runs late, a cut. curator#855: a semaphore that stopped granting under network
//! stress. redisson#6302 and #3573 are about replies and leases of permits.

use lockkeeper::Error;

use super::{end, is_whole};
use crate::support::{MS, Scene, connect, fixed, patient, soon};

/// The server refuses a script in the middle, because the user may not run one of its commands.
#[tokio::test]
async fn a_user_without_a_right_costs_no_permit_and_adds_none() {
    let (scene, locks) = Scene::with_client().await;
    let semaphore = locks.semaphore("a", 3);
    for right in ["incrby", "pttl", "pexpire"] {
        let narrow = connect(scene.user(&format!("~* &* +@all -{right}")), patient()).await;
        let theirs = narrow.semaphore("a", 3);
        let may_fail = |found: &Result<_, Error>| {
            assert!(right != "incrby" || matches!(found, Err(Error::Permission(_))), "{found:?}");
        };
        drop(semaphore.acquire().await.unwrap()); // the semaphore is there
        is_whole(&scene, &semaphore, 3).await;
        for _ in 0..5 {
            may_fail(&theirs.try_acquire().await.map(|permit| permit.map(drop)));
        }
        is_whole(&scene, &semaphore, 3).await;
        // The permit stays, as one whose lease has ended.
        let permit = semaphore.acquire().await.unwrap();
        may_fail(&theirs.force_unlock(permit.id()).await.map(Some).map(|permit| permit.map(drop)));
        drop(permit);
        soon(semaphore.acquire_many(3)).await.unwrap().unlock().await.unwrap();
        is_whole(&scene, &semaphore, 3).await;
        // Those of a process that died.
        let dead = semaphore.clone().with(&fixed(200 * MS)).acquire_many(3).await.unwrap();
        dead.leak();
        soon(async { while semaphore.available_permits().await.unwrap() < 3 {} }).await;
        may_fail(&theirs.try_acquire().await.map(|permit| permit.map(drop)));
        soon(semaphore.acquire_many(3)).await.unwrap().unlock().await.unwrap();
        is_whole(&scene, &semaphore, 3).await;
        drop((theirs, narrow));
    }
    drop(semaphore);
    end(scene, [locks]).await;
}
