//! Guards that are dropped without an unlock: how soon nothing of them is left on the server.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::LockClient;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::time::sleep;

use crate::bare;
use crate::flavor::Flavor;
use crate::peer::{AsyncRedisLock, Distkit, Lock, Peer, Rlock};
use crate::rounds::{Effort, interleave};
use crate::stats::median;
use crate::table::Table;

const GUARDS: usize = 10_000;

/// Locked so many at a time.
const TOGETHER: usize = 100;

const FLAVOR: Flavor = Flavor::CurrentThread;

/// What is left after this stays until its lease ends.
const PATIENCE: Duration = Duration::from_secs(3);

struct Sample {
    /// Milliseconds until the server was clean, or patience ended.
    time: f64,
    left: f64,
}

type Candidate = (&'static str, Box<dyn Fn() -> Sample>);

pub fn measure(url: &str, effort: Effort) {
    let candidates = [
        candidate::<LockClient>("lockkeeper", url),
        candidate::<Rlock>("rlock", url),
        candidate::<Distkit>("distkit", url),
        candidate::<AsyncRedisLock>("async-redis-lock", url),
    ];
    println!("\n## {GUARDS} guards dropped without unlock, {}\n", FLAVOR.name());
    println!("All at once, until the server has none of the locks any more, or {} s.", PATIENCE.as_secs());
    println!("The guards of rslock and relock do nothing when they are dropped, and Redisson has none.\n");
    let samples = interleave(effort.rounds.min(3), candidates.len(), |which| candidates[which].1());
    let mut table = Table::new(["candidate", "ms", "releases/s", "still locked"]);
    for ((name, _), rounds) in candidates.iter().zip(&samples) {
        let of = |value: fn(&Sample) -> f64| format!("{:.0}", median(rounds.iter().map(value)));
        let rate = of(|sample| (GUARDS as f64 - sample.left) / sample.time * 1e3);
        table.row([(*name).to_owned(), of(|sample| sample.time), rate, of(|sample| sample.left)]);
    }
    print!("{table}");
}

fn candidate<P: Peer + 'static>(name: &'static str, url: &str) -> Candidate {
    let runtime = FLAVOR.runtime();
    let (peer, server) = runtime.block_on(async { (P::connect(url).await, bare::connection(url).await) });
    (name, Box::new(move || runtime.block_on(run(&peer, server.clone()))))
}

async fn run(peer: &impl Peer, mut server: MultiplexedConnection) -> Sample {
    let () = bare::run(&mut server, &cmd("FLUSHALL")).await;
    let mut locks: Vec<_> = (0..GUARDS).map(|number| peer.lock(&format!("dropped:{number}"))).collect();
    let mut guards = Vec::new();
    for locks in locks.chunks_mut(TOGETHER) {
        guards.extend(join_all(locks.iter_mut().map(Lock::lock)).await);
    }
    let start = Instant::now();
    drop(guards);
    let mut left = f64::INFINITY;
    while left > 0.0 && start.elapsed() < PATIENCE {
        sleep(Duration::from_millis(1)).await;
        left = bare::run(&mut server, &cmd("DBSIZE")).await;
    }
    Sample { time: start.elapsed().as_secs_f64() * 1e3, left }
}
