//! Many tasks and clients at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockkeeper::{Error, LockClient};
use tokio::task::{JoinSet, yield_now};

use crate::conformance::{Subject, client_with_lease};
use crate::support::fixture::Acquire;
use crate::support::{SECOND, Scene, Server, renewed, soon};

/// A counter that loses updates if two tasks count at the same time.
#[derive(Default)]
struct Counter(AtomicU32);

impl Counter {
    async fn count(&self) {
        let before = self.0.load(Ordering::SeqCst);
        yield_now().await;
        self.0.store(before + 1, Ordering::SeqCst);
    }
}

async fn count_under_lock<F: Subject>(locks: &LockClient, counter: &Counter) {
    let guard = F::rival(locks, "a").lock().await.unwrap();
    counter.count().await;
    guard.unlock().await.unwrap();
}

/// Guarantee 1. Redisson: testConcurrency_SingleInstance.
pub async fn tasks_of_one_client_lose_no_update<F: Subject>() {
    let (scene, locks) = Scene::with_client().await;
    let counter = Arc::new(Counter::default());
    let mut working = JoinSet::new();
    for _ in 0..15 {
        let (locks, counter) = (locks.clone(), Arc::clone(&counter));
        working.spawn(async move {
            for _ in 0..10 {
                count_under_lock::<F>(&locks, &counter).await;
            }
        });
    }
    soon(working.join_all()).await;
    assert_eq!(counter.0.load(Ordering::SeqCst), 150);
    scene.end(locks).await;
}

/// Guarantee 1. Redisson: testConcurrency_MultiInstance, testConcurrencyLoop_MultiInstance.
pub async fn many_clients_lose_no_update<F: Subject>() {
    let scene = Scene::start();
    for (clients, rounds) in [(50, 1), (8, 50)] {
        let counter = Arc::new(Counter::default());
        let mut working = JoinSet::new();
        for _ in 0..clients {
            let (locks, counter) = (scene.client().await, Arc::clone(&counter));
            working.spawn(async move {
                for _ in 0..rounds {
                    count_under_lock::<F>(&locks, &counter).await;
                }
            });
        }
        soon(working.join_all()).await;
        assert_eq!(counter.0.load(Ordering::SeqCst), clients * rounds);
    }
    scene.end(()).await;
}

/// Guarantees 2 and 6. Redisson: RedissonLockExpirationRenewalTest.
pub async fn locks_work_again_after_the_server_lost_its_data<F: Subject>() {
    let mut scene = Scene::with(Server::start());
    let locks = client_with_lease(&scene, 5 * SECOND).await;
    let mut lock = F::lock(&locks, "a");
    for _ in 0..2 {
        let guard = lock.lock().await.unwrap();
        scene.server.restart();
        soon(guard.ended()).await.unwrap_err();
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
        let guard = soon(lock.lock()).await.unwrap();
        renewed(&guard).await;
        guard.unlock().await.unwrap();
    }
    scene.end((lock, locks)).await;
}
