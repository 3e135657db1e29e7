//! Tests as a user writes them: of code that must survive a lost lock, an outage and a server that loses its data.

use std::time::Duration;

use crate::support::fixed;
use lockkeeper::{Error, LockClient, LockConfig, MultiLock, Source};
use lockkeeper_memory::{Data, MemoryServer};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, advance, sleep, timeout};

const KEY: &str = "lock:orders:42";
const SECOND: Duration = Duration::from_secs(1);

async fn start() -> (MemoryServer, LockClient) {
    let server = MemoryServer::new();
    let locks = connect(&server).await;
    (server, locks)
}

async fn connect(server: &MemoryServer) -> LockClient {
    LockClient::connect(Source::stream(server.connector())).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_stops_the_work() {
    let server = MemoryServer::new();
    let locks = LockClient::connect(Source::stream(server.connector())).await.unwrap();
    let guard = locks.rlock("lock:orders:42").lock().await.unwrap();
    server.expire("lock:orders:42");
    assert!(guard.run(sleep(60 * SECOND)).await.is_err());
}

#[tokio::test]
async fn two_clients_exclude_each_other_on_the_real_clock() {
    let (server, locks) = start().await;
    let others = connect(&server).await;
    let guard = locks.rlock(KEY).lock().await.unwrap();
    assert!(others.rlock(KEY).try_lock().await.unwrap().is_none());
    let mut waiting = others.rlock(KEY);
    let (guard, ()) = tokio::join!(waiting.lock(), async {
        while server.execute(&["PUBSUB", "CHANNELS"]) == b"*0\r\n" {
            yield_now().await; // until the waiter subscribes
        }
        guard.unlock().await.unwrap();
    });
    guard.unwrap().unlock().await.unwrap();
    assert!(locks.inspect(KEY).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_on_many_threads_lose_no_update() {
    let (server, _) = start().await;
    // On the real clock, a busy machine may be slow.
    let patient = LockConfig::builder().command_timeout(20 * SECOND).build().unwrap();
    let counter = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (server, patient) = (server.clone(), patient.clone());
            let counter = std::sync::Arc::clone(&counter);
            tokio::spawn(async move {
                let locks =
                    LockClient::connect_with(Source::stream(server.connector()), patient).await.unwrap();
                for _ in 0..10 {
                    let guard = locks.rlock(KEY).lock().await.unwrap();
                    let before = counter.load(std::sync::atomic::Ordering::Relaxed);
                    yield_now().await;
                    counter.store(before + 1, std::sync::atomic::Ordering::Relaxed);
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(counter.load(std::sync::atomic::Ordering::Relaxed), 80);
}

#[tokio::test(start_paused = true)]
async fn every_type_of_lock_works() {
    let locks = connect(&MemoryServer::new()).await;
    locks.fair_lock("fair").check().await.unwrap();
    locks.fenced_lock("fenced").check().await.unwrap();
    locks.read_write_lock("cache").into_write().check().await.unwrap();
    locks.fair_lock("fair").lock().await.unwrap().unlock().await.unwrap();
    let first = locks.fenced_lock("fenced").lock().await.unwrap();
    let token = first.token();
    first.unlock().await.unwrap();
    assert!(locks.fenced_lock("fenced").lock().await.unwrap().token() > token);
    let (one, other) = (locks.read_write_lock("cache"), locks.read_write_lock("cache"));
    let (mut one, mut other) = (one.into_read(), other.into_read());
    let readers = (one.lock().await.unwrap(), other.lock().await.unwrap());
    assert!(locks.read_write_lock("cache").into_write().try_lock().await.unwrap().is_none());
    readers.0.unlock().await.unwrap();
    readers.1.unlock().await.unwrap();
    let guard = locks.read_write_lock("cache").into_write().lock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_read_lock_is_lost_and_its_writers_acquire() {
    let (server, locks) = start().await;
    let reader = locks.read_write_lock(KEY).into_read().lock().await.unwrap();
    assert!(server.expire(KEY));
    let writer = locks.read_write_lock(KEY).into_write().lock().await.unwrap();
    reader.ended().await.unwrap_err();
    assert!(matches!(reader.unlock().await, Err(Error::NotHeld { .. })));
    writer.unlock().await.unwrap();
    assert!(!server.expire(KEY), "it is free");
}

#[tokio::test(start_paused = true)]
async fn hours_pass_at_once_and_the_lock_is_renewed() {
    let locks = connect(&MemoryServer::new()).await;
    let guard = locks.rlock(KEY).lock().await.unwrap();
    let real = std::time::Instant::now();
    sleep(12 * 3_600 * SECOND).await;
    assert!(!guard.is_lost());
    assert!(real.elapsed() < 60 * SECOND);
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_on_the_paused_clock() {
    let locks = connect(&MemoryServer::new()).await;
    let guard = locks.rlock(KEY).with(&fixed(10 * SECOND)).lock().await.unwrap();
    advance(9 * SECOND).await;
    assert!(!guard.is_lost());
    advance(SECOND).await;
    assert!(guard.is_lost());
    assert!(locks.rlock(KEY).lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_no_lock() {
    let (server, locks) = start().await;
    let guard = locks.rlock(KEY).lock().await.unwrap();
    for outage in [MemoryServer::freeze, MemoryServer::hold] {
        outage(&server, true);
        sleep(12 * SECOND).await;
        outage(&server, false);
        sleep(12 * SECOND).await;
        assert!(!guard.is_lost());
    }
    server.stop();
    sleep(12 * SECOND).await;
    server.start(Data::Kept);
    sleep(12 * SECOND).await;
    server.cut();
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_costs_the_lock_and_ends() {
    let (server, locks) = start().await;
    for outage in [MemoryServer::freeze, MemoryServer::hold] {
        let guard = locks.rlock(KEY).lock().await.unwrap();
        outage(&server, true);
        let start = Instant::now();
        guard.ended().await.unwrap_err();
        assert!(start.elapsed() <= 30 * SECOND);
        let error = locks.rlock(KEY).try_lock().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        outage(&server, false);
        // What was given up is undone before anybody waits for long.
        let guard = timeout(5 * SECOND, locks.clone().rlock(KEY).lock()).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_is_an_error_and_a_start_ends_it() {
    let (server, locks) = start().await;
    server.stop();
    assert!(locks.rlock(KEY).lock().await.unwrap_err().is_transient());
    assert!(LockClient::connect(Source::stream(server.connector())).await.is_err());
    server.start(Data::Kept);
    locks.rlock(KEY).lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_loses_data_lets_two_in_and_one_is_told() {
    let (server, locks) = start().await;
    let others = connect(&server).await;
    let first = locks.rlock(KEY).lock().await.unwrap();
    server.start(Data::Lost);
    let second = others.rlock(KEY).lock().await.unwrap();
    assert!(!first.is_lost(), "nobody told it yet");
    first.ended().await.unwrap_err();
    assert!(matches!(first.unlock().await, Err(Error::NotHeld { .. })));
    second.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_a_message_and_not_by_a_poll() {
    let server = MemoryServer::new();
    let config = LockConfig::builder().safety_poll(3_600 * SECOND).build().unwrap();
    let locks = LockClient::connect_with(Source::stream(server.connector()), config).await.unwrap();
    let guard = locks.rlock(KEY).lock().await.unwrap();
    let mut waiting = locks.rlock(KEY);
    let start = Instant::now();
    let (second, ()) = tokio::join!(waiting.lock(), async {
        sleep(5 * SECOND).await;
        guard.unlock().await.unwrap();
    });
    assert!(start.elapsed() < 6 * SECOND);
    second.unwrap().unlock().await.unwrap();
}

/// With a paused clock, time passes only when everybody waits.
#[tokio::test(start_paused = true)]
async fn waiters_for_the_same_locks_come_to_rest() {
    for waiters in 2..=12 {
        let (server, locks) = start().await;
        let guard = locks.rlock("b").lock().await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..waiters {
            let both = [locks.rlock("a"), locks.rlock("b")];
            waiting.spawn(async move {
                MultiLock::new(both).unwrap().lock().await.unwrap().unlock().await.unwrap();
            });
        }
        let mut before = Vec::new();
        for round in 0.. {
            for _ in 0..1_000 {
                yield_now().await;
            }
            let commands = server.execute(&["INFO", "commandstats"]);
            if commands == before {
                break;
            }
            assert!(round < 100, "{waiters} waiters are busy for ever");
            before = commands;
        }
        guard.unlock().await.unwrap();
        waiting.join_all().await;
    }
}

#[tokio::test(start_paused = true)]
async fn commands_that_a_frozen_server_got_run_when_it_continues() {
    let (server, locks) = start().await;
    server.freeze(true);
    assert!(locks.rlock(KEY).try_lock().await.is_err());
    drop(locks);
    sleep(600 * SECOND).await;
    server.freeze(false);
    sleep(60 * SECOND).await;
    assert_eq!(server.execute(&["CLIENT", "LIST"]), b"$0\r\n\r\n", "no connection is left");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_client_leaves_nothing() {
    let (server, locks) = start().await;
    drop(locks.rlock(KEY).lock().await.unwrap());
    locks.shutdown().await.unwrap();
    drop(locks);
    sleep(SECOND).await;
    assert_eq!(server.execute(&["KEYS", "*"]), b"*0\r\n");
    assert_eq!(server.execute(&["PUBSUB", "CHANNELS"]), b"*0\r\n");
    assert_eq!(server.execute(&["CLIENT", "LIST"]), b"$0\r\n\r\n");
}

#[test]
fn a_server_outlives_the_runtimes_that_use_it() {
    let server = MemoryServer::new();
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = connect(&server).await;
            let guard = locks.rlock(KEY).lock().await.unwrap();
            guard.unlock().await.unwrap();
        });
    }
    assert_eq!(server.execute(&["CLIENT", "LIST"]), b"$0\r\n\r\n");
}

#[tokio::test]
async fn what_the_server_does_not_know_is_an_error() {
    let server = MemoryServer::new();
    let wrong: [&[&str]; 12] = [
        &["FLUSHALL", "ASYNC"],
        &["SET", "b", "1", "XX"],
        &["ZADD", "z", "CH", "1", "b"],
        &["ZADD", "z", "1e400", "b"],
        &["ZADD", "z", "-1e400", "b"],
        &["ZADD", "z", "1e-400", "b"],
        &["HSCAN", "a", "0", "MATCH", "x"],
        &["HELLO", "3"],
        &["INFO"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["SELECT", "1"],
        &["EVAL", "#!lua flags=no-writes\nreturn 1", "0"],
    ];
    server.execute(&["HSET", "a", "b", "c"]);
    for words in wrong {
        let reply = server.execute(words);
        assert!(reply.starts_with(b"-"), "{words:?}: {}", String::from_utf8_lossy(&reply));
    }
}
