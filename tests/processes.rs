//! Holders that are killed or stopped: real second processes.

#[path = "support/mod.rs"]
mod support;

use lockkeeper::{Error, LockClient, LockConfig};
use support::{Child, MS, SECOND, Scene, child, eventually, throughout, timed};
use tokio::time::sleep;

const LEASE: std::time::Duration = SECOND;

fn config() -> LockConfig {
    LockConfig::default().watchdog_lease(LEASE)
}

/// The second process. In a normal run there is nothing to do here.
#[tokio::test]
async fn child() {
    let Some((_, url)) = child::role() else { return };
    let locks = LockClient::new(url, config()).await.unwrap();
    let guard = locks.rlock("a").lock().await.unwrap();
    println!("held");
    let work = async {
        for step in 0.. {
            println!("step {step}");
            sleep(5 * MS).await; // the work
        }
    };
    match guard.run(work).await {
        Err(Error::Lost { .. }) => println!("lost"),
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
    let locks = scene.client_with(config()).await;
    let mut child = start(&scene);
    let is_free = async || locks.rlock("a").try_lock().await.unwrap().is_some();
    throughout(2 * LEASE, async || assert!(!is_free().await, "it renews as long as it lives")).await;
    child.kill();
    let (guard, waited) = timed(async { locks.rlock("a").lock().await }).await;
    assert!(waited > LEASE / 2 && waited < LEASE + 500 * MS, "{waited:?}");
    guard.unwrap().unlock().await.unwrap();
    drop(child);
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn a_stopped_holder_learns_of_its_loss_with_its_first_step_and_renews_nothing() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    for _ in 0..3 {
        let mut child = start(&scene);
        child.signal("STOP");
        let (guard, waited) = timed(async { locks.rlock("a").lock().await }).await;
        let guard = guard.unwrap();
        assert!(waited < LEASE + 500 * MS, "{waited:?}");
        let holder = locks.inspect("a").await.unwrap().unwrap().holders[0].owner.clone();

        // What it printed before it was stopped lies in the pipe; a mark tells it from what comes after.
        child.signal("CONT");
        let before = child.read_until("lost");
        let steps = before.iter().filter(|line| line.starts_with("step")).count();
        assert_eq!(child.read_until("end"), ["not held", "end"]);
        assert_eq!(before.last().map(String::as_str), Some("lost"));
        let numbers: Vec<_> =
            before.iter().filter_map(|line| line.strip_prefix("step ")?.parse::<usize>().ok()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert!(steps < 20, "{steps} steps: it went on after it was stopped for {waited:?}");

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
