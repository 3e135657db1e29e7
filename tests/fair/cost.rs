//! What waiting costs the server.

use std::sync::{Arc, Mutex};

use lockkeeper::{LockClient, LockConfig, Source};
use lockkeeper_memory::MemoryServer;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::fair::waits;
use crate::support::{
    Faults, LIMIT, MS, SECOND, Scene, calls_of, connect, eventually, patient, quiet, soon, timed, within,
};

/// Guarantee 10. Without a single message, the heartbeat tells the first waiter.
#[tokio::test]
async fn lost_messages_cost_a_heartbeat() {
    let scene = Scene::start();
    let proxy = scene.proxy().await;
    proxy.set(Faults { lose_messages: true, ..Faults::default() });
    let allowance = 6 * SECOND;
    let ours = connect(proxy.url(), patient().fair_allowance(allowance)).await;
    let theirs = scene.client().await;
    let guard = theirs.fair_lock("a").lock().await.unwrap();
    let waiting = waits(&scene, &ours, 0).await;
    eventually("the waiter subscribes", || scene.server.channels(), |channels| channels.len() == 1).await;
    let before = scene.server.calls("evalsha");
    guard.unlock().await.unwrap();
    let (woken, took) = timed(waiting).await;
    woken.unwrap();
    assert!(took < allowance, "{took:?}");
    assert!(proxy.lost_messages() > 0);
    let asked = scene.server.calls("evalsha") - before;
    assert!(asked <= 10, "{asked} commands while it waited");
    // The record of the wait is removed through the proxy.
    eventually("no record is left", || scene.server.records(), Vec::is_empty).await;
    drop((ours, theirs, proxy));
    scene.end().await;
}

/// Guarantee 8. A waiter has one heartbeat in each period of 2 s, and none comes much later.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_asked_once_in_each_period() {
    let server = MemoryServer::new();
    let beats = Arc::new(Mutex::new(Vec::new()));
    let (is_heartbeat, sent) = (calls_of("fair/heartbeat.lua"), Arc::clone(&beats));
    server.observe(move |_, words, _, _| {
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        if is_heartbeat(&words) {
            sent.lock().unwrap().push(Instant::now());
        }
    });
    let locks =
        LockClient::connect_with(Source::stream(server.connector()), LockConfig::default()).await.unwrap();
    let guard = locks.fair_lock("a").lock().await.unwrap();
    assert!(locks.fair_lock("a").try_lock_for(60 * SECOND).await.unwrap().is_none());
    let beats = std::mem::take(&mut *beats.lock().unwrap());
    assert!((29..=31).contains(&beats.len()), "{} heartbeats in a minute", beats.len());
    // A tick is a sixteenth of a period.
    let longest = beats.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    assert!(longest <= 2 * SECOND * 17 / 16 + 2 * MS, "{longest:?}");
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
}

/// Guarantee 9. Ten thousand waiters of one process for a hundred locks cost: one subscribed connection, a message and
/// two scripts for each hand-off, and a heartbeat for each lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_cost_two_scripts_each() {
    const LOCKS: usize = 100;
    const EACH: usize = 100;
    /// How often a refused attempt calls it. No other script does.
    const HEXISTS: u64 = 1;
    let scene = Scene::start();
    let allowance = 30 * SECOND;
    // With ten thousand commands in flight, a busy machine must not cause a repeated command.
    let config = LockConfig::builder()
        .fair_allowance(allowance)
        .watchdog_lease(180 * SECOND)
        .command_timeout(30 * SECOND);
    let (ours, theirs) = (scene.client_with(config.clone()).await, scene.client_with(config).await);
    let name = |lock: usize| format!("{lock}");
    let mut guards = Vec::new();
    for lock in 0..LOCKS {
        guards.push(theirs.fair_lock(name(lock)).lock().await.unwrap());
    }
    let mut waiting = JoinSet::new();
    for waiter in 0..LOCKS * EACH {
        let ours = ours.clone();
        waiting.spawn(async move {
            ours.fair_lock(name(waiter % LOCKS)).lock().await.unwrap().unlock().await.unwrap();
        });
    }
    let limit = 3 * LIMIT;
    within(limit, "all waiters subscribe", || scene.server.channels().len(), |&len| len == LOCKS * EACH)
        .await;
    let connections = || scene.server.run::<String>(&["CLIENT", "LIST", "TYPE", "PUBSUB"]).lines().count();
    within(limit, "one connection subscribes", connections, |&count| count == 1).await;

    // Each waiter attempts once more after subscribing. From then on there are only heartbeats.
    let attempts = || scene.server.calls("hexists") / HEXISTS;
    within(limit, "all waiters have attempted again", attempts, |&made| made >= (2 * LOCKS * EACH) as u64)
        .await;
    // On a busy machine, some attempt more often.
    quiet(|| scene.server.calls("hexists")).await;
    // Only heartbeats call it.
    let before = scene.server.calls("hlen");
    let beats = || scene.server.calls("hlen") - before;
    let (start, period) = (Instant::now(), allowance / 3);
    sleep(period).await; // they are counted in this time
    let beats = within(limit, "one heartbeat for each lock", beats, |&beats| beats >= LOCKS as u64).await;
    let took = start.elapsed();
    println!("{beats} heartbeats in {took:?}");
    // A heartbeat for each waiter would come a hundred times as often.
    let periods = took.as_secs_f64() / period.as_secs_f64();
    assert!(beats as f64 <= LOCKS as f64 * (periods + 1.0), "{beats} heartbeats in {took:?}");

    let (evalsha, publish) = (scene.server.calls("evalsha"), scene.server.calls("publish"));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    timeout(limit, waiting.join_all()).await.expect("all waiters had their turn");
    let turns = (LOCKS * EACH) as f64;
    let scripts = (scene.server.calls("evalsha") - evalsha) as f64 / turns;
    let messages = (scene.server.calls("publish") - publish) as f64 / turns;
    println!("{scripts:.2} scripts and {messages:.2} messages for each hand-off");
    assert!(scripts < 2.4 && messages < 1.2, "{scripts} scripts, {messages} messages"); // with heartbeats in between
    // On a busy machine a command may have timed out. `shutdown` waits until it is undone.
    soon(ours.shutdown()).await.unwrap();
    soon(theirs.shutdown()).await.unwrap();
    drop((ours, theirs));
    scene.end().await;
}
