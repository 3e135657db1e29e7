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
use crate::report::{Cell, Report, Table, number, percent};
use crate::rounds::{Effort, interleave};
use crate::stats::{Latencies, Ratio, median};

const TASKS: usize = 8;
const FAIR_TASKS: usize = 16;

const FLAVOR: Flavor = Flavor::CurrentThread;

/// What each task does in a loop.
#[derive(Clone, Copy)]
struct Pattern {
    tasks: usize,
    section_ms: u64,
    pause_ms: u64,
    time: Duration,
}

/// Sections and pauses in milliseconds. Only the first pattern has a target. The others show which tasks get the lock.
const PATTERNS: [(u64, u64); 4] = [(1, 5), (1, 0), (0, 5), (0, 0)];

struct Sample {
    /// Sections per second of each task.
    rates: Vec<f64>,
    /// The wait before each section.
    waits: Latencies,
}

type Candidate = (&'static str, Box<dyn Fn(Pattern) -> Sample>);

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
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
    report.section(
        format!("Contended locks, {}", FLAVOR.name()),
        "The next tables have these columns:\n\
         \n\
         - *wait*: the wait before a section. A task that never acquires the lock has no wait here. It shows in\n\
         \x20 *least served*.\n\
         - *least served*: the sections of the task with the fewest, as a share of what each task would have if all\n\
         \x20 had the same number.\n\
         - *commands*, *in scripts*: commands per section that clients send, and that scripts run. Another run counts\n\
         \x20 them with `MONITOR`.\n\
         \n\
         A timer of tokio adds up to a millisecond to a section or pause that is not 0. Java's timers are finer, so\n\
         Java's sections and pauses are made longer by the same time.",
    );
    let effort = effort.longer(4);
    for (section_ms, pause_ms) in PATTERNS {
        let pattern = Pattern { tasks: TASKS, section_ms, pause_ms, time: effort.slice };
        report.section(
            format!("One lock, {TASKS} tasks: sections of {section_ms} ms, pauses of {pause_ms} ms"),
            about(pattern),
        );
        report.table(table(url, &candidates, effort, pattern));
    }
    let candidates = [
        candidate::<BareFair>("bare fair", url),
        candidate::<Fair>("lockkeeper fair", url),
        in_java(redisson::FAIR, jvm, "fair"),
    ];
    let pattern = Pattern { tasks: FAIR_TASKS, section_ms: 0, pause_ms: 0, time: effort.slice };
    report.section(
        format!("One fair lock, {FAIR_TASKS} tasks: sections of 0 ms, pauses of 0 ms"),
        "A fair lock grants each section to the task that has waited longest.",
    );
    report.table(table(url, &candidates, effort, pattern));
}

fn about(Pattern { section_ms, pause_ms, .. }: Pattern) -> &'static str {
    match (section_ms, pause_ms) {
        (1, 5) => {
            "The tasks ask more often than the lock can be granted, and each task pauses after its section."
        }
        (1, 0) => {
            "A task that releases asks again at once. Without a queue it often acquires before the waiters do."
        }
        (0, 5) => "Sections are short and tasks pause, so the lock is often free.",
        _ => {
            "Tasks do nothing but lock and unlock. The rate is higher if the task that releases may acquire again at once."
        }
    }
}

fn candidate<P: Peer + 'static>(name: &'static str, url: &str) -> Candidate {
    let runtime = FLAVOR.runtime();
    let peer = runtime.block_on(P::connect(url));
    (name, Box::new(move |pattern| runtime.block_on(run(&peer, pattern))))
}

fn table(url: &str, candidates: &[Candidate], effort: Effort, pattern: Pattern) -> Table {
    let samples = interleave(effort.rounds, candidates.len(), |which| candidates[which].1(pattern));
    let mut table = Table::new([
        "candidate",
        "sections/s",
        "ratio to bare",
        "target",
        "wait p50 µs",
        "wait p99 µs",
        "longest wait µs",
        "least served",
        "commands",
        "in scripts",
    ])
    .plot_ratios("ratio to bare", 1);
    for ((name, run), rounds) in candidates.iter().zip(&samples) {
        let ratio = Ratio::new(rounds, &samples[0], rate);
        let is_judged = *name == "lockkeeper" && (pattern.section_ms, pattern.pause_ms) == PATTERNS[0];
        let waits = Latencies::merged(rounds.iter().map(|sample| &sample.waits));
        let commands = per_section(url, || run(pattern));
        table.row([
            (*name).into(),
            number(median(rounds.iter().map(rate)), 0),
            ratio.into(),
            if is_judged { ratio.at_least(0.95).into() } else { Cell::default() },
            number(waits.micros(0.5), 0),
            number(waits.micros(0.99), 0),
            number(waits.micros(1.0), 0),
            percent(median(rounds.iter().map(least_share)), 0),
            number(commands.sent, 2),
            number(commands.in_scripts, 2),
        ]);
    }
    table
}

fn rate(sample: &Sample) -> f64 {
    sample.rates.iter().sum()
}

fn least_share(sample: &Sample) -> f64 {
    let least = sample.rates.iter().copied().fold(f64::INFINITY, f64::min);
    least * sample.rates.len() as f64 / rate(sample)
}

fn per_section(url: &str, run: impl FnOnce() -> Sample) -> Commands {
    let (sample, all) = commands::count(url, run);
    let sections = sample.waits.count() as f64;
    Commands { sent: all.sent / sections, in_scripts: all.in_scripts / sections }
}

/// Redisson's locks of one type, with one thread per task.
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
        let wait = |section: &redisson::Section| Duration::from_nanos(section.acquired - section.asked);
        Sample { rates, waits: done.sections.iter().map(wait).collect() }
    };
    (name, Box::new(run))
}

/// By how much a pause of a millisecond is longer than a millisecond.
async fn lateness() -> Duration {
    let mut pauses = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        pause(1).await;
        pauses.push(start.elapsed().as_secs_f64());
    }
    Duration::from_secs_f64(median(pauses)).saturating_sub(Duration::from_millis(1))
}

async fn run(peer: &impl Peer, pattern: Pattern) -> Sample {
    let until = Instant::now() + pattern.time;
    let mut running = JoinSet::new();
    for _ in 0..pattern.tasks {
        running.spawn(work(peer.lock("contended"), pattern, until));
    }
    let (in_time, waits): (Vec<u32>, Vec<_>) = running.join_all().await.into_iter().unzip();
    let rates = in_time.into_iter().map(|sections| f64::from(sections) / pattern.time.as_secs_f64());
    Sample { rates: rates.collect(), waits: waits.into_iter().flatten().collect() }
}

/// Returns the number of sections that ended in time, and the wait before each section, whether it ended in time or not.
async fn work(mut lock: impl Lock, pattern: Pattern, until: Instant) -> (u32, Vec<Duration>) {
    let (mut in_time, mut waits) = (0, Vec::new());
    while Instant::now() < until {
        let asked = Instant::now();
        let guard = lock.lock().await;
        waits.push(asked.elapsed());
        pause(pattern.section_ms).await;
        in_time += u32::from(Instant::now() < until);
        lock.unlock(guard).await;
        pause(pattern.pause_ms).await;
    }
    (in_time, waits)
}

async fn pause(ms: u64) {
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}
