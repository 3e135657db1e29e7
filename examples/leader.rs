//! How does one of several processes do a long work, and another one take over when it dies?
//!
//! Three processes are candidates. The leader writes the pages of a report, one after the other. In the middle it is killed, as by
//! `kill -9`. When its lease has ended, another candidate leads and continues with the next page. Each page has the term of
//! the leader that wrote it. Observe that every page is there once, that terms grow, and that followers learn who leads: each leader announces its
//! process.
//!
//! ```text
//! cargo run --example leader      # uses the Redis or Valkey at REDIS_URL, or at redis://127.0.0.1/
//! ```

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use lockkeeper::leader::{Candidate, LeaderWatch, Leadership};
use lockkeeper::{LockClient, LockConfig};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection as Redis;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const CANDIDATES: usize = 3;
const PAGES: usize = 30;
const PAGE_TIME: Duration = Duration::from_millis(100);
/// After this many pages, the leader is killed.
const KILLED_AFTER: usize = 8;
/// Short, so that another candidate leads soon. The default is 30 s.
const LEASE: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(30);

const LEADER: &str = "lock:example:leader";
/// The number of the last term. It stays when nobody leads.
const COUNTER: &str = "redisson_lock_token:{lock:example:leader}";
/// From a page to the term and the process that wrote it.
const REPORT: &str = "example:leader:report";

const CANDIDATE: &str = "candidate";

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let redis = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let locks = LockClient::connect_with(url, LockConfig::builder().watchdog_lease(LEASE).build()?).await?;
    let outcome = if env::args().nth(1).as_deref() == Some(CANDIDATE) {
        campaign(&locks, &redis).await
    } else {
        manage(&locks, redis).await
    };
    locks.shutdown().await?;
    outcome
}

/// One candidate. It returns when the report is complete, whoever wrote the last page, or at Ctrl-C.
async fn campaign(locks: &LockClient, redis: &Redis) -> Result<()> {
    // Mostly this is an address.
    let mut candidate = Candidate::new(locks, LEADER).announce(format!("process {}", std::process::id()))?;
    tokio::select! {
        outcome = candidate.run(|leadership| write_report(leadership, redis.clone())) => outcome?,
        _ = tokio::signal::ctrl_c() => Ok(()), // the work is dropped, and the leadership released
    }
}

/// The work of the leader. It is dropped if the leadership is lost, and continues where an earlier leader stopped.
async fn write_report(leadership: Leadership, mut redis: Redis) -> Result<()> {
    let mut page: usize = redis.hlen(REPORT).await?;
    while page < PAGES {
        sleep(PAGE_TIME).await; // the work
        page += 1;
        let by = format!("{} {}", leadership.term(), std::process::id());
        // A database would also refuse a term that is smaller than the last one.
        if !redis.hset_nx(REPORT, page, by).await? {
            return Err(format!("page {page} was written twice").into());
        }
    }
    Ok(())
}

/// Starts the candidates, kills the first leader at work, and checks the report.
async fn manage(locks: &LockClient, mut redis: Redis) -> Result<()> {
    let () = redis.del(REPORT).await?; // of a run that was interrupted
    let follower = tokio::spawn(follow(LeaderWatch::new(locks, LEADER)));
    let mut candidates = Vec::new();
    for _ in 0..CANDIDATES {
        let candidate = Command::new(env::current_exe()?).arg(CANDIDATE).kill_on_drop(true).spawn()?;
        candidates.push(candidate);
    }
    let work = async {
        kill_leader(&mut candidates, &mut redis).await?;
        for candidate in &mut candidates {
            if !candidate.wait().await?.success() {
                return Err("a candidate failed".into());
            }
        }
        check(redis.hgetall(REPORT).await?)
    };
    let outcome = timeout(LIMIT, work).await?;
    follower.abort();
    let () = redis.del(&[REPORT, COUNTER]).await?;
    outcome
}

/// Tells who leads, as a process that does not want to lead would.
async fn follow(mut watch: LeaderWatch) -> Result<()> {
    loop {
        match watch.changed().await? {
            Some(leader) => match leader.announcement {
                Some(said) => println!("{} leads", String::from_utf8_lossy(&said)),
                None => println!("{} leads", leader.holder), // not yet announced
            },
            None => println!("nobody leads"),
        }
    }
}

/// Kills the leader when it has written some pages.
async fn kill_leader(candidates: &mut Vec<Child>, redis: &mut Redis) -> Result<()> {
    let by: String = loop {
        match redis.hget(REPORT, KILLED_AFTER).await? {
            Some(by) => break by,
            None => sleep(PAGE_TIME).await,
        }
    };
    let (_, process) = by.split_once(' ').ok_or("no process")?;
    let is_leader = |candidate: &Child| candidate.id().is_some_and(|id| id.to_string() == process);
    let leader = candidates.iter().position(is_leader).ok_or("the leader is no candidate")?;
    candidates.remove(leader).kill().await?;
    println!("killed at page {KILLED_AFTER}");
    Ok(())
}

fn check(report: BTreeMap<usize, String>) -> Result<()> {
    let mut terms: Vec<u64> = Vec::new();
    for page in 1..=PAGES {
        let by = report.get(&page).ok_or_else(|| format!("page {page} is missing"))?;
        let (term, _) = by.split_once(' ').ok_or("no term")?;
        terms.push(term.parse()?);
    }
    if !terms.is_sorted() {
        return Err(format!("an earlier leader wrote after a later one: {terms:?}").into());
    }
    terms.dedup();
    println!("{PAGES} pages, each once, in {} terms", terms.len());
    if terms.len() > 1 { Ok(()) } else { Err(format!("the terms were {terms:?}").into()) }
}
