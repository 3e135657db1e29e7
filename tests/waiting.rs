//! Guarantees 8, 9 and 10: a message wakes a waiter, waiting costs little, and no fault makes a waiter sleep on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{LIMIT, MS, Scene, connect, eventually, patient, soon, throughout, timed};
use lockkeeper::{LockClient, LockConfigBuilder, Source};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// Only messages wake a waiter.
fn never_polls() -> LockConfigBuilder {
    patient().safety_poll(Duration::from_secs(3_600))
}

/// Far below the lease of 30 s, at the end of which a waiter would attempt by itself.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Starts a waiter. Returns the time at which it acquired the lock.
fn wait_for(locks: &LockClient, name: &'static str) -> JoinHandle<Instant> {
    let locks = locks.clone();
    tokio::spawn(async move {
        let guard = locks.rlock(name).lock().await.unwrap();
        let at = Instant::now();
        guard.unlock().await.unwrap();
        at
    })
}

async fn listens(scene: &Scene, channels: usize) {
    eventually("the waiter subscribes", || scene.server.channels(), |found| found.len() == channels).await;
}

/// A waiter that has attempted, subscribed and attempted again. From here on it sleeps.
async fn sleeper(scene: &Scene, locks: &LockClient) -> JoinHandle<Instant> {
    let before = attempts(scene);
    let waiting = wait_for(locks, "a");
    listens(scene, 1).await;
    eventually("the waiter attempts again", || attempts(scene), |&now| now >= before + 2).await;
    waiting
}

/// How often an acquire script was refused. No other script calls the command.
fn attempts(scene: &Scene) -> u64 {
    scene.server.calls("pttl")
}

/// The ids of the connections that are subscribed.
fn listeners(scene: &Scene) -> Vec<String> {
    let list: String = scene.server.run(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next().map(str::to_owned)).collect()
}

/// Guarantee 8. The release falls between the refused attempt and the subscription, again and again.
#[tokio::test]
async fn a_release_while_the_waiter_subscribes_is_not_missed() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client_with(never_polls()).await);
    for round in 0..200_u64 {
        let guard = theirs.rlock("a").lock().await.unwrap();
        let waiting = wait_for(&ours, "a");
        sleep(Duration::from_micros(round * 13 % 1_500)).await; // at a different moment in each round
        guard.unlock().await.unwrap();
        soon(waiting).await.unwrap();
    }
    scene.end((ours, theirs)).await;
}

/// Guarantees 8 and 10.
#[tokio::test]
async fn a_killed_subscription_is_restored_and_no_release_is_missed() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client().await);
    for released_before_it_is_back in [true, false] {
        let guard = theirs.rlock("a").lock().await.unwrap();
        let waiting = wait_for(&ours, "a");
        listens(&scene, 1).await;
        let old = listeners(&scene);
        let killed: u32 = scene.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(killed, 1);
        if !released_before_it_is_back {
            eventually(
                "the client subscribes again",
                || listeners(&scene),
                |new| new.len() == 1 && *new != old,
            )
            .await;
        }
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let woken = soon(waiting).await.unwrap() - released;
        assert!(woken < AT_ONCE, "{woken:?}");
    }
    scene.end((ours, theirs)).await;
}

/// Guarantee 10. The client was subscribed, and can no longer subscribe: nothing tells the waiter that it has to poll.
#[tokio::test]
async fn a_subscription_that_is_lost_for_good_degrades_to_polling() {
    let scene = Scene::start();
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "on", ">s", "~*", "&*", "+@all"]);
    let url = format!("redis://u:s@127.0.0.1:{}/", scene.server.port());
    let (ours, theirs) = (connect(url, never_polls()).await, scene.client().await);
    let guard = theirs.rlock("a").lock().await.unwrap();
    let waiting = sleeper(&scene, &ours).await;
    scene.server.run::<()>(&["ACL", "SETUSER", "u", "-subscribe"]);
    scene.server.run::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    throughout(500 * MS, async || assert!(!waiting.is_finished())).await;
    guard.unlock().await.unwrap();
    let (woken, took) = timed(waiting).await;
    woken.unwrap();
    assert!(took < AT_ONCE, "{took:?}");
    scene.end((ours, theirs)).await;
}

/// Guarantee 8. With a pool of the user's own and an address, messages wake the waiter.
#[tokio::test]
async fn a_pool_with_an_address_is_woken_by_messages() {
    let scene = Scene::start();
    let pool = deadpool_redis::Config::from_url(scene.server.url())
        .create_pool(Some(deadpool_redis::Runtime::Tokio1))
        .unwrap();
    let source = Source::pool(pool.clone(), scene.server.url());
    let ours = LockClient::connect_with(source, never_polls().build().unwrap()).await.unwrap();
    let guard = ours.rlock("a").lock().await.unwrap();
    let waiting = wait_for(&ours, "a");
    listens(&scene, 1).await;
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();
    assert_eq!(
        pool.status().size,
        0,
        "the client took the connections out of the pool, which can make others in their place"
    );
    scene.end((ours, pool)).await;
}

/// Guarantee 9.
#[tokio::test]
async fn a_thousand_waiters_cost_one_subscription_and_one_attempt_per_release() {
    const WAITERS: u64 = 1_000;
    let (scene, locks) = Scene::with_client_of(patient().sharing(Duration::ZERO)).await;
    let guard = locks.rlock("a").lock().await.unwrap();
    let before = scene.server.calls("evalsha");
    let asked = Arc::new(AtomicU64::new(0));
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        let (locks, asked) = (locks.clone(), Arc::clone(&asked));
        waiting.spawn(async move {
            asked.fetch_add(1, Ordering::Relaxed); // and it joins the wait queue before any other task runs
            let guard = locks.rlock("a").lock().await.unwrap();
            sleep(MS).await; // the section
            guard.unlock().await.unwrap();
        });
    }
    let queued = || asked.load(Ordering::Relaxed);
    eventually("all have joined the wait queue", queued, |&count| count == WAITERS).await;
    listens(&scene, 1).await;
    assert_eq!(listeners(&scene).len(), 1);
    let subscribers: (String, u32) = scene.server.run(&["PUBSUB", "NUMSUB", "redisson_lock__channel:{a}"]);
    assert_eq!(subscribers.1, 1);
    guard.unlock().await.unwrap();
    soon(waiting.join_all()).await;

    let releases = WAITERS + 1;
    let attempts = scene.server.calls("evalsha") - before - releases;
    println!("{attempts} attempts for {releases} releases");
    assert!(attempts as f64 <= 1.2 * releases as f64, "{attempts} attempts for {releases} releases");
    assert_eq!(scene.server.calls("subscribe"), 1);
    scene.end(locks).await;
}

/// Guarantee 8. `a` and `{a}` are two locks with one channel.
#[tokio::test]
async fn locks_that_share_a_channel_do_not_wait_for_one_another() {
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client().await);
    let held = theirs.rlock("a").lock().await.unwrap();
    let waiting = wait_for(&ours, "a");
    listens(&scene, 1).await;
    let other = soon(ours.rlock("{a}").try_lock_for(LIMIT)).await.unwrap().expect("the lock is free");

    // A waiter for the second lock stays subscribed when the last waiter for the first lock leaves.
    let mut waiting_too = Box::pin(async {
        let mut lock = ours.rlock("{a}");
        lock.lock().await.unwrap().unlock().await.unwrap();
    });
    assert!(timeout(100 * MS, &mut waiting_too).await.is_err());
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let (_, took) = timed(async { tokio::join!(waiting_too, other.unlock()) }).await;
    assert!(took < AT_ONCE, "{took:?}");
    held.unlock().await.unwrap();
    scene.end((ours, theirs)).await;
}

/// Guarantee 9. Many channels on one connection, subscribed and unsubscribed in few commands.
#[tokio::test]
async fn one_connection_subscribes_to_any_number_of_channels() {
    const NAMES: usize = 500;
    let scene = Scene::start();
    let (ours, theirs) = (scene.client_with(never_polls()).await, scene.client().await);
    let mut held = Vec::new();
    for name in 0..NAMES {
        held.push(theirs.rlock(format!("{name}")).lock().await.unwrap());
    }
    let mut waiting = JoinSet::new();
    for name in 0..NAMES {
        let ours = ours.clone();
        waiting.spawn(
            async move { ours.rlock(format!("{name}")).lock().await.unwrap().unlock().await.unwrap() },
        );
    }
    listens(&scene, NAMES).await;
    assert_eq!(listeners(&scene).len(), 1);
    let commands = scene.server.calls("subscribe");
    assert!(commands < 50, "{commands} commands for {NAMES} channels");
    scene.server.run::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    listens(&scene, NAMES).await;
    assert!(scene.server.calls("subscribe") <= commands + 2, "one command subscribes to all again");
    for guard in held {
        guard.unlock().await.unwrap();
    }
    soon(waiting.join_all()).await;
    scene.end((ours, theirs)).await;
}
