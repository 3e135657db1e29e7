//! What if a process is stopped for longer than its lease, and then writes before it checks its guard?
//!
//! A worker process acquires the lock and reads an account. It is stopped until its lease has ended. Meanwhile another
//! process acquires the lock and writes to the account. Then the first process continues, and writes what it computed
//! from the old balance. No lock can prevent that write. But each holder has a fencing token that is greater than all
//! earlier ones, and the account stores the last token. Observe that the account refuses the late writes. Observe that
//! the same run without tokens loses a booking each time.
//!
//! ```text
//! cargo run --example fenced_writer     # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::process::Stdio;
use std::time::Duration;

use lockkeeper::{LockClient, LockOptions};
use redis::aio::MultiplexedConnection as Redis;
use redis::{AsyncCommands, AsyncConnectionConfig, Script};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, stdin};
use tokio::process::{Child, Command};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const ROUNDS: usize = 4;
const LEASE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

const LOCK: &str = "lock:example:account";
/// The last token of the lock. This key never expires, so the example deletes it. Never do that with a lock in use.
const TOKEN: &str = "redisson_lock_token:{lock:example:account}";
/// The balance, and the token of the last write.
const ACCOUNT: &str = "example:account";

/// Stores the balance, except if the token is smaller than the stored one. The data protects itself: comparing and
/// storing is one step.
const STORE: &str = "
    local last = tonumber(redis.call('hget', KEYS[1], 'token') or 0)
    if tonumber(ARGV[2]) < last then return 0 end
    redis.call('hset', KEYS[1], 'balance', ARGV[1], 'token', ARGV[2])
    return 1";

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    // The defaults of redis-rs, 1 s and 500 ms, are short for a busy machine.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url.as_str())?;
    let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
    let locks = LockClient::connect(url).await?;
    let outcome = match env::args().nth(1) {
        Some(how) => book(&locks, &mut redis, how == "fenced", wait).await.map(|is_stored| {
            println!("{}", if is_stored { "stored" } else { "refused" });
        }),
        None => {
            let outcome = compare(&locks, &mut redis).await;
            let _: () = redis.del(&[ACCOUNT, TOKEN]).await?;
            outcome
        }
    };
    locks.shutdown().await?;
    outcome
}

/// Adds one to the balance. Returns whether the account accepted the write.
///
/// It does not check its guard before the write. A check would not help: the process can be stopped right after the
/// check.
async fn book(
    locks: &LockClient,
    redis: &mut Redis,
    is_fenced: bool,
    work: impl AsyncFnOnce() -> std::io::Result<()>,
) -> Result<bool> {
    let options = LockOptions::builder().fixed(LEASE).build()?;
    let guard = locks.fenced_lock(LOCK).with(&options).lock().await?;
    let balance: Option<u64> = redis.hget(ACCOUNT, "balance").await?;
    work().await?;
    let token = if is_fenced { guard.token().get() } else { 0 };
    let store = Script::new(STORE);
    let is_stored = store.key(ACCOUNT).arg(balance.unwrap_or(0) + 1).arg(token).invoke_async(redis).await?;
    drop(guard); // `unlock` would fail if the lease has ended
    Ok(is_stored)
}

/// The work of the late process: it takes until the parent sends a byte.
async fn wait() -> std::io::Result<()> {
    println!("has read");
    stdin().read_exact(&mut [0]).await.map(drop)
}

async fn compare(locks: &LockClient, redis: &mut Redis) -> Result<()> {
    let (lost, refused) = run(locks, redis, "fenced").await?;
    println!("with tokens:    {refused} of {ROUNDS} late writes refused, {lost} bookings lost");
    let (lost_without, refused_without) = run(locks, redis, "not fenced").await?;
    println!(
        "without tokens: {refused_without} of {ROUNDS} late writes refused, {lost_without} bookings lost"
    );
    match (lost, refused, lost_without) {
        (0, ROUNDS, 1..) => Ok(()),
        _ => Err("the tokens made no difference".into()),
    }
}

/// Returns how many accepted bookings are missing in the balance, and how many late writes were refused.
async fn run(locks: &LockClient, redis: &mut Redis, how: &str) -> Result<(u64, usize)> {
    let _: () = redis.del(ACCOUNT).await?;
    let (mut stored, mut refused) = (0, 0);
    for _ in 0..ROUNDS {
        let mut late = Command::new(env::current_exe()?)
            .arg(how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(late.stdout.take().expect("piped")).lines();
        lines.next_line().await?;
        signal(&late, "STOP").await?;
        stored += u64::from(book(locks, redis, how == "fenced", async || Ok(())).await?);
        signal(&late, "CONT").await?;
        late.stdin.take().expect("piped").write_all(b"\n").await?;
        match lines.next_line().await?.as_deref() {
            Some("stored") => stored += 1,
            Some("refused") => refused += 1,
            other => return Err(format!("the late process printed {other:?}").into()),
        }
        late.wait().await?;
    }
    let balance: u64 = redis.hget(ACCOUNT, "balance").await?;
    Ok((stored - balance, refused))
}

async fn signal(process: &Child, name: &str) -> Result<()> {
    let pid = process.id().ok_or("the process has ended")?.to_string();
    let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().await?;
    if status.success() { Ok(()) } else { Err(format!("kill -{name}: {status}").into()) }
}
