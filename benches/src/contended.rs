//! Many tasks of one process that want the same lock, again and again.

use std::rc::Rc;
use std::time::Duration;

use lockkeeper::LockClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::bare::Bare;
use crate::peer::{AsyncRedisLock, Distkit, Lock, Peer, Relock, Rlock, Rslock};
use crate::redisson::{self, Jvm, Work};
use crate::report::{Report, Table, number, percent};
use crate::rounds::{Effort, interleave};
use crate::runtime::one_thread;
use crate::stats::{Latencies, Ratio, least_share, median};

const TASKS: usize = 8;
const SECTION: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(5);

struct Sample {
    /// Sections per second of each task.
    rates: Vec<f64>,
    /// The wait before each section.
    waits: Latencies,
}

type Candidate = (&'static str, Box<dyn Fn(Duration) -> Sample>);

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    let candidates = [
        candidate::<Bare>("bare", url),
        candidate::<LockClient>("lockkeeper", url),
        in_java(jvm),
        candidate::<Rslock>("rslock", url),
        candidate::<Rlock>("rlock", url),
        candidate::<Relock>("relock", url),
        candidate::<Distkit>("distkit", url),
        candidate::<AsyncRedisLock>("async-redis-lock", url),
    ];
    let time = effort.longer(4).slice;
    let samples = interleave(effort.rounds, candidates.len(), |which| candidates[which].1(time));
    let mut table = Table::new([
        "candidate",
        "sections/s",
        "ratio to bare",
        "target",
        "wait p50 µs",
        "wait p99 µs",
        "longest wait µs",
        "least served",
    ]);
    let mut plotted = Vec::new();
    for ((name, _), rounds) in candidates.iter().zip(&samples) {
        let rate = |sample: &Sample| sample.rates.iter().sum();
        let ratio = Ratio::new(rounds, &samples[0], rate);
        let waits = Latencies::merged(rounds.iter().map(|sample| &sample.waits));
        plotted.push((*name, ratio));
        table.row([
            (*name).to_owned(),
            number(median(rounds.iter().map(rate)), 0),
            ratio.to_string(),
            if *name == "lockkeeper" { ratio.at_least(0.95) } else { String::new() },
            number(waits.micros(0.5), 0),
            number(waits.micros(0.99), 0),
            number(waits.micros(1.0), 0),
            percent(median(rounds.iter().map(|sample| least_share(&sample.rates))), 0),
        ]);
    }
    let title = format!("One lock, {TASKS} tasks: sections of 1 ms, pauses of 5 ms");
    report.plot("contended", &format!("{title}: ratio to bare"), &plotted);
    report.section(
        title,
        "The tasks ask more often than the lock can be granted, and each task pauses after its section. *Least served*: the\n\
         sections of the task with the fewest, as a share of what each task would have if all had the same number. A task\n\
         that never acquires the lock has no wait here.\n\
         \n\
         A timer of tokio adds up to a millisecond to a section or pause. Java's timers are finer, so Java's sections and\n\
         pauses are made longer by the same time.",
        &table,
    );
}

/// Each candidate has a lock of its own: some stay subscribed to its channel, and lockkeeper would take that for a waiter of another process.
fn lock_of(candidate: &str) -> String {
    format!("contended:{candidate}")
}

fn candidate<P: Peer + 'static>(name: &'static str, url: &str) -> Candidate {
    let runtime = one_thread();
    let peer = runtime.block_on(P::connect(url));
    (name, Box::new(move |time| runtime.block_on(run(&peer, &lock_of(name), time))))
}

/// Redisson's locks, with one thread per task.
fn in_java(jvm: &Rc<Jvm>) -> Candidate {
    let (jvm, late) = (Rc::clone(jvm), one_thread().block_on(lateness()));
    let run = move |time: Duration| {
        let names = vec![lock_of("java"); TASKS];
        let done =
            Work { kind: "rlock", names, section: SECTION + late, pause: PAUSE + late, time }.run(&jvm);
        let until = done.began + time.as_nanos() as u64;
        let mut rates = vec![0.0; TASKS];
        for section in done.sections.iter().filter(|section| section.released < until) {
            rates[section.thread] += 1.0 / time.as_secs_f64();
        }
        let wait = |section: &redisson::Section| Duration::from_nanos(section.acquired - section.asked);
        Sample { rates, waits: done.sections.iter().map(wait).collect() }
    };
    (redisson::NAME, Box::new(run))
}

/// By how much a pause of a millisecond is longer than a millisecond.
async fn lateness() -> Duration {
    let mut pauses = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        sleep(Duration::from_millis(1)).await;
        pauses.push(start.elapsed().as_secs_f64());
    }
    Duration::from_secs_f64(median(pauses)).saturating_sub(Duration::from_millis(1))
}

async fn run(peer: &impl Peer, lock: &str, time: Duration) -> Sample {
    let until = Instant::now() + time;
    let mut running = JoinSet::new();
    for _ in 0..TASKS {
        running.spawn(work(peer.lock(lock), until));
    }
    let (in_time, waits): (Vec<u32>, Vec<_>) = running.join_all().await.into_iter().unzip();
    let rates = in_time.into_iter().map(|sections| f64::from(sections) / time.as_secs_f64());
    Sample { rates: rates.collect(), waits: waits.into_iter().flatten().collect() }
}

/// Returns the number of sections that ended in time, and the wait before each section, whether it ended in time or not.
async fn work(mut lock: impl Lock, until: Instant) -> (u32, Vec<Duration>) {
    let (mut in_time, mut waits) = (0, Vec::new());
    while Instant::now() < until {
        let asked = Instant::now();
        let guard = lock.lock().await;
        waits.push(asked.elapsed());
        sleep(SECTION).await;
        in_time += u32::from(Instant::now() < until);
        lock.unlock(guard).await;
        sleep(PAUSE).await;
    }
    (in_time, waits)
}
