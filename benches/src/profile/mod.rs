//! What the client does for one lock and unlock, between the caller and the socket.
//!
//! Callgrind counts it in processes of their own; nothing is timed. The result is the difference between a short and a long
//! run, so work that is done only once does not count.

mod callgrind;
mod places;
mod time;

use lockkeeper::LockClient;
use lockkeeper_testkit::Server;
use tokio::task::JoinSet;

use self::callgrind::Counts;
use self::places::Place;
use crate::bare::{Bare, BareFair, BareRead, BareRedisson};
use crate::flavor::Flavor;
use crate::peer::{AsyncRedisLock, Clustered, Fair, Lock, NewHandles, Peer, Read, Rlock, Rslock};
use crate::report::{Cell, Report, Table, number};
use crate::rounds::Effort;
use crate::stats::at_most;

/// The word by which this program starts a process to be counted.
pub const SIDE: &str = "profile-side";

/// The pairs of all tasks together in the short run, and how many more the long run has.
const FEW: usize = 256;
const MORE: usize = 1_024;

/// Commands of a pair.
const COMMANDS: f64 = 2.0;

const MOST_ALLOCATIONS: f64 = 8.0;

/// A crate or file with fewer instructions per pair is left out.
const LEAST: f64 = 100.0;

const TASKS: [usize; 2] = [1, 128];

const FLAVOR: Flavor = Flavor::CurrentThread;

struct Candidate {
    name: &'static str,
    run: fn(&str, usize, usize),
    /// The number of the bare candidate that it is compared with.
    floor: usize,
    /// On a cluster of one master.
    is_clustered: bool,
}

const fn candidate<P: Peer>(name: &'static str, floor: usize) -> Candidate {
    Candidate { name, run: run::<P>, floor, is_clustered: false }
}

const fn clustered<P: Peer>(name: &'static str, floor: usize) -> Candidate {
    Candidate { is_clustered: true, ..candidate::<P>(name, floor) }
}

const CANDIDATES: [Candidate; 12] = [
    candidate::<Bare>("bare", 0),
    candidate::<LockClient>("lockkeeper", 0),
    candidate::<NewHandles>("lockkeeper, new handles", 0),
    candidate::<BareRead>("bare read", 3),
    candidate::<Read>("lockkeeper read", 3),
    candidate::<BareFair>("bare fair", 5),
    candidate::<Fair>("lockkeeper fair", 5),
    clustered::<Clustered>("lockkeeper, cluster of one master", 0),
    candidate::<BareRedisson>("Redisson's scripts, bare", 0),
    candidate::<Rslock>("rslock", 0),
    candidate::<Rlock>("rlock", 0),
    candidate::<AsyncRedisLock>("async-redis-lock", 0),
];

/// The candidates of a quick run. The later tables need them.
const QUICK: usize = 2;

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    time::measure(url, effort, report);
    report.section(
        format!("Instructions and allocations of one lock and unlock, {}", FLAVOR.name()),
        "The client's work for a free lock, counted by callgrind. redis-rs alone allocates three to five times per\n\
         command. With many tasks, one system call serves several commands. *Cache misses* are instructions that were not\n\
         in the first-level cache, as callgrind simulates the cache of this processor.",
    );
    let (candidates, more) =
        if effort.is_quick() { (&CANDIDATES[..QUICK], FEW) } else { (&CANDIDATES[..], MORE) };
    let cluster = Server::cluster_of_one();
    let clustered = cluster.url();
    let count = |tasks, one: &Candidate| {
        per_pair(if one.is_clustered { &clustered } else { url }, one.name, tasks, more)
    };
    let counts = TASKS.map(|tasks| candidates.iter().map(|one| count(tasks, one)).collect::<Vec<_>>());
    report.table(whole(&counts));
    report.text(
        "Most of the difference between lockkeeper and bare is code that does not fit into the first-level cache when many\n\
         tasks take turns. Two costs are avoided: a handle keeps its connection and its keys, and a call reads the clock\n\
         only for limits that apply to it.",
    );
    let [one, many] = &counts;
    let pairs = [&one[0], &one[1], &many[0], &many[1]];
    report.section(
        "Instructions by crate",
        "The instructions of one lock and unlock, by the crate of their source.",
    );
    report.table(parts("crate", pairs, |place| Some(place.who.clone())));
    report.section(
        "Instructions by source file of lockkeeper",
        "The row *lockkeeper* of the table above, in detail.",
    );
    report.table(parts("file", pairs, |place| place.file.clone()));
}

fn whole(counts: &[Vec<Counts>; TASKS.len()]) -> Table {
    let mut table = Table::new([
        "candidate",
        "tasks",
        "instructions",
        "to bare",
        "allocations per command",
        "target",
        "system calls",
        "clock reads",
        "cache misses",
    ]);
    for (tasks, counts) in TASKS.iter().zip(counts) {
        for (Candidate { name, floor, .. }, count) in CANDIDATES.iter().zip(counts) {
            let allocations = count.allocations / COMMANDS;
            let is_judged = *name == "lockkeeper";
            table.row([
                (*name).into(),
                (*tasks).into(),
                number(count.all(), 0),
                number(count.all() / counts[*floor].all(), 2),
                number(allocations, 1),
                if is_judged { at_most(allocations, MOST_ALLOCATIONS).into() } else { Cell::default() },
                number(count.system_calls, 1),
                number(count.clock_reads, 1),
                number(count.cache_misses, 0),
            ]);
        }
    }
    table
}

/// The instructions of a pair by name, those with most first.
fn parts(title: &str, counts: [&Counts; 4], name: impl Fn(&Place) -> Option<String>) -> Table {
    let sums = counts.map(|counts| counts.by(&name));
    let mut names: Vec<_> = sums[1].iter().filter(|(_, sum)| **sum >= LEAST).map(|(name, _)| name).collect();
    names.sort_by(|a, b| sums[1][*b].total_cmp(&sums[1][*a]));
    let mut table = Table::new([title, "bare", "lockkeeper", "bare, 128 tasks", "lockkeeper, 128 tasks"]);
    for name in names {
        let [a, b, c, d] = sums.each_ref().map(|sums| number(sums.get(name).copied().unwrap_or(0.0), 0));
        table.row([name.clone().into(), a, b, c, d]);
    }
    table
}

fn per_pair(url: &str, candidate: &str, tasks: usize, more: usize) -> Counts {
    let count =
        |pairs: usize| callgrind::count(&[SIDE, url, candidate, &tasks.to_string(), &pairs.to_string()]);
    count(FEW + more).difference(&count(FEW), more)
}

/// The process to be counted.
pub fn side(url: &str, candidate: &str, tasks: &str, pairs: &str) {
    let number = |text: &str| text.parse().expect("a number");
    let candidate = CANDIDATES.iter().find(|one| one.name == candidate).expect("a candidate");
    (candidate.run)(url, number(tasks), number(pairs));
}

fn run<P: Peer>(url: &str, tasks: usize, pairs: usize) {
    FLAVOR.runtime().block_on(async {
        let peer = P::connect(url).await;
        let mut running = JoinSet::new();
        for task in 0..tasks {
            running.spawn(work(peer.lock(&format!("profile:{task}")), pairs / tasks));
        }
        running.join_all().await;
    });
}

async fn work(mut lock: impl Lock, pairs: usize) {
    for _ in 0..pairs {
        let guard = lock.lock().await;
        lock.unlock(guard).await;
    }
}
