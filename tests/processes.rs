//! Holders that are killed or stopped: real second processes.

#[path = "support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use lockkeeper::{Error, LockClient, LockConfig};
use support::{MS, SECOND, Scene, eventually, server::signal, timed};
use tokio::time::sleep;

const LEASE: std::time::Duration = SECOND;

fn config() -> LockConfig {
    LockConfig::default().watchdog_lease(LEASE)
}

/// The second process: this test binary, told by its environment to be an actor. In a normal run there is nothing to
/// do here.
#[tokio::test]
async fn actor() {
    let Ok(url) = std::env::var("LOCKKEEPER_ACTOR_URL") else { return };
    let locks = LockClient::new(url, config()).await.unwrap();
    let guard = locks.rlock("a").lock().await.unwrap();
    println!("held");
    let work = async {
        for step in 0.. {
            println!("step {step}");
            sleep(5 * MS).await;
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

struct Actor {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    /// Returns when it holds the lock and is at work.
    fn start(scene: &Scene) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "actor", "--nocapture"])
            .env("LOCKKEEPER_ACTOR_URL", scene.server.url())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut actor = Self { process, lines };
        actor.read_until("step 3");
        actor
    }

    /// The lines up to this one, which end with it.
    fn read_until(&mut self, last: &str) -> Vec<String> {
        let mut read = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            assert!(!line.contains("unexpected"), "{line}");
            let is_last = line == last;
            read.push(line);
            if is_last {
                return read;
            }
        }
        panic!("no {last:?} in {read:?}");
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn a_killed_holder_frees_the_lock_after_its_lease() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    let mut actor = Actor::start(&scene);
    sleep(2 * LEASE).await;
    assert!(locks.rlock("a").try_lock().await.unwrap().is_none(), "it renews as long as it lives");
    actor.process.kill().unwrap();
    let (guard, waited) = timed(async { locks.rlock("a").lock().await }).await;
    assert!(waited > LEASE / 2 && waited < LEASE + 500 * MS, "{waited:?}");
    guard.unwrap().unlock().await.unwrap();
    drop(actor);
    drop(locks);
    scene.end().await;
}

#[tokio::test]
async fn a_stopped_holder_learns_of_its_loss_with_its_first_step_and_renews_nothing() {
    let scene = Scene::start();
    let locks = scene.client_with(config()).await;
    for _ in 0..3 {
        let mut actor = Actor::start(&scene);
        signal(actor.process.id(), "STOP");
        let (guard, waited) = timed(async { locks.rlock("a").lock().await }).await;
        let guard = guard.unwrap();
        assert!(waited < LEASE + 500 * MS, "{waited:?}");
        let holder = locks.inspect("a").await.unwrap().unwrap().holders[0].owner.clone();

        // What it printed before it was stopped lies in the pipe; a mark tells it from what comes after.
        let before = {
            sleep(20 * MS).await;
            signal(actor.process.id(), "CONT");
            actor.read_until("lost")
        };
        let steps = before.iter().filter(|line| line.starts_with("step")).count();
        assert_eq!(actor.read_until("end"), ["not held", "end"]);
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
        eventually("it ended", || actor.process.try_wait().unwrap(), Option::is_some).await;
    }
    drop(locks);
    scene.end().await;
}
