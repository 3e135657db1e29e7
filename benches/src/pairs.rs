//! Tasks that lock and unlock over and over.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::clock;
use crate::flavor::Flavor;
use crate::peer::{Lock, Peer};
use crate::redisson::{self, Jvm, Work};
use crate::report::{Cell, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::{Latencies, Ratio, median};

/// One candidate in one round.
pub struct Sample {
    /// Pairs of lock and unlock per second.
    pub rate: f64,
    /// Microseconds of a pair.
    pub p50: f64,
    pub p99: f64,
    pub pairs: f64,
    /// Microseconds of CPU time that the client's process uses per pair.
    pub client: f64,
}

impl Sample {
    /// Takes the time of each pair, the time until the end of the last, and nanoseconds of CPU time.
    fn new(times: impl IntoIterator<Item = Duration>, elapsed: Duration, cpu_time: u64) -> Self {
        let times = Latencies::from_iter(times);
        let pairs = times.count() as f64;
        Self {
            pairs,
            rate: pairs / elapsed.as_secs_f64(),
            client: cpu_time as f64 / 1e3 / pairs,
            p50: times.micros(0.5),
            p99: times.micros(0.99),
        }
    }
}

/// Takes the number of tasks and the time.
pub type Candidate = (&'static str, Box<dyn Fn(usize, Duration) -> Sample>);

/// Returns the name of the lock of each task, by the task's number.
pub type Naming = fn(usize) -> String;

pub fn table(candidates: &[Candidate], flavor: Flavor, effort: Effort) -> Table {
    let mut table = Table::new([
        "candidate",
        "tasks",
        "pairs/s",
        "ratio to bare",
        "target",
        "p50 µs",
        "p99 µs",
        "client CPU µs",
    ])
    .plot_ratios("ratio to bare", 2);
    for tasks in [1, 16, 128] {
        let samples =
            interleave(effort.rounds, candidates.len(), |which| candidates[which].1(tasks, effort.slice));
        for ((name, _), rounds) in candidates.iter().zip(&samples) {
            let of = |value: fn(&Sample) -> f64| median(rounds.iter().map(value));
            let ratio = Ratio::new(rounds, &samples[0], |sample| sample.rate);
            let is_judged = *name == "lockkeeper" && flavor == Flavor::CurrentThread;
            table.row([
                (*name).into(),
                tasks.into(),
                number(of(|sample| sample.rate), 0),
                ratio.into(),
                if is_judged { ratio.at_least(target(tasks)).into() } else { Cell::default() },
                number(of(|sample| sample.p50), 0),
                number(of(|sample| sample.p99), 0),
                number(of(|sample| sample.client), 1),
            ]);
        }
    }
    table
}

fn target(tasks: usize) -> f64 {
    // With one task, a pair takes at most 1.15 times as long as with the bare scripts.
    if tasks == 1 { 1.0 / 1.15 } else { 0.9 }
}

/// Each candidate has a runtime of its own.
pub fn candidate<P: Peer + 'static>(
    name: &'static str,
    url: &str,
    flavor: Flavor,
    naming: Naming,
) -> Candidate {
    let runtime = flavor.runtime();
    let peer = runtime.block_on(P::connect(url));
    (name, Box::new(move |tasks, time| runtime.block_on(run(&peer, naming, tasks, time))))
}

/// Redisson's locks of one type, with one thread per task.
pub fn in_java(jvm: &Rc<Jvm>, kind: &'static str, naming: Naming) -> Candidate {
    let jvm = Rc::clone(jvm);
    let run = move |tasks, time| {
        let names = (0..tasks).map(naming).collect();
        let done = Work { kind, names, section: Duration::ZERO, pause: Duration::ZERO, time }.run(&jvm);
        let last = done.sections.iter().map(|section| section.ended).max().unwrap_or(done.began);
        let times = done.sections.iter().map(|section| Duration::from_nanos(section.ended - section.asked));
        Sample::new(times, Duration::from_nanos(last - done.began), done.cpu_time)
    };
    (redisson::NAME, Box::new(run))
}

async fn run(peer: &impl Peer, naming: Naming, tasks: usize, time: Duration) -> Sample {
    let mut running = JoinSet::new();
    let cpu_time = clock::cpu_time();
    let start = Instant::now();
    for task in 0..tasks {
        running.spawn(work(peer.lock(&naming(task)), start + time));
    }
    let times = running.join_all().await.concat();
    Sample::new(times, start.elapsed(), clock::cpu_time() - cpu_time)
}

/// Returns the time of each pair.
async fn work(mut lock: impl Lock, until: Instant) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut start = Instant::now();
    while start < until {
        let guard = lock.lock().await;
        lock.unlock(guard).await;
        let end = Instant::now();
        times.push(end.duration_since(start));
        start = end;
    }
    times
}
