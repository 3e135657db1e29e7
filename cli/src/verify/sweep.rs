//! What is left on the server after a run.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::{BaseLock, Lock, LockClient};
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use super::history::{LOCKS, PERMITS, name_of};
use crate::args::Examined;
use crate::connect::Settings;

/// How long it waits beyond four leases. An intent of a writer lasts for one lease, and a dead waiter in a queue for 4/3.
const SLACK: Duration = Duration::from_secs(3);

/// Removes what never ends by itself: a semaphore, and the counter of a fenced lock. Returns the keys that are still there after the end of all
/// leases. `Err`: why they are not known.
pub(super) async fn sweep(
    settings: &Settings,
    locks: &LockClient,
    beginning: &str,
    kinds: &[Examined],
    lease: Duration,
) -> Result<Vec<String>, String> {
    let limit = lease * 4 + SLACK;
    let until = Instant::now() + limit;
    // Each lock is acquired once more, because the next owner removes dead waiters from the queue, and dead readers.
    let all = kinds
        .iter()
        .flat_map(|kind| (0..LOCKS).map(|number| (*kind, format!("{beginning}{}", name_of(*kind, number)))));
    join_all(all.map(|(kind, name)| pass_through(locks, kind, name, limit))).await;
    let mut masters = masters(settings, locks).await?;
    let pattern = format!("*{beginning}*");
    let mut left = Vec::new();
    for (index, master) in masters.iter_mut().enumerate() {
        for key in scan(master, &pattern).await.map_err(|error| error.to_string())? {
            if key.starts_with("redisson_lock_token:") {
                let () = run(master, "DEL", &key).await.map_err(|error| error.to_string())?;
            } else {
                left.push((index, key));
            }
        }
    }
    loop {
        let mut still = Vec::new();
        for (index, key) in left {
            if run::<u64>(&mut masters[index], "EXISTS", &key).await.map_err(|error| error.to_string())? > 0 {
                still.push((index, key));
            }
        }
        if still.is_empty() || Instant::now() > until {
            return Ok(still.into_iter().map(|(_, key)| key).collect());
        }
        left = still;
        sleep(Duration::from_millis(200)).await;
    }
}

async fn run<T: redis::FromRedisValue>(
    server: &mut MultiplexedConnection,
    command: &str,
    key: &str,
) -> redis::RedisResult<T> {
    redis::cmd(command).arg(key).query_async(server).await
}

async fn scan(server: &mut MultiplexedConnection, pattern: &str) -> redis::RedisResult<Vec<String>> {
    let (mut cursor, mut found) = (String::from("0"), Vec::new());
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(500);
        let (next, keys): (String, Vec<String>) = command.query_async(server).await?;
        found.extend(keys);
        if next == "0" {
            found.sort_unstable();
            found.dedup();
            return Ok(found);
        }
        cursor = next;
    }
}

async fn masters(settings: &Settings, locks: &LockClient) -> Result<Vec<MultiplexedConnection>, String> {
    if settings.kind == "single" {
        return Ok(vec![settings.raw(None, None).await?]);
    }
    let servers = locks.servers().await.map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for address in servers.keys() {
        all.push(settings.raw(Some(address), None).await?);
    }
    Ok(all)
}

/// Acquires and releases a lock once. A failure shows in what is left.
async fn pass_through(locks: &LockClient, kind: Examined, name: String, limit: Duration) {
    async fn once<K: BaseLock>(mut lock: Lock<'_, K>, limit: Duration) {
        if let Ok(Some(guard)) = lock.try_lock_for(limit).await {
            let _ = guard.unlock().await;
        }
    }
    match kind {
        Examined::Rlock => once(locks.rlock(name), limit).await,
        Examined::Fair => once(locks.fair_lock(name), limit).await,
        Examined::Fenced => once(locks.fenced_lock(name), limit).await,
        Examined::Read | Examined::Write => once(locks.read_write_lock(name).into_write(), limit).await,
        Examined::Semaphore => {
            let _ = locks.semaphore(name, PERMITS).delete().await;
        }
    }
}
