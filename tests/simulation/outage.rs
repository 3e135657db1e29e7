//! A server that gives no answer, while many calls wait for one lock: each retries for `retry_timeout`, and not for longer.

use std::time::Duration;

use lockkeeper::{BaseLock, Lock, LockClient, LockConfig, MultiLock, Process, RedLock};
use lockkeeper_memory::MemoryServer;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::plan::{MS, SECOND};
use crate::process_stream;

const RETRY: Duration = Duration::from_secs(10);

async fn connect(server: &MemoryServer, process: &Process) -> LockClient {
    let config = LockConfig::builder().retry_timeout(RETRY).build().unwrap();
    let source = process_stream::source(server, process);
    process.run(LockClient::connect_with(source, config)).await.unwrap()
}

/// Many calls wait for one lock of so many servers. Then as many of these as `silent` give no answer.
async fn all_who_wait_learn_in_time<K: BaseLock>(
    servers: usize,
    silent: usize,
    more: Duration,
    lock: fn(&[LockClient]) -> Lock<'static, K>,
) {
    let start = 1_700_000_000 * SECOND;
    let servers: Vec<_> = (1..=servers).map(|seed| MemoryServer::simulated(start, seed as u64)).collect();
    let process = Process::new(60 * SECOND, 0);
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for server in &servers {
        holders.push(connect(server, &process).await);
        waiters.push(connect(server, &process).await);
    }
    let guard = process.run(async { lock(&holders).lock().await }).await.unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        let mut lock = process.enter(|| lock(&waiters));
        calls.spawn(process.run(async move { lock.lock().await.map(drop) }));
    }
    sleep(SECOND).await;
    servers.iter().take(silent).for_each(|server| server.freeze(true));
    let start = Instant::now();
    while let Some(call) = calls.join_next().await {
        assert!(call.unwrap().unwrap_err().is_transient());
    }
    // The front polls within 3 s, an attempt lasts for 1 s, and the last one begins before the time is over.
    assert!(
        start.elapsed() < RETRY + 6 * SECOND + more,
        "the last one learned it after {:?}",
        start.elapsed()
    );
    servers.iter().for_each(|server| server.freeze(false));
    process.enter(|| drop((guard, holders, waiters)));
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_learn_of_an_outage_in_time() {
    all_who_wait_learn_in_time(1, 1, Duration::ZERO, |clients| clients[0].rlock("a")).await;
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_for_several_members_learn_of_an_outage_in_time() {
    let multi =
        |clients: &[LockClient]| MultiLock::new(["a", "b"].map(|name| clients[0].rlock(name))).unwrap();
    all_who_wait_learn_in_time(1, 1, Duration::ZERO, multi).await;
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_for_a_majority_learn_of_an_outage_in_time() {
    let red = |clients: &[LockClient]| RedLock::new(clients.iter().map(|locks| locks.rlock("a"))).unwrap();
    // A call that waits for a silent server then waits for the one that answers, until it polls the others.
    all_who_wait_learn_in_time(3, 2, 6 * SECOND, red).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_during_an_outage_retries_for_its_own_time() {
    let server = MemoryServer::simulated(1_700_000_000 * SECOND, 1);
    let process = Process::new(60 * SECOND, 0);
    let locks = connect(&server, &process).await;
    server.freeze(true);
    let mut calls = JoinSet::new();
    let mut begin = || {
        let locks = locks.clone();
        calls.spawn(process.run(async move { locks.rlock("a").lock().await.map(drop) }));
    };
    begin();
    sleep(MS).await;
    begin();
    sleep(RETRY - SECOND).await;
    begin();
    sleep(5 * SECOND).await;
    server.freeze(false);
    let mut granted = 0;
    while let Some(call) = timeout(RETRY, calls.join_next()).await.unwrap() {
        granted += u32::from(call.unwrap().is_ok());
    }
    assert_eq!(granted, 1, "the call that waited for 5 s");
    process.enter(|| drop(locks));
}
