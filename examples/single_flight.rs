//! How is a value refreshed once, although many processes find it expired at the same time?
//!
//! The value can be a cached page, or an access token that the provider issues only once at a time. A caller that finds no
//! value locks and *looks again*: perhaps another caller refreshed it meanwhile. Without the second look, each caller would
//! refresh it, one after the other. There are three outcomes besides the value of the cache: this caller refreshed it, another
//! one is still at it (busy), or the lock cannot be reached (unavailable). Busy and unavailable are not the same: after the
//! first, a value comes soon.
//!
//! ```text
//! cargo run --example single_flight      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

use lockkeeper::{Error, LockClient};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection as Redis;
use tokio::task::JoinSet;
use tokio::time::sleep;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const CLIENTS: usize = 3;
const CALLERS: usize = 20;
const EXPIRIES: usize = 5;
const REFRESH_TIME: Duration = Duration::from_millis(30);
/// How long a caller waits for another one that refreshes.
const PATIENCE: Duration = Duration::from_secs(5);

const LOCK: &str = "lock:example:token";
const TOKEN: &str = "example:token";
/// For the check: how often the token was refreshed.
const REFRESHES: &str = "example:token:refreshes";

enum Token {
    Cached(String),
    Refreshed(String),
    /// Another caller refreshes it, for longer than this one waits. Try again soon, or use the old value.
    Busy,
    /// Nobody knows whether another caller refreshes it. Fail, or use the old value.
    Unavailable(Error),
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let mut redis = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let () = redis.del(&[TOKEN, REFRESHES]).await?; // of a run that was interrupted
    let outcome = refresh_once_for_all(&url, &mut redis).await;
    let outcome = outcome.and(other_outcomes(&url, &mut redis).await);
    let () = redis.del(&[TOKEN, REFRESHES]).await?;
    outcome
}

/// Returns the token. If there is none, one caller refreshes it, and the others wait for that.
async fn token(locks: &LockClient, redis: &mut Redis, patience: Duration) -> Result<Token> {
    if let Some(token) = redis.get(TOKEN).await? {
        return Ok(Token::Cached(token));
    }
    match locks.rlock(LOCK).try_run_for(patience, refresh_unless_cached(redis)).await {
        Ok(Some(token)) => token,
        Ok(None) => Ok(Token::Busy),
        Err(error) => Ok(Token::Unavailable(error)),
    }
}

/// The section. Looks again: perhaps another caller refreshed the token while this one waited.
async fn refresh_unless_cached(redis: &mut Redis) -> Result<Token> {
    Ok(match redis.get(TOKEN).await? {
        Some(token) => Token::Cached(token),
        None => Token::Refreshed(refresh(redis).await?),
    })
}

/// Asks the provider for a new token, and keeps it for the others.
async fn refresh(redis: &mut Redis) -> Result<String> {
    sleep(REFRESH_TIME).await; // the provider's answer
    let number: u64 = redis.incr(REFRESHES, 1).await?;
    let token = format!("token {number}");
    let () = redis.set(TOKEN, &token).await?;
    Ok(token)
}

/// Lets the token expire several times below many callers.
async fn refresh_once_for_all(url: &str, redis: &mut Redis) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(LockClient::connect(url).await?);
    }
    let (mut refreshed, mut tokens) = (0, BTreeSet::new());
    for _ in 0..EXPIRIES {
        let () = redis.del(TOKEN).await?;
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let (locks, mut redis) = (clients[caller % CLIENTS].clone(), redis.clone());
            callers.spawn(async move { token(&locks, &mut redis, PATIENCE).await });
        }
        while let Some(outcome) = callers.join_next().await {
            match outcome?? {
                Token::Refreshed(token) => {
                    println!("refreshed: {token}");
                    refreshed += 1;
                }
                Token::Cached(token) => {
                    tokens.insert(token);
                }
                Token::Busy => return Err("a caller waited in vain".into()),
                Token::Unavailable(error) => return Err(error.into()),
            }
        }
    }
    println!("{EXPIRIES} expiries, {refreshed} refreshes; the other callers used {tokens:?}");
    for client in clients {
        client.shutdown().await?;
    }
    if refreshed == EXPIRIES { Ok(()) } else { Err("it was not refreshed once for each expiry".into()) }
}

/// Shows what a caller gets while another one refreshes, and without a lock.
async fn other_outcomes(url: &str, redis: &mut Redis) -> Result<()> {
    let (locks, beside) = (LockClient::connect(url).await?, LockClient::connect(url).await?);
    let () = redis.del(TOKEN).await?;
    let slow = beside.rlock(LOCK).lock().await?;
    let busy = token(&locks, redis, REFRESH_TIME).await?;
    slow.unlock().await?;
    locks.shutdown().await?;
    let unavailable = token(&locks, redis, REFRESH_TIME).await?;
    beside.shutdown().await?;
    match (busy, unavailable) {
        (Token::Busy, Token::Unavailable(error)) => {
            println!("beside a slow caller: busy; without a lock: unavailable, as {error}");
            Ok(())
        }
        _ => Err("a caller was not told why there is no token".into()),
    }
}
