//! How do processes acquire a lock in the order of their requests?
//!
//! A fair lock has one wait queue for all processes. Here, worker processes claim numbered jobs. Each worker waits for
//! its turn, claims the next number, does the job, and queues again. Observe that the workers take turns, and that the
//! check at the end finds the claims in the order in which the workers queued. With `rlock` instead of `fair_lock`, the
//! check fails, and each job takes five seconds: the check waits for a queue that does not exist.
//!
//! ```text
//! cargo run --example job_claiming      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::time::{Duration, Instant};

use lockkeeper::{FairLock, LockClient};
use redis::aio::MultiplexedConnection as Redis;
use redis::{AsyncCommands, AsyncConnectionConfig};
use tokio::process::Command;
use tokio::time::sleep;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const WORKERS: usize = 4;
const JOBS: usize = 40;
const WORK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(5);

const LOCK: &str = "lock:example:claiming";
/// The wait queue of the lock. The name is Redisson's.
const QUEUE: &str = "redisson_lock_queue:{lock:example:claiming}";
const LAST_JOB: &str = "example:claiming:last-job";
/// For the check: the workers in the order of queueing, and who claimed which job.
const QUEUED: &str = "example:claiming:queued";
const CLAIMS: &str = "example:claiming:claims";

/// A worker and a job.
type Claim = (usize, usize);

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    // The defaults of redis-rs, 1 s and 500 ms, are short for a busy machine.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(2 * PATIENCE));
    let client = redis::Client::open(url.as_str())?;
    let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
    let locks = LockClient::connect(url).await?;
    let lock = locks.fair_lock(LOCK);
    let outcome = match env::args().nth(1) {
        Some(number) => work(number.parse()?, lock, &mut redis).await,
        None => manage(lock, &mut redis).await,
    };
    locks.shutdown().await?;
    outcome
}

async fn work(worker: usize, mut lock: FairLock, redis: &mut Redis) -> Result<()> {
    loop {
        let () = redis.rpush(QUEUED, worker).await?;
        let job = lock.run(claim(worker, redis)).await??;
        if job > JOBS {
            return Ok(());
        }
    }
}

/// The section: claims the next job, and does it if there is one.
async fn claim(worker: usize, redis: &mut Redis) -> Result<usize> {
    let job = redis.incr(LAST_JOB, 1).await?;
    if job <= JOBS {
        let () = redis.rpush(CLAIMS, &[worker, job]).await?;
        sleep(WORK).await;
        // Only the check needs this. A worker writes its record just before it queues. When a worker leaves the section
        // with all others in the queue, it is the next one to queue. So the records have the order of the queue.
        wait_for_queue(WORKERS - 1, redis).await?;
    }
    Ok(job)
}

/// Waits no longer than the time limit. If the queue is shorter then, the check finds the fault.
async fn wait_for_queue(length: usize, redis: &mut Redis) -> Result<()> {
    let start = Instant::now();
    while redis.llen::<_, usize>(QUEUE).await? < length && start.elapsed() < PATIENCE {
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn manage(lock: FairLock, redis: &mut Redis) -> Result<()> {
    delete_records(redis).await?; // of a run that was interrupted
    let outcome = run(lock, redis).await;
    let queued: Vec<usize> = redis.lrange(QUEUED, 0, -1).await?;
    let claims: Vec<Claim> = redis.lrange(CLAIMS, 0, -1).await?;
    delete_records(redis).await?;
    outcome?;
    show(&claims);
    check(queued, &claims)
}

async fn delete_records(redis: &mut Redis) -> Result<()> {
    Ok(redis.del(&[LAST_JOB, QUEUED, CLAIMS]).await?)
}

/// Holds the lock until all workers are in the queue, one after the other.
async fn run(mut lock: FairLock, redis: &mut Redis) -> Result<()> {
    let guard = lock.lock().await?;
    let mut workers = Vec::new();
    for number in 1..=WORKERS {
        let mut worker = Command::new(env::current_exe()?);
        workers.push(worker.arg(number.to_string()).kill_on_drop(true).spawn()?);
        wait_for_queue(number, redis).await?;
    }
    println!("{WORKERS} worker processes claim {JOBS} jobs");
    guard.unlock().await?;
    for mut worker in workers {
        let status = worker.wait().await?;
        if !status.success() {
            return Err(format!("a worker failed: {status}").into());
        }
    }
    Ok(())
}

fn show(claims: &[Claim]) {
    for worker in 1..=WORKERS {
        let jobs = claims.iter().filter(|claim| claim.0 == worker);
        println!("  worker {worker}: {}", jobs.map(|(_, job)| format!(" {job:2}")).collect::<String>());
    }
}

/// The n-th worker in the queue must be the n-th to claim, and get job n.
fn check(queued: Vec<usize>, claims: &[Claim]) -> Result<()> {
    let due = queued.into_iter().zip(1..=JOBS);
    let in_order = due.zip(claims).take_while(|(due, claim)| due == *claim).count();
    if in_order < JOBS {
        return Err(format!("only the first {in_order} claims have the order of the queue").into());
    }
    println!("all {in_order} claims have the order of the queue");
    Ok(())
}
