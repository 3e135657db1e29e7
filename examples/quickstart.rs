//! How is a lock acquired and released, and what does a second owner see?
//!
//! Two handles are two owners. They exclude each other, in one process as well as between processes. Observe that the
//! second owner times out after 300 ms while the lock is held, and acquires it at once after the release.
//!
//! ```text
//! cargo run --example quickstart      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use lockkeeper::LockClient;

/// The name of a lock is its key in Redis. The prefix keeps locks apart from keys that hold data.
const LOCK: &str = "lock:example:quickstart";
const PATIENCE: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let locks = LockClient::connect(url).await?;
    let outcome = run(&locks).await;
    locks.shutdown().await?; // also after an error
    outcome
}

async fn run(locks: &LockClient) -> Result<(), Box<dyn Error>> {
    let mut first = locks.rlock(LOCK);
    let guard = first.lock().await?;
    println!("first:  holds `{}`; the watchdog renews it until the release", guard.name());

    let mut second = locks.rlock(LOCK);
    let start = Instant::now();
    if second.try_lock_for(PATIENCE).await?.is_some() {
        return Err("two owners hold the lock".into());
    }
    println!("second: timed out after {:.0?}, another owner holds the lock", start.elapsed());

    // A guard that is dropped also releases the lock, a moment later. `unlock` waits for the release, and fails if the
    // lock was lost before.
    guard.unlock().await?;
    println!("first:  released the lock");

    let start = Instant::now();
    let guard = second.lock().await?;
    println!("second: acquired the lock after {:.1?}", start.elapsed());
    guard.unlock().await?;
    Ok(())
}
