//! The time of a hand-off: one process releases a lock, and another, which waits for it, holds it.
//!
//! This program starts itself twice, and the two processes pass one lock back and forth. A section is longer than the
//! pause after it, so a process waits again before the other one releases.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};

use lockkeeper::LockClient;
use tokio::time::sleep;

use crate::bare::{Bare, BareFair};
use crate::clock::now;
use crate::connection::{connect, run};
use crate::flavor::Flavor;
use crate::peer::{Fair, Lock, Peer};
use crate::redisson::{self, Done, Jvm, Work};
use crate::report::{Cell, Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::sides;
use crate::stats::{Latencies, Ratio, median};

/// The word by which this program starts one of the two processes.
pub const SIDE: &str = "handoff-side";

/// A timer of tokio adds up to a millisecond to these.
const SECTION: Duration = Duration::from_millis(3);
const PAUSE: Duration = Duration::from_millis(1);

/// Nanoseconds. A process that asked less than this before the release may not have been waiting yet.
const SETTLED: u64 = 500_000;

const KINDS: [(&str, [&str; 4]); 2] = [
    ("reentrant locks", ["bare", "lockkeeper", redisson::NAME, "PING"]),
    ("fair locks", ["bare fair", "lockkeeper fair", redisson::FAIR, "PING"]),
];

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    let jvms = [Rc::clone(jvm), redisson::start_warm(url, effort)];
    for flavor in Flavor::ALL {
        for (kind, candidates) in KINDS {
            report.section(
                format!("Hand-off of {kind} between two processes, {}", flavor.name()),
                "From just before the release in one process to the end of the acquire in the other. PING is one round\n\
                 trip.",
            );
            report.table(table(url, &jvms, flavor, effort, candidates));
        }
    }
}

fn table(url: &str, jvms: &[Rc<Jvm>], flavor: Flavor, effort: Effort, candidates: [&str; 4]) -> Table {
    let count = effort.count(SECTION);
    let samples = interleave(effort.rounds, candidates.len(), |which| match candidates[which] {
        "PING" => pings(url, flavor, count),
        redisson::NAME => handoffs(in_java(jvms, "rlock", count)),
        redisson::FAIR => handoffs(in_java(jvms, "fair", count)),
        peer => handoffs(in_rust(url, peer, flavor, count)),
    });
    let mut table = Table::new(["candidate", "hand-offs", "p50 µs", "ratio to bare", "target", "p99 µs"])
        .plot_ratios("ratio to bare", 1);
    for (name, rounds) in candidates.iter().zip(&samples) {
        let p50 = |times: &Latencies| times.micros(0.5);
        let ratio = Ratio::new(rounds, &samples[0], p50);
        let is_judged = name.starts_with("lockkeeper") && flavor == Flavor::CurrentThread;
        let all = Latencies::merged(rounds);
        table.row([
            (*name).into(),
            number(all.count() as f64, 0),
            number(median(rounds.iter().map(p50)), 0),
            ratio.into(),
            if is_judged { ratio.at_most(1.15).into() } else { Cell::default() },
            number(all.micros(0.99), 0),
        ]);
    }
    table
}

/// Nanoseconds of a clock that all processes of a machine share.
#[derive(Debug)]
struct Section {
    asked: u64,
    acquired: u64,
    released: u64,
}

/// Each section with the number of its process.
type Sections = Vec<(usize, Section)>;

fn in_rust(url: &str, peer: &str, flavor: Flavor, count: usize) -> Sections {
    let start = || sides::start(&[SIDE, url, peer, flavor.name(), &count.to_string()]);
    let mut sections = Vec::new();
    for (side, process) in [start(), start()].into_iter().enumerate() {
        sections.extend(sides::output(process).lines().map(|line| (side, line.parse().expect("a section"))));
    }
    sections
}

/// Runs for as long as each process needs for about so many sections.
fn in_java(jvms: &[Rc<Jvm>], kind: &'static str, count: usize) -> Sections {
    let names = vec!["handoff".to_owned()];
    let work = Work { kind, names, section: SECTION, pause: PAUSE, time: SECTION * 2 * count as u32 };
    jvms.iter().for_each(|jvm| work.begin(jvm));
    let sides = jvms.iter().map(|jvm| Done::of(jvm).sections).enumerate();
    sides
        .flat_map(|(side, sections)| sections.into_iter().map(move |section| (side, section.into())))
        .collect()
}

/// The time of each hand-off.
fn handoffs(mut sections: Sections) -> Latencies {
    sections.sort_unstable_by_key(|(_, section)| section.acquired);
    sections.windows(2).filter_map(|two| handoff(&two[0], &two[1])).collect()
}

fn handoff((from, first): &(usize, Section), (to, next): &(usize, Section)) -> Option<Duration> {
    assert!(first.released <= next.acquired, "two processes held the lock at once: {first:?}, {next:?}");
    let was_waiting = from != to && next.asked + SETTLED < first.released;
    was_waiting.then(|| Duration::from_nanos(next.acquired - first.released))
}

/// One of the two processes. It prints its sections.
pub fn side(url: &str, peer: &str, flavor: &str, count: &str) {
    let runtime = Flavor::named(flavor).runtime();
    let count = count.parse().expect("a number");
    let sections = match peer {
        "bare" => runtime.block_on(take_turns::<Bare>(url, count)),
        "bare fair" => runtime.block_on(take_turns::<BareFair>(url, count)),
        "lockkeeper fair" => runtime.block_on(take_turns::<Fair>(url, count)),
        _ => runtime.block_on(take_turns::<LockClient>(url, count)),
    };
    for section in sections {
        println!("{section}");
    }
}

async fn take_turns<P: Peer>(url: &str, count: usize) -> Vec<Section> {
    let peer = P::connect(url).await;
    let mut lock = peer.lock("handoff");
    let turns = async move {
        let mut sections = Vec::new();
        for _ in 0..count {
            let asked = now();
            let guard = lock.lock().await;
            let acquired = now();
            sleep(SECTION).await;
            let released = now();
            lock.unlock(guard).await;
            sections.push(Section { asked, acquired, released });
            sleep(PAUSE).await;
        }
        sections
    };
    tokio::spawn(turns).await.expect("no panic")
}

/// The time of each round trip, at the pace of the hand-offs.
pub fn pings(url: &str, flavor: Flavor, count: usize) -> Latencies {
    let pings = ping(url.to_owned(), count);
    let times = flavor.runtime().block_on(async { tokio::spawn(pings).await.expect("no panic") });
    times.into_iter().collect()
}

async fn ping(url: String, count: usize) -> Vec<Duration> {
    let mut connection = connect(&url).await;
    let mut times = Vec::new();
    for _ in 0..count {
        sleep(SECTION).await;
        let start = Instant::now();
        let _: String = run(&mut connection, &redis::cmd("PING")).await;
        times.push(start.elapsed());
    }
    times
}

impl From<redisson::Section> for Section {
    fn from(redisson::Section { asked, acquired, released, .. }: redisson::Section) -> Self {
        Self { asked, acquired, released }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.asked, self.acquired, self.released)
    }
}

impl FromStr for Section {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [asked, acquired, released] => Ok(Self { asked, acquired, released }),
            _ => Err(format!("no section: {line}")),
        }
    }
}
