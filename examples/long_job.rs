//! How does a job of unknown length keep its lock, and what if it loses it?
//!
//! The watchdog renews the lock as long as the guard lives, so the lease can be short and the job long. `guard.run`
//! stops the job when the lock is lost. Observe that the first job outlives several leases, and that the second stops
//! soon after the lock was removed behind its back: at the next renewal, after a third of a lease at the latest.
//!
//! ```text
//! cargo run --example long_job      # a Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::time::{Duration, Instant};

use lockkeeper::{Error, LockClient, LockConfig, Lost, Result};
use tokio::time::sleep;

const LEASE: Duration = Duration::from_millis(1_500);
const STEP: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let locks = LockClient::connect_with(url, LockConfig::builder().watchdog_lease(LEASE).build()?).await?;
    let mut lock = locks.rlock("example:long-job");

    println!("a job of 4 s under a lease of {LEASE:?}");
    let guard = lock.lock().await?;
    let steps = guard.run(job(8)).await?;
    println!("  done, {steps} steps");
    guard.unlock().await?;

    println!("the same job, but in the middle somebody removes the lock");
    let guard = lock.lock().await?;
    let start = Instant::now();
    let (outcome, removed) = tokio::join!(guard.run(job(8)), remove_after(&locks, 4 * STEP + STEP / 2));
    let removed = removed?.duration_since(start);
    match outcome {
        Err(Lost { lock, .. }) => {
            println!(
                "  `{}` is lost: the job was stopped {:.0?} later",
                lock.name,
                start.elapsed() - removed
            );
        }
        other => println!("  not stopped: {other:?}"),
    }
    // To a stopped job, that is no news. To one that runs without `guard.run`, it is the only sign.
    match guard.unlock().await {
        Err(error @ Error::NotHeld { .. }) => println!("  unlock says so, too: {error}"),
        other => println!("  unlock: {other:?}"),
    }
    locks.shutdown().await
}

/// Dropped between two steps if the lock is lost.
async fn job(steps: u32) -> u32 {
    let start = Instant::now();
    for step in 1..=steps {
        sleep(STEP).await;
        println!("  step {step} after {} ms", start.elapsed().as_millis());
    }
    steps
}

async fn remove_after(locks: &LockClient, time: Duration) -> Result<Instant> {
    sleep(time).await;
    println!("  removed: {}", locks.rlock("example:long-job").force_unlock().await?);
    Ok(Instant::now())
}
