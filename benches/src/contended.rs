//! Many tasks of one process that want the same lock.

use std::time::Duration;

use lockkeeper::LockClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::bare::{Bare, BareFair};
use crate::flavor::Flavor;
use crate::peer::{Fair, Lock, Peer, Rslock};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};
use crate::table::Table;

const TASKS: usize = 8;
const FAIR_TASKS: usize = 16;

/// What a task does, over and over.
#[derive(Clone, Copy)]
struct Pattern {
    tasks: usize,
    section: Duration,
    pause: Duration,
    time: Duration,
}

/// Sections of each task per second.
type Sample = Vec<f64>;

type Candidate = (&'static str, Box<dyn Fn(Pattern) -> Sample>);

pub fn measure(url: &str, effort: Effort) {
    let candidates = [
        candidate::<Bare>("bare", url),
        candidate::<LockClient>("lockkeeper", url),
        candidate::<Rslock>("rslock", url),
    ];
    let ms = Duration::from_millis;
    println!("\n## One lock, {TASKS} tasks, {}: sections of 1 ms, pauses of 5 ms\n", FLAVOR.name());
    println!("A timer of tokio adds up to a millisecond to both.\n");
    let pattern = Pattern { tasks: TASKS, section: ms(1), pause: ms(5), time: effort.longer(4).slice };
    report(&candidates, effort, pattern, true);
    println!("\n## One lock, {TASKS} tasks, {}: nothing in between\n", FLAVOR.name());
    println!("This rewards whoever takes the lock again at once, past those who wait.\n");
    let pattern = Pattern { tasks: TASKS, section: ms(0), pause: ms(0), time: effort.slice };
    report(&candidates, effort, pattern, false);

    let candidates = [candidate::<BareFair>("bare fair", url), candidate::<Fair>("lockkeeper fair", url)];
    println!("\n## One fair lock, {FAIR_TASKS} tasks, {}: nothing in between\n", FLAVOR.name());
    report(&candidates, effort, Pattern { tasks: FAIR_TASKS, ..pattern }, false);
}

const FLAVOR: Flavor = Flavor::CurrentThread;

fn candidate<P: Peer + 'static>(name: &'static str, url: &str) -> Candidate {
    let runtime = FLAVOR.runtime();
    let peer = runtime.block_on(P::connect(url));
    (name, Box::new(move |pattern| runtime.block_on(run(&peer, pattern))))
}

fn report(candidates: &[Candidate], effort: Effort, pattern: Pattern, is_judged: bool) {
    let samples = interleave(effort.rounds, candidates.len(), |which| candidates[which].1(pattern));
    let mut table =
        Table::new(["candidate", "sections/s", "ratio to bare", "target", "least of a task", "greatest"]);
    for ((name, _), rounds) in candidates.iter().zip(&samples) {
        let ratio = Ratio::new(rounds, &samples[0], sum);
        let tasks = || rounds.iter().flatten().copied();
        table.row([
            (*name).to_owned(),
            format!("{:.0}", median(rounds.iter().map(sum))),
            ratio.to_string(),
            if is_judged && *name == "lockkeeper" { ratio.at_least(0.95) } else { String::new() },
            format!("{:.1}/s", tasks().fold(f64::INFINITY, f64::min)),
            format!("{:.1}/s", tasks().fold(0.0, f64::max)),
        ]);
    }
    print!("{table}");
}

fn sum(sample: &Sample) -> f64 {
    sample.iter().sum()
}

async fn run(peer: &impl Peer, pattern: Pattern) -> Sample {
    let until = Instant::now() + pattern.time;
    let mut running = JoinSet::new();
    for _ in 0..pattern.tasks {
        running.spawn(work(peer.lock("contended"), pattern, until));
    }
    let sections = running.join_all().await;
    sections.into_iter().map(|sections| sections as f64 / pattern.time.as_secs_f64()).collect()
}

/// Returns how many sections it had in the time.
async fn work(mut lock: impl Lock, pattern: Pattern, until: Instant) -> u32 {
    let mut sections = 0;
    while Instant::now() < until {
        let guard = lock.lock().await;
        rest(pattern.section).await;
        sections += u32::from(Instant::now() < until);
        lock.unlock(guard).await;
        rest(pattern.pause).await;
    }
    sections
}

async fn rest(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
