//! A candidate whose client is shut down.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkeeper::Error;
use lockkeeper::leader::Candidate;
use tokio::time::Instant;

use super::{forget_counter, run};
use crate::support::{SECOND, Scene, eventually, patient, soon};

/// The work of a term goes on, because its section is still at work. Nothing renews the lease.
#[tokio::test]
async fn a_leader_whose_client_is_shut_down_works_until_its_lease_ends() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().watchdog_lease(3 * SECOND)).await;
    let mut running = run(Candidate::new(&locks, "a"));
    let (leadership, is_at_work) = running.begins().await;
    locks.shutdown().await.unwrap();
    assert!(!leadership.is_over() && is_at_work.load(Ordering::SeqCst));
    let result = soon(running.task).await.unwrap();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    assert!(leadership.is_over() && !is_at_work.load(Ordering::SeqCst));
    drop(locks);
    forget_counter(&scene);
    scene.end().await;
}

/// A candidate that stepped down rests for a second.
#[tokio::test]
async fn a_candidate_that_rests_learns_of_a_shutdown_at_once() {
    let scene = Scene::start();
    let mut fastest = Duration::MAX;
    // On a busy machine one try can take a second by itself.
    for _ in 0..5 {
        fastest = fastest.min(end_while_resting(&scene).await);
    }
    assert!(fastest < SECOND, "{fastest:?}");
    forget_counter(&scene);
    scene.end().await;
}

/// Returns the time from the step down to the end.
async fn end_while_resting(scene: &Scene) -> Duration {
    let locks = scene.client().await;
    let candidate = Candidate::new(&locks, "a");
    let handle = candidate.handle();
    let mut running = run(candidate);
    let (leadership, _) = running.begins().await;
    let start = Instant::now();
    handle.step_down();
    eventually("it steps down", || leadership.is_over(), |&is_over| is_over).await;
    locks.shutdown().await.unwrap();
    let result = soon(running.task).await.unwrap();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    start.elapsed()
}
