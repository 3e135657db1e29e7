//! How is a lock taken and given back, and what does a rival see of it?
//!
//! Two handles are two owners, so they exclude each other, in one process as between two. Observe that the rival
//! gives up after 300 ms while the lock is held, and gets it at once after it was released.
//!
//! ```text
//! cargo run --example quickstart      # a Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use lockkeeper::LockClient;

const PATIENCE: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let locks = LockClient::connect(url).await?;

    let mut lock = locks.rlock("example:quickstart");
    let guard = lock.lock().await?;
    println!("first:  holds `{}`, renewed until it is released", guard.name());

    let mut rival = locks.rlock("example:quickstart");
    let start = Instant::now();
    match rival.try_lock_for(PATIENCE).await? {
        Some(_) => return Err("two owners at once".into()),
        None => println!("second: gave up after {:.0?}, somebody else holds it", start.elapsed()),
    }

    // A guard that is dropped releases as well, a moment later. `unlock` says whether the lock was held until now.
    guard.unlock().await?;
    println!("first:  released it");

    let start = Instant::now();
    let Some(guard) = rival.try_lock_for(PATIENCE).await? else {
        return Err("somebody else uses the lock of this example".into());
    };
    println!("second: got it after {:.1?}", start.elapsed());
    guard.unlock().await?;

    locks.shutdown().await?;
    Ok(())
}
