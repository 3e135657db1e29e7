//! Guards that are dropped without an unlock: how soon the server has none of their locks.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::LockClient;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::time::sleep;

use crate::connection::{self, connect};
use crate::flavor::Flavor;
use crate::peer::{AsyncRedisLock, Distkit, Lock, Peer, Rlock};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::median;

const GUARDS: usize = 10_000;

/// Locks that are acquired at the same time.
const TOGETHER: usize = 100;

const FLAVOR: Flavor = Flavor::CurrentThread;

/// A lock that is still held after this stays until its lease ends.
const LIMIT: Duration = Duration::from_secs(3);

struct Sample {
    /// Milliseconds until no lock was left, or until the limit.
    time: f64,
    left: f64,
}

type Candidate = (&'static str, Box<dyn Fn() -> Sample>);

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let candidates = [
        candidate::<LockClient>("lockkeeper", url),
        candidate::<Rlock>("rlock", url),
        candidate::<Distkit>("distkit", url),
        candidate::<AsyncRedisLock>("async-redis-lock", url),
    ];
    report.section(
        format!("{GUARDS} guards dropped without unlock, {}", FLAVOR.name()),
        format!(
            "All guards are dropped at once. The time until the server has none of the locks, or {} s. A dropped guard\n\
             of rslock or relock releases nothing, and Redisson has no guards.",
            LIMIT.as_secs()
        ),
    );
    let samples = interleave(effort.rounds.min(3), candidates.len(), |which| candidates[which].1());
    let mut table = Table::new(["candidate", "ms", "releases/s", "still locked"]);
    for ((name, _), rounds) in candidates.iter().zip(&samples) {
        let of = |value: fn(&Sample) -> f64| number(median(rounds.iter().map(value)), 0);
        let rate = of(|sample| (GUARDS as f64 - sample.left) / sample.time * 1e3);
        table.row([(*name).into(), of(|sample| sample.time), rate, of(|sample| sample.left)]);
    }
    report.table(table);
}

fn candidate<P: Peer + 'static>(name: &'static str, url: &str) -> Candidate {
    let runtime = FLAVOR.runtime();
    let (peer, server) = runtime.block_on(async { (P::connect(url).await, connect(url).await) });
    (name, Box::new(move || runtime.block_on(run(&peer, server.clone()))))
}

async fn run(peer: &impl Peer, mut server: MultiplexedConnection) -> Sample {
    let () = connection::run(&mut server, &cmd("FLUSHALL")).await;
    let mut locks: Vec<_> = (0..GUARDS).map(|number| peer.lock(&format!("dropped:{number}"))).collect();
    let mut guards = Vec::new();
    for locks in locks.chunks_mut(TOGETHER) {
        guards.extend(join_all(locks.iter_mut().map(Lock::lock)).await);
    }
    let start = Instant::now();
    drop(guards);
    let mut left = f64::INFINITY;
    while left > 0.0 && start.elapsed() < LIMIT {
        sleep(Duration::from_millis(1)).await;
        left = connection::run(&mut server, &cmd("DBSIZE")).await;
    }
    Sample { time: start.elapsed().as_secs_f64() * 1e3, left }
}
