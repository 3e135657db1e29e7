//! How does a section call another section that needs the same lock?
//!
//! The owner of a lock can acquire it again. Within one function, the handle is the owner. Down a call chain, pass
//! `&mut Owner`: a function that has it needs only the name of the lock. Observe the hold counts, and that the lock is
//! free only after the outermost release.
//!
//! ```text
//! cargo run --example nested_sections      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;

use lockkeeper::{LockClient, Owner, Result};

const LOCK: &str = "lock:example:accounts";

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let locks = LockClient::connect(url).await?;
    let outcome = run(&locks).await;
    locks.shutdown().await?;
    outcome
}

async fn run(locks: &LockClient) -> Result<()> {
    println!("with one handle");
    let mut lock = locks.rlock(LOCK);
    let outer = lock.lock().await?;
    let inner = lock.lock().await?;
    println!("  {} holds", lock.hold_count());
    inner.unlock().await?;
    println!("  {} hold, locked: {}", lock.hold_count(), lock.is_locked().await?);
    outer.unlock().await?;
    println!("  {} holds, locked: {}", lock.hold_count(), lock.is_locked().await?);

    println!("with an owner, down a call chain");
    let mut owner = locks.owner();
    transfer(&mut owner, "ada", "grace", 250).await?;
    println!("  locked: {}", owner.rlock(LOCK).is_locked().await?);
    Ok(())
}

/// Holds the lock around both entries, so no other owner sees one without the other.
async fn transfer(owner: &mut Owner, from: &str, to: &str, amount: i64) -> Result<()> {
    let guard = owner.rlock(LOCK).lock().await?;
    println!("  transfer: {} hold", guard.hold_count());
    enter(owner, from, -amount).await?;
    enter(owner, to, amount).await?;
    guard.unlock().await
}

/// Acquires the lock itself, because others call it without a lock. With a new handle instead of `owner`, this function
/// would be another owner, and would wait for its caller forever.
async fn enter(owner: &mut Owner, account: &str, amount: i64) -> Result<()> {
    let guard = owner.rlock(LOCK).lock().await?;
    println!("    enter: {account} {amount:+}, {} holds", guard.hold_count());
    guard.unlock().await
}
