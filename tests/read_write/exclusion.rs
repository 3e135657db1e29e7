//! Readers and writers never meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::{LIMIT, MS, Scene, eventually};

/// A share of a section, until it is dropped.
struct Inside<'a>(&'a AtomicUsize, usize);

impl<'a> Inside<'a> {
    const ALL: usize = 1_000;

    fn enter(inside: &'a AtomicUsize, share: usize) -> Self {
        let before = inside.fetch_add(share, Ordering::SeqCst);
        assert!(before + share <= Self::ALL, "{before} are inside");
        Self(inside, share)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// Readers and writers of several clients, whose leases end now and then while they are at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_never_meet_although_leases_end() {
    let scene = Scene::start();
    let inside = Arc::new(AtomicUsize::new(0));
    let mut working = JoinSet::new();
    for task in 0..12_usize {
        let (locks, inside) = (scene.client().await, Arc::clone(&inside));
        working.spawn(async move {
            for round in 0..60_usize {
                let mut lock = locks.read_write_lock("a").lease(80 * MS);
                let writes = (task + round) % 4 == 0;
                let guard = match writes {
                    true => lock.write().lock().await.unwrap(),
                    false => lock.read().lock().await.unwrap(),
                };
                let share = if writes { Inside::ALL } else { 1 };
                let _ = guard
                    .run(async {
                        let _inside = Inside::enter(&inside, share);
                        sleep(MS * u32::try_from(round % 3).unwrap()).await;
                    })
                    .await;
                if round % 7 == 0 {
                    guard.leak(); // it dies, and its lease ends
                } else {
                    drop(guard);
                }
            }
            locks.shutdown().await.unwrap();
        });
    }
    tokio::time::timeout(3 * LIMIT, working.join_all()).await.expect("nobody is left waiting");
    drop(inside);
    eventually("the last lease ends", || scene.server.run::<usize>(&["DBSIZE"]), |&keys| keys == 0).await;
    scene.end().await;
}
