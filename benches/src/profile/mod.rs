//! Where a pair of lock and unlock goes, between the caller and the socket.
//!
//! It is counted by callgrind, in processes of their own, and not timed. Two runs of different lengths are compared, so
//! that what happens only once falls out.

mod callgrind;
mod places;
mod time;

use lockkeeper::LockClient;
use tokio::task::JoinSet;

use self::callgrind::Counts;
use self::places::Place;
use crate::bare::{Bare, BareFair, BareRead, BareRedisson};
use crate::flavor::Flavor;
use crate::peer::{AsyncRedisLock, Fair, Lock, NewHandles, Peer, Read, Rlock, Rslock};
use crate::rounds::Effort;
use crate::stats::at_most;
use crate::table::Table;

/// The word by which this program starts a process to be counted.
pub const SIDE: &str = "profile-side";

/// Pairs of all tasks together, in the shorter run; and how many more are in the longer one.
const FEW: usize = 256;
const MORE: usize = 1_024;

/// In a pair.
const COMMANDS: f64 = 2.0;

const MOST_ALLOCATIONS: f64 = 8.0;

/// What has fewer instructions of a pair is not worth a line.
const LEAST: f64 = 100.0;

const TASKS: [usize; 2] = [1, 128];

struct Candidate {
    name: &'static str,
    run: fn(&str, usize, usize),
    /// The one that does the same without anything around it.
    floor: usize,
}

const fn candidate<P: Peer>(name: &'static str, floor: usize) -> Candidate {
    Candidate { name, run: run::<P>, floor }
}

const CANDIDATES: [Candidate; 11] = [
    candidate::<Bare>("bare", 0),
    candidate::<LockClient>("lockkeeper", 0),
    candidate::<NewHandles>("lockkeeper, new handles", 0),
    candidate::<BareRead>("bare read", 3),
    candidate::<Read>("lockkeeper read", 3),
    candidate::<BareFair>("bare fair", 5),
    candidate::<Fair>("lockkeeper fair", 5),
    candidate::<BareRedisson>("Redisson's scripts, bare", 0),
    candidate::<Rslock>("rslock", 0),
    candidate::<Rlock>("rlock", 0),
    candidate::<AsyncRedisLock>("async-redis-lock", 0),
];

/// Candidates in a quick run: what the tables compare in detail.
const QUICK: usize = 2;

pub fn measure(url: &str, effort: Effort) {
    time::measure(url, effort);
    println!("\n## What a pair takes, from the caller to the socket\n");
    println!(
        "Of a free lock, current_thread, counted by callgrind. Redis-rs alone allocates three to five times for a"
    );
    println!(
        "command. With many tasks, one system call serves several commands. Cache misses: instructions that were not"
    );
    println!("in the first cache, as callgrind simulates the one of this processor.\n");
    let (candidates, more) =
        if effort.is_quick() { (&CANDIDATES[..QUICK], FEW) } else { (&CANDIDATES[..], MORE) };
    let counts = TASKS
        .map(|tasks| candidates.iter().map(|one| a_pair(url, one.name, tasks, more)).collect::<Vec<_>>());
    print!("{}", whole(&counts));
    println!();
    println!(
        "What this showed at first, and what was changed: each command looked up its connection by a hash of the name, and a"
    );
    println!(
        "fair lock built its three other keys, so a handle keeps both now (a pair took 33800 instructions, of a fair lock 48700"
    );
    println!(
        "with 19.5 allocations for a command); and a call looked at the clock for limits that it seldom needs (18 times in a"
    );
    println!(
        "pair). The rest above bare is mostly code that does not fit the first cache, where many tasks take turns."
    );
    let [one, many] = &counts;
    let pairs = [&one[0], &one[1], &many[0], &many[1]];
    println!("\n## Whose instructions these are\n");
    print!("{}", parts("who", pairs, |place| Some(place.who.clone())));
    println!("\n## And in which file of lockkeeper\n");
    print!("{}", parts("file", pairs, |place| place.file.clone()));
}

fn whole(counts: &[Vec<Counts>; TASKS.len()]) -> Table {
    let mut table = Table::new([
        "candidate",
        "tasks",
        "instructions",
        "to bare",
        "allocations for a command",
        "target",
        "system calls",
        "looks at the clock",
        "cache misses",
    ]);
    for (tasks, counts) in TASKS.iter().zip(counts) {
        for (Candidate { name, floor, .. }, count) in CANDIDATES.iter().zip(counts) {
            let allocations = count.allocations / COMMANDS;
            let is_judged = *name == "lockkeeper";
            table.row([
                (*name).to_owned(),
                tasks.to_string(),
                format!("{:.0}", count.all()),
                format!("{:.2}", count.all() / counts[*floor].all()),
                format!("{allocations:.1}"),
                if is_judged { at_most(allocations, MOST_ALLOCATIONS) } else { String::new() },
                format!("{:.1}", count.system_calls),
                format!("{:.1}", count.clock_reads),
                format!("{:.0}", count.cache_misses),
            ]);
        }
    }
    table
}

/// What each has of the instructions of a pair, most first.
fn parts(title: &str, counts: [&Counts; 4], name: impl Fn(&Place) -> Option<String>) -> Table {
    let sums = counts.map(|counts| counts.by(&name));
    let mut names: Vec<_> = sums[1].iter().filter(|(_, sum)| **sum >= LEAST).map(|(name, _)| name).collect();
    names.sort_by(|a, b| sums[1][*b].total_cmp(&sums[1][*a]));
    let mut table = Table::new([title, "bare", "lockkeeper", "bare, 128 tasks", "lockkeeper, 128 tasks"]);
    for name in names {
        let [a, b, c, d] =
            sums.each_ref().map(|sums| format!("{:.0}", sums.get(name).copied().unwrap_or(0.0)));
        table.row([name.clone(), a, b, c, d]);
    }
    table
}

fn a_pair(url: &str, candidate: &str, tasks: usize, more: usize) -> Counts {
    let count =
        |pairs: usize| callgrind::count(&[SIDE, url, candidate, &tasks.to_string(), &pairs.to_string()]);
    count(FEW + more).less(&count(FEW), more)
}

/// One of the processes that are counted.
pub fn side(url: &str, candidate: &str, tasks: &str, pairs: &str) {
    let number = |text: &str| text.parse().expect("a number");
    let candidate = CANDIDATES.iter().find(|one| one.name == candidate).expect("a candidate");
    (candidate.run)(url, number(tasks), number(pairs));
}

fn run<P: Peer>(url: &str, tasks: usize, pairs: usize) {
    Flavor::CurrentThread.runtime().block_on(async {
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
