//! Lock and unlock, over and over, in many tasks.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::clock;
use crate::flavor::Flavor;
use crate::peer::{Lock, Peer};
use crate::redisson::{self, Jvm, Work};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median, percentile};
use crate::table::Table;

/// One candidate in one round.
pub struct Sample {
    /// Pairs of lock and unlock per second.
    pub rate: f64,
    /// Microseconds of a pair.
    pub p50: f64,
    pub p99: f64,
    pub pairs: f64,
    /// Microseconds of computing in the client's process for a pair.
    pub client: f64,
}

impl Sample {
    /// Of the microseconds of each pair, the seconds until the last, and the nanoseconds of computing.
    fn new(mut times: Vec<f64>, elapsed: f64, computed: u64) -> Self {
        let pairs = times.len() as f64;
        Self {
            pairs,
            rate: pairs / elapsed,
            client: computed as f64 / 1e3 / pairs,
            p50: percentile(&mut times, 0.5),
            p99: percentile(&mut times, 0.99),
        }
    }
}

pub type Candidate = (&'static str, Box<dyn Fn(usize, Duration) -> Sample>);

/// The name of the lock that is for a task of this number.
pub type Naming = fn(usize) -> String;

pub fn report(candidates: &[Candidate], flavor: Flavor, effort: Effort) {
    let mut table = Table::new([
        "candidate",
        "tasks",
        "pairs/s",
        "ratio to bare",
        "target",
        "p50 µs",
        "p99 µs",
        "client CPU µs",
    ]);
    for tasks in [1, 16, 128] {
        let samples =
            interleave(effort.rounds, candidates.len(), |which| candidates[which].1(tasks, effort.slice));
        for ((name, _), rounds) in candidates.iter().zip(&samples) {
            let ratio = Ratio::new(rounds, &samples[0], |sample| sample.rate);
            let is_judged = *name == "lockkeeper" && flavor == Flavor::CurrentThread;
            table.row([
                (*name).to_owned(),
                tasks.to_string(),
                format!("{:.0}", median(rounds.iter().map(|sample| sample.rate))),
                ratio.to_string(),
                if is_judged { ratio.at_least(target(tasks)) } else { String::new() },
                format!("{:.0}", median(rounds.iter().map(|sample| sample.p50))),
                format!("{:.0}", median(rounds.iter().map(|sample| sample.p99))),
                format!("{:.1}", median(rounds.iter().map(|sample| sample.client))),
            ]);
        }
    }
    print!("{table}");
}

fn target(tasks: usize) -> f64 {
    // With one task, the time of a pair is at most 1.15 of the bare one.
    if tasks == 1 { 1.0 / 1.15 } else { 0.9 }
}

/// A candidate has a runtime to itself.
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

/// Redisson's locks of this type, with a thread for each task.
pub fn in_java(jvm: &Rc<Jvm>, kind: &'static str, naming: Naming) -> Candidate {
    let jvm = Rc::clone(jvm);
    let run = move |tasks, time| {
        let names = (0..tasks).map(naming).collect();
        let done = Work { kind, names, section: Duration::ZERO, pause: Duration::ZERO, time }.run(&jvm);
        let last = done.sections.iter().map(|section| section.ended).max().unwrap_or(done.began);
        let times =
            done.sections.iter().map(|section| (section.ended - section.asked) as f64 / 1e3).collect();
        Sample::new(times, (last - done.began) as f64 / 1e9, done.computed)
    };
    (redisson::NAME, Box::new(run))
}

async fn run(peer: &impl Peer, naming: Naming, tasks: usize, time: Duration) -> Sample {
    let mut running = JoinSet::new();
    let computed = clock::computed();
    let start = Instant::now();
    for task in 0..tasks {
        running.spawn(work(peer.lock(&naming(task)), start + time));
    }
    let times = running.join_all().await.concat();
    Sample::new(times, start.elapsed().as_secs_f64(), clock::computed() - computed)
}

/// Returns the microseconds of each pair.
async fn work(mut lock: impl Lock, until: Instant) -> Vec<f64> {
    let mut times = Vec::new();
    let mut start = Instant::now();
    while start < until {
        let guard = lock.lock().await;
        lock.unlock(guard).await;
        let end = Instant::now();
        times.push(end.duration_since(start).as_secs_f64() * 1e6);
        start = end;
    }
    times
}
