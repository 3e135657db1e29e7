//! The third part: the holder of a lock is cut off from Redis while it works, once with `SET NX` and once with lockkeeper.
//!
//! Each lock has two workers. The first reaches Redis through a relay, which after a second forwards nothing more. Both
//! write what they do into one file, each line with one `write`. So the order of the lines is what happened.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper::{Error, LockClient, LockConfig};
use redis::{ConnectionAddr, IntoConnectionInfo};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::screen::{Ink, ink};
use crate::{LEASE, Result, redis_url};

const LOCK: &str = "lock:example:cut-off";
const SET_NX_LOCK: &str = "lock:example:cut-off:set-nx";
const SET_NX: &str = "SET NX";
const LOCKKEEPER: &str = "lockkeeper";

const BEGINS: &str = "begins";
const WORKS: &str = "works";
const DONE: &str = "is done";
const STOPPED: &str = "is stopped, because its lock is lost";

const CUT_AFTER: Duration = Duration::from_secs(1);

/// For so long the second worker works. The first one works until then, if nobody stops it.
const WORK: Duration = Duration::from_secs(1);

/// After this time, the workers are stopped.
const LONGEST: Duration = Duration::from_secs(15);

/// What the workers of one lock wrote: when, which worker, and what.
pub(crate) struct Log(Vec<(u64, String, String)>);

/// Lets both pairs of workers work at the same time.
pub(crate) async fn perform(scratch: &Path) -> Result<[Log; 2]> {
    let (set_nx, lockkeeper) = (scratch.join("cut-off-set-nx"), scratch.join("cut-off-lockkeeper"));
    let both = async { tokio::try_join!(pair(SET_NX, &set_nx), pair(LOCKKEEPER, &lockkeeper)) };
    let outcome = timeout(LONGEST, both).await;
    // A worker that was stopped or is cut off releases nothing.
    let mut redis = redis::Client::open(redis_url())?.get_multiplexed_async_connection().await?;
    redis::cmd("DEL").arg(&[LOCK, SET_NX_LOCK]).exec_async(&mut redis).await?;
    let (set_nx, lockkeeper) = outcome.map_err(|_| format!("the workers still ran after {LONGEST:?}"))??;
    Ok([set_nx, lockkeeper])
}

async fn pair(lock: &str, log: &Path) -> Result<Log> {
    fs::write(log, "")?;
    let (url, cut) = relay().await?;
    let mut first = start(lock, "1", &url, log)?;
    while !Log::read(log)?.has("1", BEGINS) {
        if let Some(status) = first.try_wait()? {
            return Err(format!("worker 1 with {lock} failed: {status}").into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    let mut second = start(lock, "2", &redis_url(), log)?;
    sleep(CUT_AFTER).await;
    record(log, "1", "is cut off from Redis")?;
    cut.send_replace(true);
    // `wait` would close them, and that ends a worker.
    let _inputs = (first.stdin.take(), second.stdin.take());
    for (number, worker) in [(1, &mut first), (2, &mut second)] {
        let status = worker.wait().await?;
        if !status.success() {
            return Err(format!("worker {number} with {lock} failed: {status}").into());
        }
    }
    Log::read(log)
}

impl Log {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let line = |line: &str| {
            let [at, worker, what] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
            Some((at.parse().ok()?, worker.to_owned(), what.to_owned()))
        };
        Ok(Self(text.lines().filter_map(line).collect()))
    }

    fn has(&self, of: &str, event: &str) -> bool {
        self.0.iter().any(|(_, worker, what)| worker == of && what == event)
    }

    /// Whether the first worker was stopped, and the second one worked.
    pub(crate) fn was_handed_over(&self) -> bool {
        self.has("1", STOPPED) && self.has("2", DONE)
    }

    /// For how many milliseconds both workers worked: from the beginning of the second one to the last work of both.
    pub(crate) fn both_worked_ms(&self) -> u64 {
        let second = self.0.iter().position(|(_, worker, what)| worker == "2" && what == BEGINS);
        let rest = &self.0[second.unwrap_or(self.0.len())..];
        let last =
            |of| rest.iter().rfind(|(_, worker, what)| worker == of && what == WORKS).map(|(at, ..)| *at);
        let (Some((begun, ..)), Some(first), Some(second)) = (rest.first(), last("1"), last("2")) else {
            return 0;
        };
        first.min(second).saturating_sub(*begun).max(1)
    }

    pub(crate) fn show(&self) {
        let both_work = self.both_worked_ms() > 0;
        let start = self.0.first().map_or(0, |(at, ..)| *at);
        for (at, worker, what) in self.0.iter().filter(|(.., what)| what != WORKS) {
            let seconds = Duration::from_millis(at.saturating_sub(start)).as_secs_f64();
            let line = format!("{seconds:>7.2} s  worker {worker} {what}");
            if both_work && worker == "2" && what == BEGINS {
                println!("{}", ink(Ink::Red, &format!("{line}, while worker 1 still works")));
            } else {
                println!("{line}");
            }
        }
    }
}

fn record(path: &Path, worker: &str, what: &str) -> Result<()> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let line = format!("{at}\t{worker}\t{what}\n");
    Ok(OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes())?)
}

fn start(lock: &str, worker: &str, url: &str, log: &Path) -> Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["cut-off", lock, worker]).arg(log).env("REDIS_URL", url);
    command.stdin(Stdio::piped()).process_group(0).kill_on_drop(true); // a worker ends with its parent, see `worker.rs`
    Ok(command.spawn()?)
}

/// A worker: acquires the lock and works. The arguments are `SET NX|lockkeeper 1|2 LOG`.
pub(crate) async fn worker(args: &[String]) -> Result<()> {
    let [lock, worker, log] = args else { return Err("only the parent can start a worker".into()) };
    let log = Path::new(log);
    let work = async {
        record(log, worker, BEGINS)?;
        let end = Instant::now() + WORK;
        while if worker == "1" { !Log::read(log)?.has("2", DONE) } else { Instant::now() < end } {
            record(log, worker, WORKS)?;
            sleep(Duration::from_millis(10)).await;
        }
        record(log, worker, DONE)
    };
    if lock == SET_NX {
        with_set_nx(work).await
    } else if with_lockkeeper(work).await?.is_err() {
        record(log, worker, STOPPED)
    } else {
        Ok(())
    }
}

/// Acquires the lock as many programs do: one command, which gives the lock a time to live.
async fn with_set_nx(work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut redis = redis::Client::open(redis_url())?.get_multiplexed_async_connection().await?;
    let mut set = redis::cmd("SET");
    set.arg(&[SET_NX_LOCK, "worker", "NX", "PX"]).arg(LEASE.as_millis());
    while set.query_async::<Option<String>>(&mut redis).await?.is_none() {
        sleep(Duration::from_millis(20)).await;
    }
    work.await // afterwards, the lock ends by itself
}

async fn with_lockkeeper(work: impl Future<Output = Result<()>>) -> Result<Result<(), Error>> {
    // A process that is cut off cannot remove the record of what it holds, so it makes none.
    let config = LockConfig::builder().watchdog_lease(LEASE).diagnosis(false).build()?;
    let locks = LockClient::connect_with(redis_url(), config).await?;
    match locks.rlock(LOCK).run(work).await {
        Ok(outcome) => outcome.map(Ok),
        Err(lost) if lost.work_was_unprotected() => Ok(Err(lost)), // Redis cannot be reached, so nothing can be released
        Err(error) => Err(error.into()),
    }
}

/// Forwards connections to Redis, and nothing more from the cut on. Returns its URL and the switch.
async fn relay() -> Result<(String, watch::Sender<bool>)> {
    let mut url = redis::parse_redis_url(&redis_url()).ok_or("the URL of Redis cannot be read")?;
    let ConnectionAddr::Tcp(host, port) = redis_url().into_connection_info()?.addr().clone() else {
        return Err("the demo needs a server at redis://HOST:PORT/".into());
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    url.set_host(Some("127.0.0.1"))?;
    url.set_port(Some(listener.local_addr()?.port())).map_err(|()| "the URL of Redis has no port")?;
    let (cut, is_cut) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut worker, _)) = listener.accept().await {
            let (mut is_cut, address) = (is_cut.clone(), (host.clone(), port));
            tokio::spawn(async move {
                let Ok(mut redis) = TcpStream::connect(address).await else { return };
                let forwarding = copy_bidirectional(&mut worker, &mut redis);
                if tokio::select! { _ = forwarding => false, cut = is_cut.wait_for(|&cut| cut) => cut.is_ok() }
                {
                    std::future::pending::<()>().await; // both connections stay open and silent
                }
            });
        }
    });
    Ok((url.into(), cut))
}
