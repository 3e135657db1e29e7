//! How permits end: by force, with the data of the server, with their process, and at a shutdown.

use lockkeeper::Error;

use super::{end, is_whole};
use crate::support::{SECOND, Scene};

/// One permit of a batch is gone, so all are lost. The others come back.
#[tokio::test]
async fn a_batch_of_which_a_permit_is_gone_is_lost_and_gives_the_others_back() {
    let (scene, locks) = Scene::with_client().await;
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
