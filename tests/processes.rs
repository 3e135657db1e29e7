//! Holders that are killed or stopped: real second processes.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use lockkeeper::{Error, Lost};
use support::{Child, LIMIT, MS, SECOND, Scene, child, connect, eventually, patient, throughout, timed};
use tokio::time::{Instant, sleep};

/// Of the holder.
const LEASE: Duration = Duration::from_secs(3);

/// The second process. In a normal run there is nothing to do here.
#[tokio::test]
async fn child() {
    let Some((_, url)) = child::role() else { return };
    let locks = connect(url, patient().watchdog_lease(LEASE)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    println!("held");
    let work = async {
        for step in 0.. {
            println!("step {step}");
            sleep(5 * MS).await; // the work
        }
    };
    match guard.run(work).await {
        Err(Lost { .. }) => println!("lost"),
        other => println!("unexpected: {other:?}"),
    }
    match guard.unlock().await {
        Err(Error::NotHeld { .. }) => println!("not held"),
        other => println!("unexpected: {other:?}"),
    }
    locks.shutdown().await.unwrap();
    println!("end");
}

/// Returns when it holds the lock and is at work.
fn start(scene: &Scene) -> Child {
    let mut child = Child::start("hold", &scene.server.url());
    child.read_until("step 3");
    child
}

#[tokio::test]
async fn a_killed_holder_frees_the_lock_after_its_lease() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(60 * SECOND)).await;
    let mut child = start(&scene);
    let is_free = async || locks.rlock("a").try_lock().await.unwrap().is_some();
    throughout(LEASE + SECOND, async || assert!(!is_free().await, "it renews as long as it lives")).await;
    let killed = Instant::now();
    child.kill();
    let (guard, waited) = timed(async { locks.rlock("a").lock().await }).await;
    assert!(killed.elapsed() > LEASE / 4 && waited < LEASE + LIMIT / 2, "{waited:?}");
    guard.unwrap().unlock().await.unwrap();
    drop(child);
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn a_stopped_holder_learns_of_its_loss_with_its_first_step_and_renews_nothing() {
    let scene = Scene::start();
    let locks = scene.client_with(patient().safety_poll(60 * SECOND)).await;
    for _ in 0..3 {
        let mut child = start(&scene);
        child.signal("STOP");
        let (guard, waited) = timed(async { locks.rlock("a").lock().await }).await;
        let guard = guard.unwrap();
        assert!(waited < LEASE + LIMIT / 2, "{waited:?}");
        let holder = locks.inspect("a").await.unwrap().unwrap().holders[0].owner.clone();

        // What it printed before it was stopped is read first. It may have been stopped between a step and its line.
        child.read_all();
        child.signal("CONT");
        let after = child.read_until("lost");
        assert!(after.len() <= 2, "it went on after it was stopped for {waited:?}: {after:?}");
        assert_eq!(child.read_until("end"), ["not held", "end"]);

        assert!(!guard.is_lost());
        assert_eq!(
            locks.inspect("a").await.unwrap().unwrap().holders[0].owner,
            holder,
            "nothing was renewed over it"
        );
        guard.unlock().await.unwrap();
        eventually("it ended", || child.has_ended(), |&ended| ended).await;
    }
    drop(locks);
    scene.end().await;
}
