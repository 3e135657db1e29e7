//! What clients tell of their holds and waits: for how long it lasts, what it costs, and what becomes of it after faults.

use futures_util::future::join_all;
use lockkeeper::{LockClient, LockConfig, LockGuard, Source};
use lockkeeper_memory::MemoryServer;
use tokio::time::{Instant, sleep, timeout};

use crate::support::events::Events;
use crate::support::{MS, SECOND};

/// More holds than a snapshot has.
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

fn key(locks: &LockClient) -> String {
    format!("lockkeeper_client:{}", locks.id())
}

/// What a client tells. `None`: it tells nothing.
fn told(server: &MemoryServer, key: &str) -> Option<serde_json::Value> {
    let reply = ask(server, &["GET", key]);
    (reply != "$-1\r\n").then(|| serde_json::from_str(reply.split_once("\r\n").unwrap().1).unwrap())
}

/// How many holds and waits a client tells.
fn entries(server: &MemoryServer, key: &str) -> [usize; 2] {
    let told = told(server, key).unwrap_or_default();
    ["holds", "waits"].map(|list| told[list].as_array().map_or(0, Vec::len))
}

/// How often a command ran. No script about RLocks runs `set`.
fn calls(server: &MemoryServer, command: &str) -> usize {
    let stats = ask(server, &["INFO", "commandstats"]);
    let after = stats.split(&format!("cmdstat_{command}:calls=")).nth(1).unwrap_or("0,");
    after.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_kept_while_it_counts_and_lasts_two_minutes_without_its_client() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let mut guards = Vec::new();
    for number in 0..FEW {
        guards.push(hold(&locks, number).await);
    }
    let mut waiter = locks.rlock("lock:0");
    let waiting = tokio::spawn(async move { waiter.lock().await });
    // The wait of this call counts no more.
    assert!(locks.rlock("lock:0").try_lock_for(5 * SECOND).await.unwrap().is_none());
    sleep(10 * SECOND).await;
    let written = calls(&server, "set");
    for _ in 0..30 {
        sleep(10 * SECOND).await;
        assert_eq!(entries(&server, &key(&locks)), [FEW, 1]);
        let left = number(&server, &["PTTL", &key(&locks)]);
        assert!((79_000..=120_000).contains(&left), "{left}");
    }
    let more = calls(&server, "set") - written;
    assert!((6..=8).contains(&more), "{more} times in five minutes: it is only kept");
    // As a process that is killed.
    server.hold(true);
    sleep(130 * SECOND).await;
    assert_eq!(number(&server, &["EXISTS", &key(&locks)]), 0);
    waiting.abort();
    drop((guards, locks));
}

#[tokio::test(start_paused = true)]
async fn many_holds_are_one_snapshot_of_the_oldest() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let guards = hold_many(&locks).await;
    sleep(12 * SECOND).await;
    assert!(calls(&server, "set") <= 20, "{} snapshots in 12 s", calls(&server, "set"));
    let all = told(&server, &key(&locks)).unwrap();
    assert_eq!(entries(&server, &key(&locks)), [500, 0]);
    assert_eq!(all["more"], MANY - 500);
    assert!(ask(&server, &["GET", &key(&locks)]).len() < 100_000);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    sleep(2 * SECOND).await;
    assert_eq!(ask(&server, &["KEYS", "*"]), "*0\r\n");
    locks.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_the_server_lost_is_written_again() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let guard = hold(&locks, 0).await;
    sleep(15 * SECOND).await;
    assert_eq!(number(&server, &["DEL", &key(&locks)]), 1);
    sleep(42 * SECOND).await;
    let held_for = locks.inspect("lock:0").await.unwrap().unwrap().holders[0].held_for.unwrap();
    assert!((56 * SECOND..=58 * SECOND).contains(&held_for), "{held_for:?}");
    guard.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
}

/// Otherwise a wait that has ended would be told for two minutes.
#[tokio::test(start_paused = true)]
async fn a_full_server_learns_what_has_ended() {
    let server = MemoryServer::new();
    let locks = connect(&server, "").await;
    let guards = [hold(&locks, 0).await, hold(&locks, 1).await];
    sleep(15 * SECOND).await;
    server.fill(true);
    let [first, second] = guards;
    first.unlock().await.unwrap();
    sleep(3 * SECOND).await;
    assert_eq!(entries(&server, &key(&locks)), [1, 0]);
    second.unlock().await.unwrap();
    locks.shutdown().await.unwrap();
    assert_eq!(ask(&server, &["KEYS", "*"]), "*0\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_removes_the_snapshot_also_after_a_fault() {
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
async fn snapshots_are_read_by_clients_with_the_same_name_prefix() {
    let server = MemoryServer::new();
    let (locks, same, other) =
        (connect(&server, "shop:").await, connect(&server, "shop:").await, connect(&server, "").await);
    let mut owner = locks.owner();
    let guard = owner.rlock("a").lock().await.unwrap();
    let blocking = same.rlock("b").lock().await.unwrap();
    let waiting = tokio::spawn(async move { owner.rlock("b").lock().await.map(drop) });
    sleep(15 * SECOND).await;
    let key = format!("lockkeeper_client:shop:{}", locks.id());
    assert_eq!(entries(&server, &key), [1, 1]);
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
    assert_eq!(entries(&server, &key(&locks)), [1, 0]);
    assert_eq!(number(&server, &["EXISTS", &key(&silent)]), 0);
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
