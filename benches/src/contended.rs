//! Many tasks of one process that want the same lock, again and again.

use std::rc::Rc;
use std::time::Duration;

use lockkeeper::LockClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::bare::{Bare, BareFair, BareRedisson};
use crate::commands::{self, Commands};
use crate::flavor::Flavor;
use crate::peer::{AsyncRedisLock, Distkit, Fair, Lock, Peer, Relock, Rlock, Rslock};
use crate::redisson::{self, Jvm, Work};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median, percentile};
use crate::table::Table;

const TASKS: usize = 8;
const FAIR_TASKS: usize = 16;

const FLAVOR: Flavor = Flavor::CurrentThread;

/// What a task does, over and over.
#[derive(Clone, Copy)]
struct Pattern {
    tasks: usize,
    section_ms: u64,
    pause_ms: u64,
    time: Duration,
}

/// The first is judged. The others are there for what they show of who gets the lock.
const PATTERNS: [(u64, u64); 4] = [(1, 5), (1, 0), (0, 5), (0, 0)];

struct Sample {
    /// Sections of each task per second.
    rates: Vec<f64>,
    /// Microseconds before each section.
    waits: Vec<f64>,
}

type Candidate = (&'static str, Box<dyn Fn(Pattern) -> Sample>);

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort) {
    let candidates = [
        candidate::<Bare>("bare", url),
        candidate::<LockClient>("lockkeeper", url),
        candidate::<BareRedisson>("Redisson's scripts, bare", url),
        in_java(redisson::NAME, jvm, "rlock"),
        candidate::<Rslock>("rslock", url),
        candidate::<Rlock>("rlock", url),
        candidate::<Relock>("relock", url),
        candidate::<Distkit>("distkit", url),
        candidate::<AsyncRedisLock>("async-redis-lock", url),
    ];
    println!("\n## One lock that many tasks want, {}\n", FLAVOR.name());
    println!("In the tables that follow, a timer of tokio adds up to a millisecond to what is not 0, and");
    println!("Java, whose timers are finer, is told to take as long.");
    println!(
        "Wait: of the sections that were had, so one who never came in shows in \"longest\" and \"least served\":"
    );
    println!(
        "the share of the task that had least, of an equal share. Commands for a section: sent by the client,"
    );
    println!("and by the scripts among them, counted in another run with `MONITOR`.");
    let effort = effort.longer(4);
    for (section_ms, pause_ms) in PATTERNS {
        let pattern = Pattern { tasks: TASKS, section_ms, pause_ms, time: effort.slice };
        println!("\n## One lock, {TASKS} tasks: sections of {section_ms} ms, pauses of {pause_ms} ms\n");
        report(url, &candidates, effort, pattern);
    }
    let candidates = [
        candidate::<BareFair>("bare fair", url),
        candidate::<Fair>("lockkeeper fair", url),
        in_java(redisson::FAIR, jvm, "fair"),
    ];
    let pattern = Pattern { tasks: FAIR_TASKS, section_ms: 0, pause_ms: 0, time: effort.slice };
    println!("\n## One fair lock, {FAIR_TASKS} tasks: nothing in between\n");
    report(url, &candidates, effort, pattern);
}

fn candidate<P: Peer + 'static>(name: &'static str, url: &str) -> Candidate {
    let runtime = FLAVOR.runtime();
    let peer = runtime.block_on(P::connect(url));
    (name, Box::new(move |pattern| runtime.block_on(run(&peer, pattern))))
}

fn report(url: &str, candidates: &[Candidate], effort: Effort, pattern: Pattern) {
    let samples = interleave(effort.rounds, candidates.len(), |which| candidates[which].1(pattern));
    let mut table = Table::new([
        "candidate",
        "sections/s",
        "ratio to bare",
        "target",
        "wait p50 µs",
        "wait p99 µs",
        "longest µs",
        "least served",
        "sent",
        "in scripts",
    ]);
    for ((name, run), rounds) in candidates.iter().zip(&samples) {
        let ratio = Ratio::new(rounds, &samples[0], rate);
        let is_judged = *name == "lockkeeper" && (pattern.section_ms, pattern.pause_ms) == PATTERNS[0];
        let mut waits: Vec<f64> = rounds.iter().flat_map(|sample| &sample.waits).copied().collect();
        let commands = for_a_section(url, || run(pattern));
        table.row([
            (*name).to_owned(),
            format!("{:.0}", median(rounds.iter().map(rate))),
            ratio.to_string(),
            if is_judged { ratio.at_least(0.95) } else { String::new() },
            format!("{:.0}", percentile(&mut waits, 0.5)),
            format!("{:.0}", percentile(&mut waits, 0.99)),
            format!("{:.0}", percentile(&mut waits, 1.0)),
            format!("{:.0} %", median(rounds.iter().map(least_share)) * 100.0),
            format!("{:.2}", commands.sent),
            format!("{:.2}", commands.inner),
        ]);
    }
    print!("{table}");
}

fn rate(sample: &Sample) -> f64 {
    sample.rates.iter().sum()
}

fn least_share(sample: &Sample) -> f64 {
    let least = sample.rates.iter().copied().fold(f64::INFINITY, f64::min);
    least * sample.rates.len() as f64 / rate(sample)
}

fn for_a_section(url: &str, run: impl FnOnce() -> Sample) -> Commands {
    let (sample, all) = commands::count(url, run);
    let sections = sample.waits.len() as f64;
    Commands { sent: all.sent / sections, inner: all.inner / sections }
}

/// Redisson's locks of this type, with a thread for each task.
fn in_java(name: &'static str, jvm: &Rc<Jvm>, kind: &'static str) -> Candidate {
    let (jvm, late) = (Rc::clone(jvm), FLAVOR.runtime().block_on(lateness()));
    let run = move |Pattern { tasks, section_ms, pause_ms, time }| {
        let names = vec!["contended".to_owned(); tasks];
        let [section, pause] = [section_ms, pause_ms]
            .map(|ms| if ms > 0 { Duration::from_millis(ms) + late } else { Duration::ZERO });
        let done = Work { kind, names, section, pause, time }.run(&jvm);
        let until = done.began + time.as_nanos() as u64;
        let mut rates = vec![0.0; tasks];
        for section in done.sections.iter().filter(|section| section.released < until) {
            rates[section.thread] += 1.0 / time.as_secs_f64();
        }
        let waits = done.sections.iter().map(|section| (section.acquired - section.asked) as f64 / 1e3);
        Sample { rates, waits: waits.collect() }
    };
    (name, Box::new(run))
}

/// By how much a rest is longer than it should be.
async fn lateness() -> Duration {
    let mut rests = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        rest(1).await;
        rests.push(start.elapsed().as_secs_f64());
    }
    Duration::from_secs_f64(median(rests)).saturating_sub(Duration::from_millis(1))
}

async fn run(peer: &impl Peer, pattern: Pattern) -> Sample {
    let until = Instant::now() + pattern.time;
    let mut running = JoinSet::new();
    for _ in 0..pattern.tasks {
        running.spawn(work(peer.lock("contended"), pattern, until));
    }
    let (in_time, waits): (Vec<u32>, Vec<_>) = running.join_all().await.into_iter().unzip();
    let rates = in_time.into_iter().map(|sections| f64::from(sections) / pattern.time.as_secs_f64());
    Sample { rates: rates.collect(), waits: waits.concat() }
}

/// Returns how many sections it had in the time, and how long it waited for each, also for one that came too late.
async fn work(mut lock: impl Lock, pattern: Pattern, until: Instant) -> (u32, Vec<f64>) {
    let (mut in_time, mut waits) = (0, Vec::new());
    while Instant::now() < until {
        let asked = Instant::now();
        let guard = lock.lock().await;
        waits.push(asked.elapsed().as_secs_f64() * 1e6);
        rest(pattern.section_ms).await;
        in_time += u32::from(Instant::now() < until);
        lock.unlock(guard).await;
        rest(pattern.pause_ms).await;
    }
    (in_time, waits)
}

async fn rest(ms: u64) {
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}
