//! How does a job run on one replica only, once for each tick of a schedule?
//!
//! Each replica has the same schedule, and a clock that differs from the others. At each tick, every replica tries to lock. The
//! first one does the job, and the others find the lock held. `min_hold` keeps the lock held after the job has ended.
//! Without that line, a replica whose clock is late finds the lock free and does the job again: the check at the end fails.
//!
//! The minimum hold time has to be longer than the clocks differ, and shorter than the pause between two ticks. A replica that comes
//! too late for a tick, because its host was busy, leaves that tick out: perhaps the minimum hold time is over, and another replica did
//! the job. If no replica was in time, nobody does the job at that tick.
//!
//! ```text
//! cargo run --example cron_singleton                 # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! cargo run --example cron_singleton -- 60 1000      # 60 ticks, one each second
//! ```

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper::{LockClient, LockOptions};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection as Redis;
use tokio::process::Command;
use tokio::time::sleep;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// How much the clock of each replica is late, in hundredths of the pause between two ticks.
const LATE: [u64; 3] = [0, 10, 20];
/// The minimum hold time, in the same unit.
const HOLD: u64 = 50;
/// A replica that is later than this by its own clock leaves the tick out.
const TOO_LATE: u64 = 20;
const WORK: Duration = Duration::from_millis(10);

const LOCK: &str = "lock:example:cron";
/// For the check: which replica did the job at which tick.
const RUNS: &str = "example:cron:runs";

/// The schedule: so many ticks after the start. Times are in milliseconds, the start since 1970.
#[derive(Clone, Copy)]
struct Schedule {
    start: u64,
    pause: u64,
    ticks: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let mut redis = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let numbers: Vec<u64> = env::args().skip(1).map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    match numbers[..] {
        [ticks, pause, start, replica] => {
            replicate(&url, replica, Schedule { start, pause, ticks }, &mut redis).await
        }
        [ticks, pause] => manage(ticks, pause, &mut redis).await,
        _ => manage(10, 500, &mut redis).await,
    }
}

/// One replica: does the job at each tick at which it gets the lock.
async fn replicate(url: &str, replica: u64, schedule: Schedule, redis: &mut Redis) -> Result<()> {
    let Schedule { start, pause, ticks } = schedule;
    let locks = LockClient::connect(url).await?;
    let once = LockOptions::builder().min_hold(Duration::from_millis(pause * HOLD / 100)).build()?;
    let mut lock = locks.rlock(LOCK).with(&once);
    let late = pause * LATE[usize::try_from(replica)?] / 100;
    for tick in 1..=ticks {
        let at = start + tick * pause + late;
        sleep(Duration::from_millis(at.saturating_sub(now_ms()?))).await;
        if now_ms()? > at + pause * TOO_LATE / 100 {
            continue;
        }
        if let Some(done) = lock.try_run(job(tick, replica, redis)).await? {
            done?;
        }
    }
    // Waits for the end of the minimum hold time.
    locks.shutdown().await?;
    Ok(())
}

async fn job(tick: u64, replica: u64, redis: &mut Redis) -> Result<()> {
    let () = redis.rpush(RUNS, &[tick, replica]).await?;
    sleep(WORK).await;
    Ok(())
}

/// Starts the replicas, and checks what they did.
async fn manage(ticks: u64, pause: u64, redis: &mut Redis) -> Result<()> {
    let () = redis.del(RUNS).await?; // of a run that was interrupted
    let start = now_ms()? + 1_000; // when all have connected
    let mut replicas = Vec::new();
    for replica in 0..LATE.len() as u64 {
        let arguments = [ticks, pause, start, replica].map(|number| number.to_string());
        replicas.push(Command::new(env::current_exe()?).args(arguments).kill_on_drop(true).spawn()?);
    }
    for mut replica in replicas {
        if !replica.wait().await?.success() {
            return Err("a replica failed".into());
        }
    }
    let runs: Vec<(u64, u64)> = redis.lrange(RUNS, 0, -1).await?;
    let () = redis.del(RUNS).await?;
    let by_replica = |wanted| runs.iter().filter(|(_, replica)| *replica == wanted).count();
    println!("{ticks} ticks, {} runs; by replica: {:?}", runs.len(), [0, 1, 2].map(by_replica));
    for tick in 1..=ticks {
        match runs.iter().filter(|(run, _)| *run == tick).count() {
            0 => println!("no replica was in time for tick {tick}"),
            1 => {}
            times => return Err(format!("tick {tick}: the job ran {times} times").into()),
        }
    }
    Ok(())
}

fn now_ms() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().try_into()?)
}
