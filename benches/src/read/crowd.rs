//! Whether reading costs the server more if many others read.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use crate::bare::BareRead;
use crate::connection::connect;
use crate::flavor::Flavor;
use crate::info::script_micros;
use crate::peer::{Lock, Peer};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};

/// The ratios are to the first.
const OTHERS: [usize; 3] = [1, 100, 1_000];

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    report.section(
        "A read lock beside other readers",
        "The server time of a lock and unlock by the bare scripts. All readers have the same lease.",
    );
    let runtime = Flavor::CurrentThread.runtime();
    let (readers, server) = runtime.block_on(async { (BareRead::connect(url).await, connect(url).await) });
    let samples = interleave(effort.rounds, OTHERS.len(), |which| {
        runtime.block_on(run(&readers, server.clone(), OTHERS[which], effort.slice))
    });
    let mut table = Table::new(["other readers", "server µs", "ratio to one other", "target"])
        .plot_ratios("ratio to one other", 1);
    for (others, rounds) in OTHERS.iter().zip(&samples) {
        let ratio = Ratio::new(rounds, &samples[0], |micros| *micros);
        table.row([
            (*others).into(),
            number(median(rounds.iter().copied()), 1),
            ratio.into(),
            ratio.at_most(2.0).into(),
        ]);
    }
    report.table(table);
}

/// Returns the microseconds of a pair.
async fn run(readers: &BareRead, mut server: MultiplexedConnection, others: usize, time: Duration) -> f64 {
    let mut lock = readers.lock("crowd");
    let mut guards = Vec::new();
    for _ in 0..others {
        guards.push(lock.lock().await);
    }
    let before = script_micros(&mut server).await;
    let start = Instant::now();
    let mut pairs = 0.0;
    while start.elapsed() < time {
        let guard = lock.lock().await;
        lock.unlock(guard).await;
        pairs += 1.0;
    }
    let micros = script_micros(&mut server).await - before;
    for guard in guards {
        lock.unlock(guard).await;
    }
    micros / pairs
}
