//! Tasks that lock and unlock over and over.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::peer::{Lock, Peer};
use crate::redisson::{self, Jvm, Work};
use crate::report::{Table, number};
use crate::rounds::{Effort, interleave};
use crate::runtime::one_thread;
use crate::stats::{Latencies, Ratio, median};

/// One candidate in one round.
pub struct Sample {
    /// Pairs of lock and unlock per second.
    pub rate: f64,
    /// Microseconds of a pair.
    pub p50: f64,
    pub p99: f64,
}

impl Sample {
    /// Takes the time of each pair, and the time until the end of the last.
    fn new(times: impl IntoIterator<Item = Duration>, elapsed: Duration) -> Self {
        let times = Latencies::from_iter(times);
        let rate = times.count() as f64 / elapsed.as_secs_f64();
        Self { rate, p50: times.micros(0.5), p99: times.micros(0.99) }
    }
}

/// Takes the number of tasks and the time.
pub type Candidate = (&'static str, Box<dyn Fn(usize, Duration) -> Sample>);

/// Returns the name of the lock of each task, by the task's number.
pub type Naming = fn(usize) -> String;

/// Compares the rates. `target`: the least ratio to the first candidate, by the name of a candidate and the number of tasks.
pub fn table(
    candidates: &[Candidate],
    tasks: &[usize],
    effort: Effort,
    target: impl Fn(&str, usize) -> Option<f64>,
) -> Table {
    let mut table =
        Table::new(["candidate", "tasks", "pairs/s", "ratio to the first", "target", "p50 µs", "p99 µs"]);
    for &tasks in tasks {
        let samples =
            interleave(effort.rounds, candidates.len(), |which| candidates[which].1(tasks, effort.slice));
        for ((name, _), rounds) in candidates.iter().zip(&samples) {
            let of = |value: fn(&Sample) -> f64| median(rounds.iter().map(value));
            let ratio = Ratio::new(rounds, &samples[0], |sample| sample.rate);
            table.row([
                (*name).to_owned(),
                tasks.to_string(),
                number(of(|sample| sample.rate), 0),
                ratio.to_string(),
                target(name, tasks).map(|target| ratio.at_least(target)).unwrap_or_default(),
                number(of(|sample| sample.p50), 0),
                number(of(|sample| sample.p99), 0),
            ]);
        }
    }
    table
}

/// Each candidate has a runtime of its own.
pub fn candidate<P: Peer + 'static>(name: &'static str, url: &str, naming: Naming) -> Candidate {
    let runtime = one_thread();
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
        Sample::new(times, Duration::from_nanos(last - done.began))
    };
    (redisson::NAME, Box::new(run))
}

async fn run(peer: &impl Peer, naming: Naming, tasks: usize, time: Duration) -> Sample {
    let mut running = JoinSet::new();
    let start = Instant::now();
    for task in 0..tasks {
        running.spawn(work(peer.lock(&naming(task)), start + time));
    }
    let times = running.join_all().await.concat();
    Sample::new(times, start.elapsed())
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
