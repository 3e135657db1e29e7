//! How can a section call another one that takes the same lock?
//!
//! A lock is re-entered by its owner. Within one function the handle is the owner: lock it again. Down a call chain,
//! pass `&mut Owner`; whoever has it needs only the name of the lock. Observe the number of holds, and that the lock
//! is free only after the outermost guard.
//!
//! ```text
//! cargo run --example nested_sections      # a Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;

use lockkeeper::{LockClient, Owner, Result};

const LEDGER: &str = "example:nested:ledger";

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let locks = LockClient::connect(url).await?;

    println!("by handle");
    let mut lock = locks.rlock(LEDGER);
    let outer = lock.lock().await?;
    let inner = lock.lock().await?;
    println!("  {} holds", lock.hold_count());
    inner.unlock().await?;
    println!("  {} hold, locked: {}", lock.hold_count(), lock.is_locked().await?);
    outer.unlock().await?;
    println!("  {} holds, locked: {}", lock.hold_count(), lock.is_locked().await?);

    println!("by owner, down a call chain");
    let mut me = locks.owner();
    transfer(&mut me, "ada", "grace", 250).await?;
    println!("  locked: {}", me.rlock(LEDGER).is_locked().await?);

    locks.shutdown().await
}

/// Both entries, or none to see for others: the lock is held from before the first until after the second.
async fn transfer(me: &mut Owner, from: &str, to: &str, amount: i64) -> Result<()> {
    let guard = me.rlock(LEDGER).lock().await?;
    println!("  transfer: {} hold", guard.holds());
    enter(me, from, -amount).await?;
    enter(me, to, amount).await?;
    guard.unlock().await
}

/// Takes the lock by itself, because it is called by itself as well. With a handle of its own instead of `me` it
/// would be another owner, and wait for its caller for ever.
async fn enter(me: &mut Owner, account: &str, amount: i64) -> Result<()> {
    let guard = me.rlock(LEDGER).lock().await?;
    println!("    enter: {account} {amount:+}, {} holds", guard.holds());
    guard.unlock().await
}
