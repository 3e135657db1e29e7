//! Readers and writers exclude each other.

use std::sync::{Arc, Mutex};

use lockkeeper::LockGuard;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::{LIMIT, MS, Scene, eventually, fixed};

/// The guards inside the section, and whether each writes.
type Section = Mutex<Vec<(Arc<LockGuard>, bool)>>;

/// A guard inside the section, until this is dropped.
struct Inside<'a>(&'a Section, Arc<LockGuard>);

impl<'a> Inside<'a> {
    /// On a busy machine a thread may stall in here for longer than a lease. A guard that is lost by then does not
    /// count: its holder has to check before it does anything.
    fn enter(section: &'a Section, guard: &Arc<LockGuard>, writes: bool) -> Self {
        let mut inside = section.lock().unwrap();
        let conflicts = |(other, other_writes): &(Arc<LockGuard>, bool)| {
            (writes || *other_writes) && !other.is_lost() && !guard.is_lost()
        };
        assert!(!inside.iter().any(conflicts), "a writer is inside beside another holder");
        inside.push((Arc::clone(guard), writes));
        Self(section, Arc::clone(guard))
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().retain(|(other, _)| !Arc::ptr_eq(other, &self.1));
    }
}

/// Guarantee 1. Readers and writers of several clients, whose leases end now and then while they hold the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_exclude_each_other_although_leases_end() {
    let scene = Scene::start();
    let section = Arc::<Section>::default();
    let mut working = JoinSet::new();
    for task in 0..12_usize {
        let (locks, section) = (scene.client().await, Arc::clone(&section));
        working.spawn(async move {
            for round in 0..60_usize {
                let mut lock = locks.read_write_lock("a").with(&fixed(80 * MS));
                let writes = (task + round) % 4 == 0;
                let guard = match writes {
                    true => lock.write().lock().await.unwrap(),
                    false => lock.read().lock().await.unwrap(),
                };
                let guard = Arc::new(guard);
                let _ = guard
                    .run(async {
                        let _inside = Inside::enter(&section, &guard, writes);
                        sleep(MS * u32::try_from(round % 3).unwrap()).await;
                    })
                    .await;
                let guard = Arc::into_inner(guard).unwrap();
                if round % 7 == 0 {
                    guard.leak(); // like a holder that dies: its lease ends
                } else {
                    drop(guard);
                }
            }
            locks.shutdown().await.unwrap();
        });
    }
    tokio::time::timeout(3 * LIMIT, working.join_all()).await.expect("every task ends");
    drop(section);
    eventually("the last lease ends", || scene.server.run::<usize>(&["DBSIZE"]), |&keys| keys == 0).await;
    scene.end().await;
}
