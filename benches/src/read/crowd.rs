//! Whether to read costs the server more where many others read.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use crate::bare::{self, BareRead};
use crate::flavor::Flavor;
use crate::peer::{Lock, Peer};
use crate::rounds::{Effort, interleave};
use crate::share::worked;
use crate::stats::{Ratio, median};
use crate::table::Table;

/// The first is what the others are compared with.
const OTHERS: [usize; 3] = [1, 100, 1_000];

pub fn measure(url: &str, effort: Effort) {
    println!("\n## A read lock beside other readers\n");
    println!("Time that the server works for a pair of the bare scripts. All have equal leases.\n");
    let runtime = Flavor::CurrentThread.runtime();
    let (readers, server) =
        runtime.block_on(async { (BareRead::connect(url).await, bare::connection(url).await) });
    let samples = interleave(effort.rounds, OTHERS.len(), |which| {
        runtime.block_on(run(&readers, server.clone(), OTHERS[which], effort.slice))
    });
    let mut table = Table::new(["other readers", "server µs", "ratio to one other", "target"]);
    for (others, rounds) in OTHERS.iter().zip(&samples) {
        let ratio = Ratio::new(rounds, &samples[0], |micros| *micros);
        table.row([
            others.to_string(),
            format!("{:.1}", median(rounds.iter().copied())),
            ratio.to_string(),
            ratio.at_most(2.0),
        ]);
    }
    print!("{table}");
}

/// Returns the microseconds of a pair.
async fn run(readers: &BareRead, mut server: MultiplexedConnection, others: usize, time: Duration) -> f64 {
    let mut lock = readers.lock("crowd");
    let mut crowd = Vec::new();
    for _ in 0..others {
        crowd.push(lock.lock().await);
    }
    let before = worked(&mut server).await;
    let start = Instant::now();
    let mut pairs = 0.0;
    while start.elapsed() < time {
        let guard = lock.lock().await;
        lock.unlock(guard).await;
        pairs += 1.0;
    }
    let worked = worked(&mut server).await - before;
    for guard in crowd {
        lock.unlock(guard).await;
    }
    worked / pairs
}
