//! Holders in a second, real process that is killed or stopped.

use std::time::Duration;

use crate::support::{Child, LIMIT, MS, SECOND, Scene, child, connect, eventually, patient, timed};
use lockkeeper::{Error, Lost};
use tokio::time::sleep;

/// Watchdog lease of the holder.
const LEASE: Duration = Duration::from_secs(3);

/// The second process. In a normal test run it does nothing.
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

/// Starts a holder. Returns when it holds the lock and works.
fn start(scene: &Scene) -> Child {
    let mut child = Child::start("processes::child", "hold", &scene.server.url());
    child.read_until("step 3");
    child
}

/// Guarantees 1, 2 and 6.
#[tokio::test]
async fn a_stopped_holder_notices_its_loss_within_one_step_and_renews_nothing() {
    let (scene, locks) = Scene::with_client_of(patient().safety_poll(60 * SECOND)).await;
    for _ in 0..3 {
        let mut child = start(&scene);
        child.signal("STOP");
        let (guard, waited) = timed(async { locks.rlock("a").lock().await }).await;
        let guard = guard.unwrap();
        assert!(waited < LEASE + LIMIT / 2, "{waited:?}");
        let holder = locks.inspect("a").await.unwrap().unwrap().holders[0].owner.clone();

        // First read the output from before the stop. The stop may fall between a step and the line of that step.
        child.read_all();
        child.signal("CONT");
        let after = child.read_until("lost");
        assert!(after.len() <= 2, "it continued to work after a stop of {waited:?}: {after:?}");
        assert_eq!(child.read_until("end"), ["not held", "end"]);

        assert!(!guard.is_lost());
        assert_eq!(
            locks.inspect("a").await.unwrap().unwrap().holders[0].owner,
            holder,
            "the old holder must not renew over the new one"
        );
        guard.unlock().await.unwrap();
        eventually("the process ended", || child.has_ended(), |&ended| ended).await;
    }
    scene.end(locks).await;
}
