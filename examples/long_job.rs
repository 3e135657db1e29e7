//! How does a job of unknown length keep its lock, and what happens when the lock is lost?
//!
//! The watchdog renews the lock while the guard exists. So the lease can be short and the job long. `lock.run` acquires the
//! lock, runs the job and releases the lock. Like `guard.run`, it stops the job when the lock is lost. Observe that the first job takes longer than two leases. Observe that the second job
//! stops soon after somebody removes the lock: mostly within milliseconds, and at most a third of the lease later.
//!
//! ```text
//! cargo run --example long_job      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use lockkeeper::{LockClient, LockConfig};
use tokio::time::sleep;

const LOCK: &str = "lock:example:long-job";
const LEASE: Duration = Duration::from_millis(1_500);
const STEP: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let config = LockConfig::builder().watchdog_lease(LEASE).build()?;
    let locks = LockClient::connect_with(url, config).await?;
    let outcome = run(&locks).await;
    locks.shutdown().await?;
    outcome
}

async fn run(locks: &LockClient) -> Result<(), Box<dyn Error>> {
    let mut lock = locks.rlock(LOCK);
    println!("a job of 4 s, with a lease of {LEASE:?}");
    let steps = lock.run(job(8)).await?;
    println!("  the job is done, {steps} steps");

    println!("the same job, and somebody removes the lock in the middle");
    let guard = lock.lock().await?;
    let (outcome, removed) = tokio::join!(guard.run(job(8)), remove_after(locks, 4 * STEP + STEP / 2));
    let removed = removed?;
    let Err(lost) = outcome else { return Err("the job was not stopped".into()) };
    println!("  the job was stopped after {:.0?}: {lost}", removed.elapsed());

    // A job that runs without `guard.run` learns of the loss only here.
    match guard.unlock().await {
        Err(error) => println!("  unlock also fails: {error}"),
        Ok(()) => return Err("unlock does not report the loss".into()),
    }
    Ok(())
}

/// If the lock is lost, `guard.run` drops this future between two steps.
async fn job(steps: u32) -> u32 {
    let start = Instant::now();
    for step in 1..=steps {
        sleep(STEP).await;
        println!("  step {step} after {} ms", start.elapsed().as_millis());
    }
    steps
}

/// Removes the lock, as an operator can do. Returns the time of the removal.
async fn remove_after(locks: &LockClient, time: Duration) -> lockkeeper::Result<Instant> {
    sleep(time).await;
    locks.rlock(LOCK).force_unlock().await?;
    println!("  the lock is removed");
    Ok(Instant::now())
}
