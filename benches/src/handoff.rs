//! The time of a hand-off: one process releases a lock, and another, which waits for it, holds it.
//!
//! This program starts itself twice, and the two processes pass one lock back and forth. A section is longer than the
//! pause after it, so a process waits again before the other one releases.

use std::rc::Rc;
use std::time::Duration;

use lockkeeper::LockClient;
use tokio::time::sleep;

use crate::bare::{Bare, BareFair};
use crate::peer::{Fair, Lock, Peer};
use crate::redisson::{self, Done, Jvm, Work};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::runtime::{now, one_thread};
use crate::sides;
use crate::stats::{Latencies, Ratio, median};

/// The word by which this program starts one of the two processes.
pub const SIDE: &str = "handoff-side";

/// A timer of tokio adds up to a millisecond to these.
const SECTION: Duration = Duration::from_millis(3);
const PAUSE: Duration = Duration::from_millis(1);

/// Nanoseconds. A process that asked less than this before the release may not have been waiting yet.
const SETTLED: u64 = 500_000;

const KINDS: [(&str, [&str; 3]); 2] = [
    ("reentrant locks", ["bare", "lockkeeper", redisson::NAME]),
    ("fair locks", ["bare fair", "lockkeeper fair", redisson::FAIR]),
];

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    let jvms = [Rc::clone(jvm), redisson::start_warm(url, effort)];
    for (kind, candidates) in KINDS {
        let count = effort.count(SECTION);
        let samples = interleave(effort.rounds, candidates.len(), |which| match candidates[which] {
            redisson::NAME => handoffs(in_java(&jvms, "rlock", count)),
            redisson::FAIR => handoffs(in_java(&jvms, "fair", count)),
            peer => handoffs(in_rust(url, peer, count)),
        });
        let mut table = Table::new(["candidate", "hand-offs", "p50 µs", "ratio to bare", "target", "p99 µs"]);
        let mut plotted = Vec::new();
        for (name, rounds) in candidates.into_iter().zip(&samples) {
            let p50 = |times: &Latencies| times.micros(0.5);
            let ratio = Ratio::new(rounds, &samples[0], p50);
            let all = Latencies::merged(rounds);
            plotted.push((name, ratio));
            table.row([
                name.to_owned(),
                all.count().to_string(),
                number(median(rounds.iter().map(p50)), 0),
                ratio.to_string(),
                if name.starts_with("lockkeeper") { ratio.at_most(1.15) } else { String::new() },
                number(all.micros(0.99), 0),
            ]);
        }
        let title = format!("Hand-off of {kind} between two processes");
        if kind == KINDS[0].0 {
            report.plot("hand-off", &format!("{title}: ratio to bare"), &plotted);
        }
        report.section(
            title,
            "From just before the release in one process to the end of the acquire in the other.",
            &table,
        );
    }
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

fn in_rust(url: &str, peer: &str, count: usize) -> Sections {
    let start = || sides::start(&[SIDE, url, peer, &count.to_string()]);
    let mut sections = Vec::new();
    for (side, process) in [start(), start()].into_iter().enumerate() {
        sections.extend(sides::output(process).lines().map(|line| (side, section(line))));
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
        .flat_map(|(side, sections)| {
            sections.into_iter().map(move |it| {
                (side, Section { asked: it.asked, acquired: it.acquired, released: it.released })
            })
        })
        .collect()
}

/// Reads what the other process printed.
fn section(line: &str) -> Section {
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [asked, acquired, released] = numbers[..] else { panic!("no section: {line}") };
    Section { asked, acquired, released }
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
pub fn side(url: &str, peer: &str, count: &str) {
    let runtime = one_thread();
    let count = count.parse().expect("a number");
    let sections = match peer {
        "bare" => runtime.block_on(take_turns::<Bare>(url, count)),
        "bare fair" => runtime.block_on(take_turns::<BareFair>(url, count)),
        "lockkeeper fair" => runtime.block_on(take_turns::<Fair>(url, count)),
        _ => runtime.block_on(take_turns::<LockClient>(url, count)),
    };
    for section in sections {
        println!("{} {} {}", section.asked, section.acquired, section.released);
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
