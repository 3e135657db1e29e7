//! The records of holds and waits, on purpose: for how long they last, what they cost, and what becomes of them after faults.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use lockkeeper::{LockClient, LockConfig, LockGuard, Source};
use lockkeeper_memory::MemoryServer;
use tokio::time::{Instant, sleep, timeout};

use crate::support::events::Events;
use crate::support::{MS, SECOND};

/// Locks whose first renewals come within ten seconds.
const MANY: usize = 600;

const FEW: usize = 20;

async fn connect(server: &MemoryServer, name_prefix: &str) -> LockClient {
    let config = LockConfig::builder().name_prefix(name_prefix).build().unwrap();
    LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap()
}

async fn hold(locks: &LockClient, number: usize) -> LockGuard {
    locks.rlock(format!("lock:{number}")).lock().await.unwrap()
}

async fn hold_many(locks: &LockClient) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for number in 0..MANY {
        guards.push(hold(locks, number).await);
    }
    guards
}

/// The reply of a command, as text.
fn ask(server: &MemoryServer, words: &[&str]) -> String {
    String::from_utf8(server.execute(words)).unwrap()
}

fn number(server: &MemoryServer, words: &[&str]) -> i64 {
    ask(server, words).trim_start_matches(':').trim_end().parse().unwrap()
}

fn entries(server: &MemoryServer, key: &str) -> usize {
    usize::try_from(number(server, &["HLEN", key])).unwrap()
}

/// How often a command ran. Of the scripts about RLocks, only that which writes records asks for the `time`.
fn calls(server: &MemoryServer, command: &str) -> usize {
    let stats = ask(server, &["INFO", "commandstats"]);
    let after = stats.split(&format!("cmdstat_{command}:calls=")).nth(1).unwrap_or("0,");
    after.split(',').next().unwrap().parse().unwrap()
}

fn holds(locks: &LockClient) -> String {
    format!("lockkeeper_holds:{}", locks.id())
}

fn waits(locks: &LockClient) -> String {
    format!("lockkeeper_waits:{}", locks.id())
}

#[tokio::test(start_paused = true)]
async fn records_are_kept_while_they_count_and_last_two_minutes_without_their_client() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let mut guards = Vec::new();
    for number in 0..FEW {
        guards.push(hold(&locks, number).await);
    }
    let mut waiter = locks.rlock("lock:0");
    let waiting = tokio::spawn(async move { waiter.lock().await });
    sleep(15 * SECOND).await;
    let recorded = calls(&server, "hset");
    for _ in 0..30 {
        sleep(10 * SECOND).await;
        assert_eq!(entries(&server, &holds(&locks)), FEW);
        assert_eq!(entries(&server, &waits(&locks)), 1);
        for key in [holds(&locks), waits(&locks)] {
            let left = number(&server, &["PTTL", &key]);
            assert!((89_000..=120_000).contains(&left), "{left}");
        }
    }
    assert_eq!(calls(&server, "hset"), recorded, "each is written once");
    // As a process that is killed.
    server.hold(true);
    sleep(130 * SECOND).await;
    let kept: BTreeSet<String> = [holds(&locks), waits(&locks)].into();
    assert!(kept.iter().all(|key| number(&server, &["EXISTS", key]) == 0));
    waiting.abort();
    drop((guards, locks));
}

#[tokio::test(start_paused = true)]
async fn many_records_are_written_and_removed_with_few_commands_and_kept_with_one() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let guards = hold_many(&locks).await;
    let before = calls(&server, "time");
    sleep(12 * SECOND).await;
    assert_eq!(entries(&server, &holds(&locks)), MANY);
    let more = calls(&server, "time") - before;
    assert!(more <= 60, "{more} commands in 12 s");
    let before = calls(&server, "hdel");
    let sent = calls(&server, "evalsha");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    sleep(SECOND).await;
    assert_eq!(calls(&server, "hdel") - before, 2 * MANY, "each lock, and each record");
    let more = calls(&server, "evalsha") - sent - MANY;
    assert!(more <= 10, "{more} commands remove the records");
    assert_eq!(ask(&server, &["KEYS", "*"]), "*0\r\n");

    let guard = hold(&locks, 0).await;
    sleep(12 * SECOND).await;
    let sent = calls(&server, "pexpire");
    sleep(600 * SECOND).await;
    // Each renewal and each command that keeps the records is one.
    let more = calls(&server, "pexpire") - sent;
    assert!(
        (75..=90).contains(&more),
        "{more} times in ten minutes: 60 renewals, and 20 to keep the records"
    );
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn records_that_the_server_lost_are_written_again() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let guards = [hold(&locks, 0).await, hold(&locks, 1).await];
    sleep(15 * SECOND).await;
    let before = ask(&server, &["HGETALL", &holds(&locks)]);
    assert_eq!(number(&server, &["DEL", &holds(&locks)]), 1);
    sleep(31 * SECOND).await;
    let [first, second] = [0, 1].map(|number| format!(" lock:{number}\r\n"));
    let after = ask(&server, &["HGETALL", &holds(&locks)]);
    for values in [&before, &after] {
        assert!(values.contains(&first) && values.contains(&second), "{values}");
    }
    let held_for = locks.inspect("lock:0").await.unwrap().unwrap().holders[0].held_for.unwrap();
    assert!((45 * SECOND..=47 * SECOND).contains(&held_for), "{held_for:?}");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    locks.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_server_gets_no_records_and_loses_those_that_ended() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let old = hold(&locks, 0).await;
    sleep(15 * SECOND).await;
    let new = hold(&locks, 1).await;
    server.fill(true);
    sleep(60 * SECOND).await;
    assert_eq!(entries(&server, &holds(&locks)), 1, "the new hold is not recorded");
    assert!(!new.is_lost(), "it is renewed");
    old.unlock().await.unwrap();
    sleep(5 * SECOND).await;
    assert_eq!(number(&server, &["EXISTS", &holds(&locks)]), 0, "the old one is removed");
    server.fill(false);
    sleep(5 * SECOND).await;
    assert_eq!(entries(&server, &holds(&locks)), 1, "the new one is recorded");
    new.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    assert_eq!(ask(&server, &["KEYS", "*"]), "*0\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_removes_all_records_also_after_a_fault() {
    for fault in [MemoryServer::cut, |server: &MemoryServer| server.freeze(true)] {
        let server = MemoryServer::new();
        let locks = connect(&server, "").await;
        let guards = hold_many(&locks).await;
        sleep(15 * SECOND).await;
        fault(&server);
        drop(guards);
        sleep(3 * SECOND).await;
        server.freeze(false);
        locks.shutdown().await.unwrap();
        assert_eq!(ask(&server, &["KEYS", "*"]), "*0\r\n");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_removes_its_records() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let guard = hold(&locks, 0).await;
    sleep(15 * SECOND).await;
    drop((guard, locks));
    sleep(SECOND).await;
    assert_eq!(ask(&server, &["KEYS", "*"]), "*0\r\n");
    assert_eq!(ask(&server, &["CLIENT", "LIST"]), "$0\r\n\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_no_fault_of_records() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let guards = [hold(&locks, 0).await, hold(&locks, 1).await];
    sleep(15 * SECOND).await;
    // Another program overwrites the records: each command about them is refused.
    server.execute(&["DEL", &holds(&locks)]);
    server.execute(&["SET", &holds(&locks), "other data"]);
    drop(guards);
    sleep(SECOND).await;
    let start = Instant::now();
    locks.shutdown().await.unwrap();
    assert!(start.elapsed() < 100 * MS, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn records_are_read_by_clients_with_the_same_name_prefix() {
    let server = MemoryServer::new();
    let (locks, same, other) =
        (connect(&server, "shop:").await, connect(&server, "shop:").await, connect(&server, "").await);
    let mut owner = locks.owner();
    let guard = owner.rlock("a").lock().await.unwrap();
    let blocking = same.rlock("b").lock().await.unwrap();
    let waiting = tokio::spawn(async move { owner.rlock("b").lock().await.map(drop) });
    sleep(15 * SECOND).await;
    let key = format!("lockkeeper_holds:shop:{}", locks.id());
    assert_eq!(entries(&server, &key), 1);
    let held_for = async |locks: &LockClient, name: &str| {
        locks.inspect(name).await.unwrap().unwrap().holders[0].held_for
    };
    assert!(held_for(&same, "a").await.is_some());
    assert_eq!(held_for(&other, "shop:a").await, None);
    let links = async |locks: &LockClient, name: &str| locks.why(name).await.unwrap()[0].links.len();
    assert_eq!((links(&same, "a").await, links(&other, "shop:a").await), (2, 1));
    blocking.unlock().await.unwrap();
    timeout(60 * SECOND, waiting).await.unwrap().unwrap().unwrap();
    guard.unlock().await.unwrap();
}

/// It can still ask why a lock is not free.
#[tokio::test(start_paused = true)]
async fn a_client_without_diagnosis_writes_and_reports_nothing() {
    let events = Events::default();
    let _collecting = events.collect();
    let server = MemoryServer::new();
    let config = LockConfig::builder().diagnosis(false).build().unwrap();
    let silent = LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap();
    let locks = connect(&server, "").await;
    let mut owner = silent.owner();
    let outer = owner.rlock("a").lock().await.unwrap();
    let (blocking, own) = (hold(&locks, 0).await, silent.rlock("b").lock().await.unwrap());
    let waiting = tokio::spawn(async move { owner.rlock("lock:0").lock().await.map(drop) });
    let mut same = silent.rlock("b");
    assert!(same.try_lock_for(70 * SECOND).await.unwrap().is_none());
    assert_eq!((entries(&server, &holds(&locks)), entries(&server, &holds(&silent))), (1, 0));
    assert_eq!(number(&server, &["EXISTS", &waits(&silent)]), 0);
    assert!(!events.text().contains("waited"), "{}", events.text());
    assert!(silent.recent_waits().is_empty());
    let chains = silent.why("lock:0").await.unwrap();
    assert!(chains[0].links[0].holder.held_for.is_some(), "{chains:?}");
    assert_eq!(locks.why("a").await.unwrap()[0].links.len(), 1, "nobody knows for what its holder waits");
    blocking.unlock().await.unwrap();
    waiting.await.unwrap().unwrap();
    for guard in [outer, own] {
        guard.unlock().await.unwrap();
    }
    for locks in [silent, locks] {
        locks.shutdown().await.unwrap();
    }
    assert_eq!(ask(&server, &["KEYS", "*"]), "*0\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_no_report() {
    let server = MemoryServer::new();
    let config = LockConfig::builder().watchdog_lease(500 * MS).build().unwrap();
    let locks = LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap();
    let guard = hold(&connect(&server, "").await, 0).await;
    let mut lock = locks.rlock("lock:0");
    let mut waiting = Box::pin(lock.lock());
    assert!(timeout(400 * MS, &mut waiting).await.is_err());
    server.freeze(true);
    assert!(timeout(200 * MS, &mut waiting).await.is_err(), "a report asks the server");
    drop(waiting);
    let start = Instant::now();
    locks.shutdown().await.unwrap();
    assert!(start.elapsed() < 100 * MS, "{:?}", start.elapsed());
    drop(guard);
}

/// However many calls wait for a lock of their own client, the client looks once in a lease who holds it.
#[tokio::test(start_paused = true)]
async fn many_waiters_for_a_lock_of_their_client_are_warned_about_once_in_a_lease() {
    let events = Events::default();
    let _collecting = events.collect();
    let locks = connect(&MemoryServer::new(), "").await;
    let guards = [hold(&locks, 0).await, hold(&locks, 1).await];
    let waiting = (0..100).map(|number| {
        let mut lock = locks.rlock(format!("lock:{}", number % 2));
        async move { lock.try_lock_for(50 * SECOND).await.unwrap().is_none() }
    });
    assert!(join_all(waiting).await.into_iter().all(|in_vain| in_vain));
    assert_eq!(events.text().matches("neither continues").count(), 2, "{}", events.text());
    drop(guards);
}
