//! What if a holder is stopped for longer than its lease, and writes before it looks?
//!
//! A worker process takes the lock, reads an account, and is stopped at work until its lease has ended. Meanwhile
//! another one takes the lock and books on the account. Then the first goes on and writes what it had computed from the
//! old balance. Nobody can keep it from sending that. But each holder has a fencing token, greater than those before,
//! and the account remembers the last it saw: observe that it refuses the late write, and that without the token the
//! same run loses a booking each time.
//!
//! ```text
//! cargo run --example fenced_writer     # a Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::env;
use std::process::Stdio;
use std::time::Duration;

use lockkeeper::LockClient;
use redis::aio::MultiplexedConnection as Redis;
use redis::{AsyncCommands, AsyncConnectionConfig, Script};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, stdin};
use tokio::process::{Child, Command};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const ROUNDS: usize = 4;
const LEASE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

const LOCK: &str = "example:fenced";
/// Of the lock. It stays for ever, but for examples.
const COUNTER: &str = "redisson_lock_token:{example:fenced}";
/// The balance, and the last token.
const ACCOUNT: &str = "example:fenced:account";

/// What protects the account is the account itself: whoever stores, compares.
const STORE: &str = "
    if ARGV[2] ~= '' then
        local last = tonumber(redis.call('hget', KEYS[1], 'token') or 0)
        if tonumber(ARGV[2]) < last then return 0 end
        redis.call('hset', KEYS[1], 'token', ARGV[2])
    end
    redis.call('hset', KEYS[1], 'balance', ARGV[1])
    return 1";

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    // It is 500 ms, and a second, otherwise.
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url.as_str())?;
    let mut redis = client.get_multiplexed_async_connection_with_config(&patient).await?;
    let locks = LockClient::connect(url).await?;
    let outcome = match env::args().nth(1) {
        Some(how) => book(&locks, &mut redis, how == "fenced", work).await.map(|was_stored| {
            println!("{}", if was_stored { "stored" } else { "refused" });
        }),
        None => {
            let outcome = compare(&locks, &mut redis).await;
            let _: () = redis.del(&[ACCOUNT, COUNTER]).await?;
            outcome
        }
    };
    locks.shutdown().await?;
    outcome
}

/// Adds one to the balance. It does not look at its guard before it writes, as a write may always come late.
async fn book(
    locks: &LockClient,
    redis: &mut Redis,
    is_fenced: bool,
    work: impl AsyncFnOnce() -> std::io::Result<()>,
) -> Result<bool> {
    let guard = locks.fenced_lock(LOCK).lease(LEASE)?.lock().await?;
    let balance: Option<u64> = redis.hget(ACCOUNT, "balance").await?;
    work().await?;
    let token = is_fenced.then(|| guard.token().to_string());
    let balance = balance.unwrap_or(0) + 1;
    let store = Script::new(STORE);
    let was_stored =
        store.key(ACCOUNT).arg(balance).arg(token.unwrap_or_default()).invoke_async(redis).await?;
    drop(guard); // the lease may have ended, that is what this is about
    Ok(was_stored)
}

/// What the late one does between reading and writing. It is not done before somebody says so.
async fn work() -> std::io::Result<()> {
    println!("has read");
    stdin().read_exact(&mut [0]).await.map(drop)
}

async fn compare(locks: &LockClient, redis: &mut Redis) -> Result<()> {
    let (lost, refused) = run(locks, redis, "fenced").await?;
    println!("with the token:    {refused} of {ROUNDS} late writes refused, {lost} bookings lost");
    let (lost_without, stored) = run(locks, redis, "not fenced").await?;
    println!("without the token: {stored} of {ROUNDS} late writes refused, {lost_without} bookings lost");
    match (lost, refused, lost_without) {
        (0, ROUNDS, 1..) => Ok(()),
        _ => Err("the token did not make the difference".into()),
    }
}

/// How many bookings that were stored are not in the balance, and how many late writes were refused.
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
        let mut says = BufReader::new(late.stdout.take().expect("piped")).lines();
        says.next_line().await?;
        signal(&late, "STOP").await?;
        stored += u64::from(book(locks, redis, how == "fenced", async || Ok(())).await?);
        signal(&late, "CONT").await?;
        late.stdin.take().expect("piped").write_all(b"\n").await?;
        match says.next_line().await?.as_deref() {
            Some("stored") => stored += 1,
            Some("refused") => refused += 1,
            other => return Err(format!("the late writer said {other:?}").into()),
        }
        late.wait().await?;
    }
    let balance: u64 = redis.hget(ACCOUNT, "balance").await?;
    Ok((stored - balance, refused))
}

async fn signal(process: &Child, name: &str) -> Result<()> {
    let pid = process.id().ok_or("it has ended")?.to_string();
    let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().await?;
    if status.success() { Ok(()) } else { Err(format!("kill -{name}: {status}").into()) }
}
