//! What the client does for one lock and unlock, between the caller and the socket.
//!
//! `callgrind` counts it in processes of their own; nothing is timed. The result is the difference between a short and a long run,
//! so work that is done only once does not count.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs, process};

use lockkeeper::{LockClient, LockOptions};
use tokio::task::{JoinSet, yield_now};

use crate::bare::Bare;
use crate::peer::{AsyncRedisLock, Lock, Peer, Permits, Rlock, Rslock};
use crate::report::{Report, Table, number};
use crate::rounds::Effort;
use crate::runtime::one_thread;
use crate::stats::at_most;

/// The word by which this program starts a process to be counted.
pub const SIDE: &str = "profile-side";

/// The pairs of all tasks together in the short run, and how many more the long run has.
const FEW: usize = 256;
const MORE: usize = 1_024;

/// Commands of a pair.
const COMMANDS: f64 = 2.0;

const MOST_ALLOCATIONS: f64 = 8.0;

/// Runs pairs against the server with this URL: how many in all, and by how many tasks together.
type Run = fn(&str, usize, usize);

/// A quick run has only the first two.
const CANDIDATES: [(&str, Run); 7] = [
    ("bare", run::<Bare>),
    ("lockkeeper", run::<LockClient>),
    ("lockkeeper read that lingers", run_reads),
    ("lockkeeper permit", run::<Permits>),
    ("rslock", run::<Rslock>),
    ("rlock", run::<Rlock>),
    ("async-redis-lock", run::<AsyncRedisLock>),
];

/// The counts of a process, or per pair.
#[derive(Clone, Copy, Default)]
struct Counts {
    instructions: f64,
    /// Calls that allocate memory or enlarge an allocation.
    allocations: f64,
}

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let (candidates, more) =
        if effort.is_quick() { (&CANDIDATES[..2], FEW) } else { (&CANDIDATES[..], MORE) };
    let mut table =
        Table::new(["candidate", "tasks", "instructions", "to bare", "allocations per command", "target"]);
    for tasks in [1, 128] {
        let counts: Vec<Counts> =
            candidates.iter().map(|(name, _)| per_pair(url, name, tasks, more)).collect();
        for ((name, _), count) in candidates.iter().zip(&counts) {
            let allocations = count.allocations / COMMANDS;
            table.row([
                (*name).to_owned(),
                tasks.to_string(),
                number(count.instructions, 0),
                number(count.instructions / counts[0].instructions, 2),
                number(allocations, 1),
                if *name == "lockkeeper" { at_most(allocations, MOST_ALLOCATIONS) } else { String::new() },
            ]);
        }
    }
    report.section(
        "Instructions and allocations of one lock and unlock",
        "The client's work for a free lock, counted by callgrind. redis-rs alone allocates three to five times per\n\
         command. With many tasks, one system call serves several commands.",
        &table,
    );
}

fn per_pair(url: &str, candidate: &str, tasks: usize, more: usize) -> Counts {
    let count = |pairs: usize| counted(&[SIDE, url, candidate, &tasks.to_string(), &pairs.to_string()]);
    let (long, short) = (count(FEW + more), count(FEW));
    Counts {
        instructions: (long.instructions - short.instructions) / more as f64,
        allocations: (long.allocations - short.allocations) / more as f64,
    }
}

/// Runs this program with these arguments, and counts its work.
fn counted(words: &[&str]) -> Counts {
    let file = env::temp_dir().join(format!("lockkeeper-profile.{}", process::id()));
    let status = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(env::current_exe().expect("this program"))
        .args(words)
        .status()
        .expect("valgrind can be run");
    assert!(status.success(), "under valgrind: {status}");
    let counts = read(&file);
    fs::remove_file(&file).expect("the file that callgrind wrote");
    counts
}

/// The format is in valgrind's manual, "Callgrind Format Specification". A line with a cost begins with a number of a line.
fn read(file: &Path) -> Counts {
    const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "memalign", "posix_memalign"];
    let text = fs::read_to_string(file).expect("the file that callgrind wrote");
    let mut counts = Counts::default();
    let (mut function, mut callee) = ("", "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.split_once(['=', ':']) {
            Some(("fn", name)) => function = name,
            Some(("cfn", name)) => callee = name,
            Some(("calls", how)) => {
                if ALLOCATORS.contains(&callee) && !ALLOCATORS.contains(&function) {
                    counts.allocations += cost(how.split(' ').next());
                }
                lines.next(); // the cost of those calls: the callee's own lines have it as well
            }
            None if line.starts_with(|first: char| first.is_ascii_digit()) => {
                counts.instructions += cost(line.split(' ').nth(1));
            }
            _ => {}
        }
    }
    counts
}

fn cost(text: Option<&str>) -> f64 {
    text.and_then(|text| text.parse().ok()).expect("a number")
}

/// The process to be counted.
pub fn side(url: &str, candidate: &str, tasks: &str, pairs: &str) {
    let number = |text: &str| text.parse().expect("a number");
    let (_, run) = CANDIDATES.iter().find(|(name, _)| *name == candidate).expect("a candidate");
    run(url, number(tasks), number(pairs));
}

fn run<P: Peer>(url: &str, tasks: usize, pairs: usize) {
    one_thread().block_on(async {
        let peer = P::connect(url).await;
        let mut running = JoinSet::new();
        for task in 0..tasks {
            running.spawn(work(peer.lock(&format!("profile:{task}")), pairs / tasks));
        }
        running.join_all().await;
    });
}

/// Reads under a hold that lingers.
fn run_reads(url: &str, tasks: usize, reads: usize) {
    one_thread().block_on(async {
        let locks = LockClient::connect(url).await.expect("a client");
        let linger = LockOptions::builder().linger(Duration::from_secs(1)).build().expect("valid");
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let mut lock = locks.read_write_lock("profile").with(&linger).into_read();
            running.spawn(async move {
                for _ in 0..reads / tasks {
                    let _guard = lock.lock().await.expect("a read");
                    yield_now().await;
                }
            });
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
