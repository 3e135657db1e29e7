//! How long it takes until a lock that one process releases is held by another that waits for it.
//!
//! This program starts itself twice, and the two pass one lock to and fro. A section is longer than the pause after
//! it, so that whoever released waits again before the next release.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};

use lockkeeper::LockClient;
use tokio::time::sleep;

use crate::bare::{self, Bare, BareFair};
use crate::clock::now;
use crate::flavor::Flavor;
use crate::peer::{Fair, Lock, Peer};
use crate::redisson::{self, Done, Jvm, Work};
use crate::rounds::{Effort, interleave};
use crate::sides;
use crate::stats::{Ratio, median, percentile};
use crate::table::Table;

/// The word by which this program starts one of the two sides.
pub const SIDE: &str = "handoff-side";

/// A timer of tokio adds up to a millisecond to these.
const SECTION: Duration = Duration::from_millis(3);
const PAUSE: Duration = Duration::from_millis(1);

/// Whoever asked less than this before the release may not have been waiting yet.
const SETTLED: u64 = 500_000;

const KINDS: [(&str, [&str; 4]); 2] = [
    ("reentrant locks", ["bare", "lockkeeper", redisson::NAME, "PING"]),
    ("fair locks", ["bare fair", "lockkeeper fair", redisson::FAIR, "PING"]),
];

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort) {
    let jvms = [Rc::clone(jvm), redisson::warm(url, effort)];
    for flavor in Flavor::ALL {
        for (kind, candidates) in KINDS {
            measure_kind(url, &jvms, flavor, effort, kind, candidates);
        }
    }
}

fn measure_kind(
    url: &str,
    jvms: &[Rc<Jvm>],
    flavor: Flavor,
    effort: Effort,
    kind: &str,
    candidates: [&str; 4],
) {
    println!("\n## Hand-off of {kind} between two processes, {}\n", flavor.name());
    println!(
        "From just before the release in one to the end of the acquire in the other. PING: one round trip.\n"
    );
    let count = effort.count(SECTION);
    let samples = interleave(effort.rounds, candidates.len(), |which| match candidates[which] {
        "PING" => pings(url, flavor, count),
        redisson::NAME => handoffs(in_java(jvms, "rlock", count)),
        redisson::FAIR => handoffs(in_java(jvms, "fair", count)),
        peer => handoffs(in_rust(url, peer, flavor, count)),
    });
    let mut table = Table::new(["candidate", "hand-offs", "p50 µs", "ratio to bare", "target", "p99 µs"]);
    for (name, rounds) in candidates.iter().zip(&samples) {
        let p50 = |times: &Vec<f64>| median(times.iter().copied());
        let ratio = Ratio::new(rounds, &samples[0], p50);
        let is_judged = name.starts_with("lockkeeper") && flavor == Flavor::CurrentThread;
        let mut all = rounds.concat();
        table.row([
            (*name).to_owned(),
            all.len().to_string(),
            format!("{:.0}", median(rounds.iter().map(p50))),
            ratio.to_string(),
            if is_judged { ratio.at_most(1.15) } else { String::new() },
            format!("{:.0}", percentile(&mut all, 0.99)),
        ]);
    }
    print!("{table}");
}

/// Nanoseconds of a clock that all processes of a host share.
#[derive(Debug)]
struct Section {
    asked: u64,
    acquired: u64,
    released: u64,
}

/// With the number of the side.
type Sections = Vec<(usize, Section)>;

fn in_rust(url: &str, peer: &str, flavor: Flavor, count: usize) -> Sections {
    let start = || sides::start(&[SIDE, url, peer, flavor.name(), &count.to_string()]);
    let mut sections = Vec::new();
    for (side, process) in [start(), start()].into_iter().enumerate() {
        sections.extend(sides::output(process).lines().map(|line| (side, line.parse().expect("a section"))));
    }
    sections
}

/// For as long as about so many sections of each side need.
fn in_java(jvms: &[Rc<Jvm>], kind: &'static str, count: usize) -> Sections {
    let names = vec!["handoff".to_owned()];
    let work = Work { kind, names, section: SECTION, pause: PAUSE, time: SECTION * 2 * count as u32 };
    jvms.iter().for_each(|jvm| work.begin(jvm));
    let sides = jvms.iter().map(|jvm| Done::of(jvm).sections).enumerate();
    sides
        .flat_map(|(side, sections)| sections.into_iter().map(move |section| (side, section.into())))
        .collect()
}

/// Microseconds of each hand-off.
fn handoffs(mut sections: Sections) -> Vec<f64> {
    sections.sort_unstable_by_key(|(_, section)| section.acquired);
    sections.windows(2).filter_map(|two| handoff(&two[0], &two[1])).collect()
}

fn handoff((from, first): &(usize, Section), (to, next): &(usize, Section)) -> Option<f64> {
    assert!(first.released <= next.acquired, "two had the lock at once: {first:?}, {next:?}");
    let was_waiting = from != to && next.asked + SETTLED < first.released;
    was_waiting.then(|| (next.acquired - first.released) as f64 / 1e3)
}

/// One of the two processes: prints its sections.
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

/// Microseconds of each round trip, at the pace of the hand-offs.
pub fn pings(url: &str, flavor: Flavor, count: usize) -> Vec<f64> {
    let pings = ping(url.to_owned(), count);
    flavor.runtime().block_on(async { tokio::spawn(pings).await.expect("no panic") })
}

async fn ping(url: String, count: usize) -> Vec<f64> {
    let mut connection = bare::connection(&url).await;
    let mut times = Vec::new();
    for _ in 0..count {
        sleep(SECTION).await;
        let start = Instant::now();
        let _: String = bare::run(&mut connection, &redis::cmd("PING")).await;
        times.push(start.elapsed().as_secs_f64() * 1e6);
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
