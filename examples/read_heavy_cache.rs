//! How do many read a cache at once, and never see it half-written?
//!
//! The cache is ten keys that must agree, too many for one command. Reader processes read one after the other under
//! the read lock, all at the same time, while this process writes a new version again and again under the write lock.
//! Observe the reads per second, and that no read found two versions mixed. Then observe the same without the locks.
//!
//! ```text
//! cargo run --example read_heavy_cache      # a Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! cargo run --example read_heavy_cache -- --without-locks
//! ```

use std::env;
use std::time::{Duration, Instant};

use lockkeeper::{LockClient, ReadWriteLock};
use redis::aio::MultiplexedConnection as Redis;
use redis::{AsyncCommands, AsyncConnectionConfig};
use tokio::process::{Child, Command};
use tokio::time::sleep;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const READERS: usize = 4;
const READING: Duration = Duration::from_secs(2);
/// Between two reads. Where somebody always reads, nobody ever writes.
const READ_PAUSE: Duration = Duration::from_millis(4);
/// Between two keys of a version, and between two versions.
const KEY_PAUSE: Duration = Duration::from_millis(1);
const VERSION_PAUSE: Duration = Duration::from_millis(50);

const PATIENCE: Duration = Duration::from_secs(10);

const LOCK: &str = "example:cache";
const KEYS: usize = 10;
/// The records: what each reader found.
const TALLIES: &str = "example:cache:tallies";

const WITHOUT_LOCKS: &str = "--without-locks";
const READER: &str = "reader";

/// How many reads there were, and how many of them found two versions mixed.
type Tally = (usize, usize);

/// The lock of the cache; none if it is to be seen what happens then.
type Lock = Option<ReadWriteLock>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    // It is 500 ms, and a second, otherwise.
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url.as_str())?;
    let mut redis = client.get_multiplexed_async_connection_with_config(&patient).await?;
    let locks = LockClient::connect(url).await?;
    let lock = || Some(locks.read_write_lock(LOCK));
    let args: Vec<String> = env::args().skip(1).collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => manage(lock(), &mut redis).await,
        [WITHOUT_LOCKS] => manage(None, &mut redis).await,
        [READER] => serve(lock(), &mut redis).await,
        [READER, WITHOUT_LOCKS] => serve(None, &mut redis).await,
        _ => Err(format!("usage: read_heavy_cache [{WITHOUT_LOCKS}]").into()),
    };
    locks.shutdown().await?;
    outcome
}

/// A reader.
async fn serve(mut lock: Lock, redis: &mut Redis) -> Result<()> {
    let (mut reads, mut mixed) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < READING {
        let guard = match &mut lock {
            Some(lock) => Some(lock.read().lock().await?),
            None => None,
        };
        let versions = read(redis).await?;
        if let Some(guard) = guard {
            guard.unlock().await?;
        }
        reads += 1;
        mixed += usize::from(versions.iter().any(|version| *version != versions[0]));
        sleep(READ_PAUSE).await;
    }
    Ok(redis.rpush(TALLIES, &[reads, mixed]).await?)
}

/// Writes a version. Then it reads what it wrote: as others do, at the same time as they, but nobody can have written
/// in between, as it took the read lock before it gave the write lock back.
async fn refresh(lock: &mut Lock, version: usize, redis: &mut Redis) -> Result<()> {
    let Some(lock) = lock else { return write(version, redis).await };
    let writing = lock.write().lock().await?;
    write(version, redis).await?;
    let reading = lock.read().lock().await?;
    writing.unlock().await?;
    let found = read(redis).await?;
    reading.unlock().await?;
    if found != [version; KEYS] {
        return Err(format!("wrote version {version} and found {found:?}").into());
    }
    Ok(())
}

async fn write(version: usize, redis: &mut Redis) -> Result<()> {
    for key in keys() {
        let () = redis.set(key, version).await?;
        sleep(KEY_PAUSE).await;
    }
    Ok(())
}

/// Returns the version of each key.
async fn read(redis: &mut Redis) -> Result<Vec<usize>> {
    let mut versions = Vec::new();
    for key in keys() {
        versions.push(redis.get(key).await?);
    }
    Ok(versions)
}

fn keys() -> impl Iterator<Item = String> {
    (1..=KEYS).map(|number| format!("example:cache:{number}"))
}

async fn manage(lock: Lock, redis: &mut Redis) -> Result<()> {
    forget(redis).await?; // what a run left that was interrupted
    let outcome = run(lock, redis).await;
    let tallies: Vec<Tally> = redis.lrange(TALLIES, 0, -1).await?;
    forget(redis).await?;
    let versions = outcome?;
    show(versions, &tallies);
    check(versions, &tallies)
}

async fn forget(redis: &mut Redis) -> Result<()> {
    Ok(redis.del(keys().chain([TALLIES.to_owned()]).collect::<Vec<_>>()).await?)
}

/// Refreshes the cache as long as anybody reads. Returns how many versions there were.
async fn run(mut lock: Lock, redis: &mut Redis) -> Result<usize> {
    let mut version = 1;
    refresh(&mut lock, version, redis).await?;
    let readers = (0..READERS).map(|_| start_reader(lock.is_some())).collect::<Result<_>>()?;
    println!("{READERS} reader processes read {KEYS} keys for {READING:?}, each one after the other");
    let readers = tokio::spawn(finish(readers));
    while !readers.is_finished() {
        sleep(VERSION_PAUSE).await;
        version += 1;
        refresh(&mut lock, version, redis).await?;
    }
    readers.await??;
    Ok(version)
}

fn start_reader(has_lock: bool) -> Result<Child> {
    let mut reader = Command::new(env::current_exe()?);
    reader.arg(READER).args((!has_lock).then_some(WITHOUT_LOCKS));
    Ok(reader.kill_on_drop(true).spawn()?)
}

async fn finish(readers: Vec<Child>) -> Result<()> {
    for mut reader in readers {
        let status = reader.wait().await?;
        if !status.success() {
            return Err(format!("a reader failed: {status}").into());
        }
    }
    Ok(())
}

fn show(versions: usize, tallies: &[Tally]) {
    println!("meanwhile, {versions} versions were written");
    for (reads, mixed) in tallies {
        println!("  a reader: {:4.0} reads per second, {mixed} of {reads} mixed", rate(*reads));
    }
}

fn rate(reads: usize) -> f64 {
    reads as f64 / READING.as_secs_f64()
}

fn check(versions: usize, tallies: &[Tally]) -> Result<()> {
    let reads: usize = tallies.iter().map(|tally| tally.0).sum();
    let mixed: usize = tallies.iter().map(|tally| tally.1).sum();
    if mixed > 0 {
        return Err(format!("{mixed} of {reads} reads found a cache that was half-written").into());
    }
    if versions < 2 || reads < versions {
        return Err(format!("{reads} reads and {versions} versions are too few to tell").into());
    }
    println!("{:.0} reads per second, and none of {reads} found the cache half-written", rate(reads));
    Ok(())
}
