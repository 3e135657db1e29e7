//! Owners of one client that want the same lock: with sharing inside the client, and with it switched off.

use std::time::Duration;

use lockkeeper::{LockClient, LockConfig, LockOptions};
use lockkeeper_testkit::{Faults, Proxy};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::commands;
use crate::peer::Lock;
use crate::report::{Report, Table, number, percent};
use crate::rounds::{Effort, interleave};
use crate::runtime::{many_threads, now};
use crate::sides;
use crate::stats::{Latencies, Ratio, least_share, median};

/// The argument of a further process.
pub const SIDE: &str = "sharing-side";

/// Enough for a process to start and to connect.
const BEGIN: Duration = Duration::from_millis(150);

/// The tasks of one process. Each locks and unlocks in a loop.
#[derive(Clone, Copy)]
struct Crowd {
    kind: &'static str,
    tasks: usize,
    section_ms: u64,
    pause_ms: u64,
}

/// What is measured: a process for each crowd. The waits are those of the last one.
struct Work {
    name: &'static str,
    crowds: &'static [Crowd],
    /// The network delay each way.
    delay: Duration,
    /// The least ratio of sections to those without sharing.
    target: Option<f64>,
}

const fn crowd(kind: &'static str, tasks: usize) -> Crowd {
    Crowd { kind, tasks, section_ms: 0, pause_ms: 0 }
}

/// The permits of the semaphore.
const PERMITS: u32 = 2;

const WORKS: [Work; 12] = [
    work("RLock, 8 tasks", &[crowd("rlock", 8)], 0, Some(15.0)),
    work("write lock, 8 tasks", &[crowd("write", 8)], 0, Some(15.0)),
    work("readers, 128 tasks", &[crowd("read", 128)], 0, Some(8.0)),
    work("two permits, 8 tasks", &[crowd("permit", 8)], 0, None),
    work("two permits, two processes of 8", &[crowd("permit", 8); 2], 0, None),
    work("RLock, two processes of 8", &[crowd("rlock", 8); 2], 0, Some(15.0)),
    work(
        "the same, 0.5 ms each way, sections of 1 ms",
        &[Crowd { section_ms: 1, ..crowd("rlock", 8) }; 2],
        500,
        None,
    ),
    work("8 tasks; another process every 20 ms", &[crowd("rlock", 8), EVERY_20_MS], 0, None),
    work("32 readers; a writer of another process", &[crowd("read", 32), WRITER], 0, None),
    work("128 readers; a writer of another process", &[crowd("read", 128), WRITER], 0, None),
    work("64 readers with pauses; a writer of another process", &[with_pauses("read"), WRITER], 0, None),
    work("the same, linger 50 ms", &[with_pauses("linger"), WRITER], 0, None),
];

const WRITER: Crowd = Crowd { pause_ms: 20, ..crowd("write", 1) };

const fn with_pauses(kind: &'static str) -> Crowd {
    Crowd { pause_ms: 5, ..crowd(kind, 64) }
}

const EVERY_20_MS: Crowd = Crowd { pause_ms: 20, ..crowd("rlock", 1) };

const fn work(name: &'static str, crowds: &'static [Crowd], delay_us: u64, target: Option<f64>) -> Work {
    Work { name, crowds, delay: Duration::from_micros(delay_us), target }
}

struct Sample {
    /// Sections per second of each process.
    rates: Vec<f64>,
    /// Microseconds: half of the waits of the last process, 99 % of them, and the longest.
    waits: [f64; 3],
}

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let mut table = Table::new([
        "work",
        "sharing",
        "sections/s",
        "ratio to off",
        "target",
        "least share",
        "wait p50 µs",
        "wait p99 µs",
        "longest wait µs",
        "commands",
    ]);
    let effort = effort.longer(4);
    for work in &WORKS {
        let samples = interleave(effort.rounds, 2, |which| run(url, work, which == 1, effort.slice));
        for (rounds, sharing) in samples.iter().zip(["off", "on"]) {
            let ratio = Ratio::new(rounds, &samples[0], rate);
            let waits = [0, 1, 2].map(|at| number(median(rounds.iter().map(|sample| sample.waits[at])), 0));
            let [p50, p99, longest] = waits;
            let target = work.target.filter(|_| sharing == "on");
            table.row([
                work.name.to_owned(),
                sharing.to_owned(),
                number(median(rounds.iter().map(rate)), 0),
                ratio.to_string(),
                target.map(|target| ratio.at_least(target)).unwrap_or_default(),
                percent(median(rounds.iter().map(|sample| least_share(&sample.rates))), 0),
                p50,
                p99,
                longest,
                number(per_section(url, work, sharing == "on", effort.slice), 3),
            ]);
        }
    }
    report.section(
        "Sharing inside a client",
        "All tasks want the same lock. *Off*: `sharing` is zero, so each lock and unlock asks the\n\
         server. *least share*: the sections of the process with fewer, as a share of what each would have if both had\n\
         the same number. The waits are those of the last process that is named. *commands*: per section, from\n\
         another run with `MONITOR`.",
        &table,
    );
}

fn rate(sample: &Sample) -> f64 {
    sample.rates.iter().sum()
}

fn per_section(url: &str, work: &Work, shares: bool, time: Duration) -> f64 {
    let (sample, sent) = commands::count(url, || run(url, work, shares, time));
    sent / (rate(&sample) * time.as_secs_f64())
}

/// Runs a process for each crowd. All begin at the same time.
fn run(url: &str, work: &Work, shares: bool, time: Duration) -> Sample {
    let runtime = many_threads();
    let proxy = (!work.delay.is_zero()).then(|| {
        let port = url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let proxy = runtime.block_on(Proxy::to(port.expect("the URL has a port")));
        proxy.set(Faults { delay: work.delay, ..Faults::default() });
        proxy
    });
    let url = proxy.as_ref().map_or_else(|| url.to_owned(), Proxy::url);
    let begin = (now() + BEGIN.as_nanos() as u64).to_string();
    let processes: Vec<_> = work
        .crowds
        .iter()
        .map(|Crowd { kind, tasks, section_ms, pause_ms }| {
            let sharing = if shares { "on" } else { "off" };
            let [tasks, section, pause] =
                [*tasks as u64, *section_ms, *pause_ms].map(|number| number.to_string());
            let millis = time.as_millis().to_string();
            sides::start(&[SIDE, &url, sharing, kind, &tasks, &section, &pause, &begin, &millis])
        })
        .collect();
    let results: Vec<Vec<f64>> = processes.into_iter().map(sides::numbers).collect();
    let last = results.last().expect("a process");
    Sample {
        rates: results.iter().map(|result| result[0] / time.as_secs_f64()).collect(),
        waits: [last[1], last[2], last[3]],
    }
}

/// One process. Prints the number of its sections, and its waits in microseconds.
pub fn side([url, sharing, kind, tasks, section_ms, pause_ms, begin, millis]: [&str; 8]) {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let pauses = [section_ms, pause_ms].map(|ms| Duration::from_millis(number(ms)));
    let (sections, waits) = many_threads().block_on(async {
        let mut config = LockConfig::builder();
        if sharing == "off" {
            config = config.sharing(Duration::ZERO);
        }
        let locks = LockClient::connect_with(url, config.build().expect("valid")).await.expect("a client");
        let linger = LockOptions::builder().linger(Duration::from_millis(50)).build().expect("valid");
        let begin = Duration::from_nanos(number(begin).saturating_sub(now()));
        let until = Instant::now() + begin + Duration::from_millis(number(millis));
        sleep(begin).await;
        let mut running = JoinSet::new();
        for _ in 0..number(tasks) {
            let lock = locks.read_write_lock("sharing:rw");
            match kind {
                "linger" => running.spawn(enter(lock.with(&linger).into_read(), pauses, until)),
                "read" => running.spawn(enter(lock.into_read(), pauses, until)),
                "write" => running.spawn(enter(lock.into_write(), pauses, until)),
                "permit" => running.spawn(enter(locks.semaphore("sharing:permits", PERMITS), pauses, until)),
                _ => running.spawn(enter(locks.rlock("sharing"), pauses, until)),
            };
        }
        let done = running.join_all().await;
        locks.shutdown().await.expect("all is released");
        let sections: usize = done.iter().map(Vec::len).sum();
        (sections, Latencies::from_iter(done.into_iter().flatten()))
    });
    let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|share| waits.micros(share));
    println!("{sections} {p50} {p99} {longest}");
}

/// Returns the wait before each section.
async fn enter(mut lock: impl Lock, [section, pause]: [Duration; 2], until: Instant) -> Vec<Duration> {
    let mut waits = Vec::new();
    while Instant::now() < until {
        let asked = Instant::now();
        let guard = lock.lock().await;
        waits.push(asked.elapsed());
        if !section.is_zero() {
            sleep(section).await;
        }
        lock.unlock(guard).await;
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
    waits
}
