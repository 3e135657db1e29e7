//! Guarantees 11 and 12, for permits: a future or a permit that is dropped at any point leaves nothing behind. curator#835, curator#982:
//! an acquire that was interrupted kept its permit for ever.

use std::task::Poll;

use tokio::task::yield_now;
use tokio_test::task::spawn;

use super::{end, is_whole};
use crate::support::{MS, SECOND, Scene, patient, soon, woken};
use tokio::time::sleep;

/// More polls than any future here needs.
const MOST_POLLS: usize = 200;

/// Drops a future after 1, 2, 3 … polls, until it completes; at once, when its command is on its way, and when the answer is there.
macro_rules! sweep {
    ($each:ident, $future:expr) => {
        for pause in 0..3 {
            let mut polls = 1;
            loop {
                let mut future = spawn($future);
                let mut is_done = false;
                for poll in 1..=polls {
                    if let Poll::Ready(permit) = future.poll() {
                        drop(permit);
                        is_done = true;
                        break;
                    }
                    if poll < polls {
                        woken(&mut future).await;
                    }
                }
                match pause {
                    _ if is_done => {}
                    0 => {}
                    1 => yield_now().await,
                    _ => woken(&mut future).await,
                }
                drop(future);
                $each().await;
                if is_done {
                    break;
                }
                polls += 1;
                assert!(polls < MOST_POLLS, "the future did not complete in {polls} polls");
            }
            assert!(polls > 1, "the future never waited");
        }
    };
}

#[tokio::test]
async fn a_dropped_acquire_leaves_no_permit() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(3_600 * SECOND)).await;
    let semaphore = locks.semaphore("a", 3);
    let each = async || {
        // All permits can be acquired at once, not after a lease.
        soon(semaphore.acquire_many(3)).await.unwrap().unlock().await.unwrap();
    };
    sweep!(each, semaphore.acquire());
    sweep!(each, semaphore.acquire_many(3));
    sweep!(each, semaphore.try_acquire_many(2));
    sweep!(each, async { semaphore.acquire().await.unwrap().unlock().await });
    is_whole(&scene, &semaphore, 3).await;
    drop(semaphore);
    end(scene, [locks]).await;
}

#[tokio::test]
async fn a_dropped_wait_leaves_no_permit_and_hides_none() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(3_600 * SECOND)).await;
    let semaphore = locks.semaphore("a", 2);
    for wanted in [1, 2] {
        let mut holders = Vec::new();
        let each = async || {
            soon(semaphore.acquire_many(2)).await.unwrap().unlock().await.unwrap();
        };
        sweep!(each, async {
            let held = semaphore.acquire_many(2).await.unwrap();
            let releasing = tokio::spawn(async move {
                sleep(10 * MS).await;
                held.unlock().await.unwrap();
            });
            let behind = tokio::spawn({
                let semaphore = semaphore.clone();
                async move {
                    sleep(5 * MS).await;
                    semaphore.acquire().await.unwrap().unlock().await.unwrap();
                }
            });
            let permit = semaphore.acquire_many(wanted).await;
            (permit, releasing, behind)
        });
        holders.push(wanted);
    }
    is_whole(&scene, &semaphore, 2).await;
    drop(semaphore);
    end(scene, [locks]).await;
}
