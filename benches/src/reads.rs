//! Reads of many tasks with one lock that lingers: what the client computes for each, and what it sends.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{LockClient, LockOptions, ReadLock};
use tokio::sync::RwLock;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;

use crate::commands;
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::runtime::{cpu_time, one_thread};
use crate::stats::at_most;

#[derive(Clone, Copy, PartialEq)]
enum Candidate {
    Tokio,
    NewHandle,
    KeptHandle,
}
use Candidate::{KeptHandle, NewHandle, Tokio};

/// With the most microseconds of a read, by the number of tasks.
const CANDIDATES: [(&str, Candidate, [Option<f64>; 4]); 3] = [
    ("tokio's `RwLock`", Tokio, [None; 4]),
    ("a new handle each", NewHandle, [Some(1.4), Some(0.8), Some(1.0), Some(1.2)]),
    ("a handle that is kept", KeptHandle, [Some(1.0), Some(0.5), Some(0.6), Some(0.7)]),
];

const TASKS: [usize; 4] = [1, 64, 1_000, 4_000];

/// The most commands a read.
const MOST_COMMANDS: f64 = 0.01;

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let mut table =
        Table::new(["candidate", "tasks", "CPU µs a read", "target", "commands a read", "target"]);
    for (place, tasks) in TASKS.into_iter().enumerate() {
        let of = |which: usize| run(url, CANDIDATES[which].1, tasks, effort.slice);
        let samples = interleave(effort.rounds, CANDIDATES.len(), |which| of(which).1);
        for (which, (name, candidate, targets)) in CANDIDATES.into_iter().enumerate() {
            let micros = samples[which].iter().copied().fold(f64::INFINITY, f64::min);
            let commands = (candidate != Tokio).then(|| {
                let ((reads, _), sent) = commands::count(url, || of(which));
                sent / reads
            });
            let wanted = commands.filter(|_| tasks >= 1_000);
            table.row([
                name.to_owned(),
                tasks.to_string(),
                number(micros, 2),
                targets[place].map(|target| at_most(micros, target)).unwrap_or_default(),
                commands.map(|commands| number(commands, 4)).unwrap_or_default(),
                wanted.map(|commands| at_most(commands, MOST_COMMANDS)).unwrap_or_default(),
            ]);
        }
    }
    report.section(
        "Reads that linger",
        "All tasks of one thread read with the same lock, and each read yields once inside. `linger` is 50 ms. *CPU*: of the whole\n\
         process, in the best round. *commands*: from another run with `MONITOR`, with those of connecting and of the end.",
        &table,
    );
}

/// Returns how many reads there were, and the microseconds of CPU time of each.
fn run(url: &str, candidate: Candidate, tasks: usize, time: Duration) -> (f64, f64) {
    one_thread().block_on(async {
        let locks = LockClient::connect(url).await.expect("a client");
        let linger = LockOptions::builder().linger(Duration::from_millis(50)).build().expect("valid");
        let handle = move || locks.read_write_lock("reads").with(&linger).into_read();
        drop(handle().lock().await.expect("a read"));
        let (computed, until) = (cpu_time(), Instant::now() + time);
        let mut running = JoinSet::new();
        let local = Arc::new(RwLock::new(()));
        for _ in 0..tasks {
            let (handle, mut kept, local) = (handle.clone(), handle(), Arc::clone(&local));
            running.spawn(async move {
                let mut reads = 0_usize;
                while Instant::now() < until {
                    match candidate {
                        Tokio => {
                            let _guard = local.read().await;
                            yield_now().await;
                        }
                        NewHandle => read(&mut handle()).await,
                        KeptHandle => read(&mut kept).await,
                    }
                    reads += 1;
                }
                reads
            });
        }
        let reads = running.join_all().await.into_iter().sum::<usize>() as f64;
        (reads, (cpu_time() - computed) as f64 / 1e3 / reads)
    })
}

async fn read(lock: &mut ReadLock<'_>) {
    let _guard = lock.lock().await.expect("a read");
    yield_now().await;
}
