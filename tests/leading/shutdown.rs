//! A candidate whose client is shut down.

use std::sync::atomic::Ordering;

use lockkeeper::Error;
use lockkeeper::leader::Candidate;

use super::{forget_counter, run};
use crate::support::{SECOND, Scene, patient, soon};

/// The work of a term goes on, because its section is still at work. Nothing renews the lease.
#[tokio::test]
async fn a_leader_whose_client_is_shut_down_works_until_its_lease_ends() {
    let (scene, locks) = Scene::with_client_of(patient().watchdog_lease(3 * SECOND)).await;
    let mut running = run(Candidate::new(&locks, "a"));
    let (leadership, is_at_work) = running.begins().await;
    locks.shutdown().await.unwrap();
    assert!(!leadership.is_over() && is_at_work.load(Ordering::SeqCst));
    let result = soon(running.task).await.unwrap();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    assert!(leadership.is_over() && !is_at_work.load(Ordering::SeqCst));
    drop(locks);
    forget_counter(&scene);
    scene.end(()).await;
}
