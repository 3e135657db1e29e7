//! One queue for both languages: fair locks with Java and Rust waiters.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::{LockClient, LockConfig};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Java;
use crate::support::{Child, SECOND, Scene, eventually, soon};

/// Java's scores contain the remaining lease, so a short lease lets a dead waiter go sooner.
const WATCHDOG: Duration = Duration::from_secs(6);

/// The numbers of the waiters, in the order in which they held the lock.
type Served = Arc<Mutex<Vec<usize>>>;

struct Mixed {
    scene: Scene,
    java: Java,
    locks: LockClient,
}

impl Mixed {
    async fn start() -> Self {
        let scene = Scene::start();
        let java = Java::with(&scene, &[&format!("watchdog={}", WATCHDOG.as_millis())]).await;
        let config = LockConfig::builder().watchdog_lease(WATCHDOG);
        let locks = scene.client_with(config).await;
        Self { scene, java, locks }
    }

    fn queue(&self) -> usize {
        self.scene.server.run(&["LLEN", "redisson_lock_queue:{a}"])
    }

    async fn queued(&self, count: usize) {
        eventually(&format!("the queue has {count} waiters"), || self.queue(), |&len| len == count).await;
    }

    /// Starts a waiter with this number, which records it in its section. Returns when it is queued.
    async fn queues(&self, number: usize, is_java: bool, served: &Served) -> JoinHandle<()> {
        let before = self.queue();
        let (actor, locks) = (self.java.actor(&number.to_string(), "fair"), self.locks.clone());
        let served = Arc::clone(served);
        let waiting = tokio::spawn(async move {
            if is_java {
                actor.lock("a").await.unwrap();
                served.lock().unwrap().push(number);
                actor.unlock("a").await.unwrap();
            } else {
                let guard = locks.fair_lock("a").lock().await.unwrap();
                served.lock().unwrap().push(number);
                guard.unlock().await.unwrap();
            }
        });
        self.queued(before + 1).await;
        waiting
    }

    async fn end(self) {
        self.java.end(&self.scene).await;
        drop(self.locks);
        self.scene.end(()).await;
    }
}

/// Guarantee 9. Each grant in Java lowers the scores of all waiters by five minutes. Five grants fall between two
/// heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mixed_queue_is_served_in_the_order_of_arrival() {
    let mixed = Mixed::start().await;
    for pattern in ["JRJRJRJRJRJR", "JJJJJJR", "RJJJJJJRRJRJ"] {
        let guard = mixed.locks.fair_lock("a").lock().await.unwrap();
        let served = Served::default();
        let mut waiting = Vec::new();
        for (number, who) in pattern.chars().enumerate() {
            waiting.push(mixed.queues(number, who == 'J', &served).await);
        }
        guard.unlock().await.unwrap();
        let start = Instant::now();
        for waiter in waiting {
            soon(waiter).await.unwrap();
        }
        assert_eq!(*served.lock().unwrap(), (0..pattern.len()).collect::<Vec<_>>(), "{pattern}");
        println!("{pattern}: {:?}", start.elapsed());
    }
    mixed.end().await;
}

/// Guarantee 9. A Rust waiter further behind removes the dead one and notifies Java.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_rust_process_is_passed_over() {
    let mixed = Mixed::start().await;
    let holder = mixed.java.actor("holder", "fair");
    holder.lock("a").await.unwrap();
    let mut process = Child::start("child", "fair hold", &mixed.scene.server.url());
    mixed.queued(1).await;
    let served = Served::default();
    let java = mixed.queues(1, true, &served).await;
    let rust = mixed.queues(2, false, &served).await;
    process.kill();
    holder.unlock("a").await.unwrap();
    soon(java).await.unwrap(); // Java alone would take a minute
    soon(rust).await.unwrap();
    assert_eq!(*served.lock().unwrap(), [1, 2]);
    mixed.end().await;
}

/// Guarantee 9. A dead Java waiter delays the queue for the wait time that it had announced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_java_process_is_passed_over() {
    let mixed = Mixed::start().await;
    let guard = mixed.locks.fair_lock("a").lock().await.unwrap();
    let dying = Java::start(&mixed.scene).await;
    let waiter = dying.actor("dying", "fair");
    let dead = tokio::spawn(async move { waiter.try_lock_within("a", 6 * SECOND).await });
    mixed.queued(1).await;
    let served = Served::default();
    let waiting = mixed.queues(1, false, &served).await;
    dying.kill().await;
    assert!(soon(dead).await.unwrap().is_err());
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    mixed.end().await;
}
