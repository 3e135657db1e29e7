//! Which settings does a service begin with, and how does it use them?
//!
//! The service reads `production.toml`, which has the settings that depend on the deployment. All others keep their defaults. It
//! runs a job under a lock, says what it does when the lock is not available, and releases everything before it exits.
//!
//! ```text
//! cargo run --example production      # uses the Redis or Valkey at REDIS_URL, or at the address in the file
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use lockkeeper::{LockClient, LockConfig, Source};
use serde::Deserialize;
use tokio::time::sleep;

#[derive(Deserialize)]
struct Settings {
    locks: LockConfig,
    server: Source,
}

const LOCK: &str = "lock:example:report";
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A service reads its file when it starts. A wrong value stops it here, with the name of the setting.
    let Settings { locks, server } = toml::from_str(include_str!("production.toml"))?;
    let server = env::var("REDIS_URL").map_or(server, Source::url);
    let locks = LockClient::connect_with(server, locks).await?;
    let outcome = serve(&locks).await;
    // Also after an error, so that no lock stays held until its lease ends.
    locks.shutdown().await?;
    outcome
}

/// Writes the report, except if another process writes it.
async fn serve(locks: &LockClient) -> Result<(), Box<dyn Error>> {
    match locks.rlock(LOCK).try_run_for(PATIENCE, write_report()).await {
        Ok(Some(pages)) => println!("wrote {pages} pages"),
        Ok(None) => println!("another process writes the report"),
        Err(error) if error.work_was_unprotected() => {
            println!("check the report, perhaps two processes wrote it: {error}")
        }
        Err(error) => return Err(error.into()), // the job did not run
    }
    Ok(())
}

async fn write_report() -> u32 {
    sleep(Duration::from_millis(100)).await;
    12
}
