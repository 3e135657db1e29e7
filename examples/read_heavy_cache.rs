//! How do many processes read a cache at the same time, and never find it half-written?
//!
//! The cache is ten keys that must have the same version. Reader processes read them one by one under the read lock, all
//! at the same time, and never pause. Meanwhile this process writes new versions under the write lock. Observe the reads per
//! second, that the writer gets its turns, and that no read found two versions mixed. Then observe the same without locks.
//!
//! The read lock lingers: the client of each reader keeps it from one read to the next, so most reads send no command for it.
//!
//! ```text
//! cargo run --example read_heavy_cache      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! cargo run --example read_heavy_cache -- --without-locks
//! ```

use std::env;
use std::time::{Duration, Instant};

use lockkeeper::{LockClient, LockOptions, ReadWriteLock};
use redis::aio::MultiplexedConnection as Redis;
use redis::{AsyncCommands, AsyncConnectionConfig};
use tokio::process::{Child, Command};
use tokio::time::sleep;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const READERS: usize = 4;
const READING: Duration = Duration::from_secs(2);
/// How long a client keeps the read lock after a read.
const LINGER: Duration = Duration::from_millis(20);
/// The lease of the writer: if it dies while it writes, nobody can read for so long.
const WRITER_LEASE: Duration = Duration::from_secs(2);
/// Between the writes of two keys, and between two versions.
const KEY_PAUSE: Duration = Duration::from_millis(1);
const VERSION_PAUSE: Duration = Duration::from_millis(50);

const PATIENCE: Duration = Duration::from_secs(10);

const LOCK: &str = "lock:example:cache";
const KEYS: usize = 10;
/// For the check: what each reader found.
const TALLIES: &str = "example:cache:tallies";

const WITHOUT_LOCKS: &str = "--without-locks";
const READER: &str = "reader";

/// The number of reads, and how many of them found two versions mixed.
type Tally = (usize, usize);

/// The lock of the cache. `None`: a run without locks.
type Lock = Option<ReadWriteLock<'static>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    // The defaults of redis-rs, 1 s and 500 ms, are short for a busy machine.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url.as_str())?;
    let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
    let locks = LockClient::connect(url).await?;
    let reading = LockOptions::builder().linger(LINGER).build()?;
    let writing = LockOptions::builder().renewed(WRITER_LEASE).build()?;
    let lock = |options| Some(locks.read_write_lock(LOCK).with(options));
    let args: Vec<String> = env::args().skip(1).collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => manage(lock(&writing), &mut redis).await,
        [WITHOUT_LOCKS] => manage(None, &mut redis).await,
        [READER] => read_for_a_while(lock(&reading), &mut redis).await,
        [READER, WITHOUT_LOCKS] => read_for_a_while(None, &mut redis).await,
        _ => Err(format!("usage: read_heavy_cache [{WITHOUT_LOCKS}]").into()),
    };
    locks.shutdown().await?;
    outcome
}

/// Reads until the time is over, and records the tally.
async fn read_for_a_while(mut lock: Lock, redis: &mut Redis) -> Result<()> {
    let (mut reads, mut mixed) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < READING {
        let versions = match &mut lock {
            // In the handler of a request, this is the budget of the request.
            Some(lock) => {
                lock.read().try_run_for(PATIENCE, read(redis)).await?.ok_or("somebody writes")??
            }
            None => read(redis).await?,
        };
        reads += 1;
        mixed += usize::from(versions.iter().any(|version| *version != versions[0]));
    }
    Ok(redis.rpush(TALLIES, &[reads, mixed]).await?)
}

/// Writes a version, and reads it again at the same time as the readers. The owner of the write lock can acquire the
/// read lock as well. It acquires the read lock before it releases the write lock, so nobody can write in between.
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
    delete_keys(redis).await?; // of a run that was interrupted
    let outcome = run(lock, redis).await;
    let tallies: Vec<Tally> = redis.lrange(TALLIES, 0, -1).await?;
    delete_keys(redis).await?;
    let versions = outcome?;
    show(versions, &tallies);
    check(versions, &tallies)
}

async fn delete_keys(redis: &mut Redis) -> Result<()> {
    Ok(redis.del(keys().chain([TALLIES.to_owned()]).collect::<Vec<_>>()).await?)
}

/// Writes versions while anybody reads. Returns how many.
async fn run(mut lock: Lock, redis: &mut Redis) -> Result<usize> {
    let mut version = 1;
    refresh(&mut lock, version, redis).await?;
    let readers = (0..READERS).map(|_| start_reader(lock.is_some())).collect::<Result<_>>()?;
    println!("{READERS} processes read {KEYS} keys again and again for {READING:?}");
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
    println!("meanwhile one process writes {versions} versions");
    for (reads, mixed) in tallies {
        println!("  a reader: {:4.0} reads per second, {mixed} of {reads} found two versions", rate(*reads));
    }
}

fn rate(reads: usize) -> f64 {
    reads as f64 / READING.as_secs_f64()
}

fn check(versions: usize, tallies: &[Tally]) -> Result<()> {
    let reads: usize = tallies.iter().map(|tally| tally.0).sum();
    let mixed: usize = tallies.iter().map(|tally| tally.1).sum();
    if mixed > 0 {
        return Err(format!("{mixed} of {reads} reads found the cache half-written").into());
    }
    if versions < 2 || reads < versions {
        return Err(format!("{reads} reads and {versions} versions are too few for a check").into());
    }
    println!("{:.0} reads per second, and none of {reads} found the cache half-written", rate(reads));
    Ok(())
}
