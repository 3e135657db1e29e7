//! How soon readers that wait for a writer are admitted after the writer releases.
//!
//! This program starts itself several times, and many tasks wait in each process.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::{LockClient, LockGuard, ReadLock};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clock::now;
use crate::connection::{connect, run};
use crate::flavor::Flavor;
use crate::handoff::pings;
use crate::peer::{Peer, Read};
use crate::report::{Cell, Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::sides;
use crate::stats::{Latencies, Ratio, median};

/// The word by which this program starts a process that reads.
pub const SIDE: &str = "read-side";

const PROCESSES: usize = 4;
/// The readers of each process.
const READERS: usize = 50;

/// A read section. It is long enough that no reader releases while others are admitted.
const SECTION: Duration = Duration::from_millis(50);
/// The time until all tasks of a process wait, after its first one subscribed.
const SETTLE: Duration = Duration::from_millis(100);
const TURN: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(10);

pub fn measure(url: &str, flavor: Flavor, effort: Effort, report: &mut Report) {
    report.section(
        format!("{} readers in {PROCESSES} processes, {}", PROCESSES * READERS, flavor.name()),
        "From just before the writer releases until the last reader is admitted. PING is one round trip.",
    );
    let candidates = [turns, pinged];
    let count = effort.longer(4).count(TURN);
    let samples = interleave(effort.rounds, candidates.len(), |which| candidates[which](url, flavor, count));
    let mut table = Table::new(["readers", "turns", "p50 µs", "ratio to PING", "greatest µs"])
        .plot_ratios("ratio to PING", 1);
    let pings: Vec<&Latencies> = samples[1].iter().map(|rounds| &rounds[0]).collect();
    for part in 0..=PROCESSES {
        let name = if part == 0 { "all".to_owned() } else { format!("{READERS} of process {part}") };
        let rounds: Vec<&Latencies> = samples[0].iter().map(|parts| &parts[part]).collect();
        table.row(row(name, &rounds, &pings));
    }
    table.row(row("PING".to_owned(), &pings, &pings));
    report.table(table);
}

fn row(name: String, rounds: &[&Latencies], pings: &[&Latencies]) -> [Cell; 5] {
    let p50 = |times: &&Latencies| times.micros(0.5);
    let all = Latencies::merged(rounds.iter().copied());
    [
        name.into(),
        number(all.count() as f64, 0),
        number(median(rounds.iter().map(p50)), 0),
        Ratio::new(rounds, pings, p50).into(),
        number(all.micros(1.0), 0),
    ]
}

fn pinged(url: &str, flavor: Flavor, count: usize) -> Vec<Latencies> {
    vec![pings(url, flavor, count * 10)]
}

/// When the last reader of one turn asked and when the last was admitted, in nanoseconds of a clock that all processes
/// of a machine share.
#[derive(Clone, Copy)]
struct Entry {
    asked: u64,
    admitted: u64,
}

/// The time of each turn: of all processes together, and then of each process.
fn turns(url: &str, flavor: Flavor, count: usize) -> Vec<Latencies> {
    let start = || sides::start(&[SIDE, url, flavor.name(), &count.to_string()]);
    let (processes, released) = flavor.runtime().block_on(async {
        let writers = write(url, count).await;
        let processes = [(); PROCESSES].map(|()| start());
        (processes, release(url, writers).await)
    });
    let each = processes.map(|process| times(&sides::output(process), &released));
    let last = |turn: usize| each.iter().map(|times| times[turn]).max().expect("a process");
    let all: Vec<Duration> = (0..count).map(last).collect();
    [all].into_iter().chain(each).map(Latencies::from_iter).collect()
}

fn name(turn: usize) -> String {
    format!("entry:{turn}")
}

async fn write(url: &str, count: usize) -> Vec<LockGuard> {
    let locks = LockClient::connect(url).await.expect("a client");
    let mut writers = Vec::new();
    for turn in 0..count {
        writers.push(locks.read_write_lock(name(turn)).write().lock().await.expect("a free lock"));
    }
    writers
}

/// Releases turn by turn, each time after all readers wait. Returns the times of the releases.
async fn release(url: &str, writers: Vec<LockGuard>) -> Vec<u64> {
    let mut server = connect(url).await;
    let mut released = Vec::new();
    for writer in writers {
        wait_for_all(&mut server, &format!("redisson_rwlock:{{{}}}", writer.name())).await;
        released.push(now());
        writer.unlock().await.expect("the lock was held");
    }
    released
}

async fn wait_for_all(server: &mut MultiplexedConnection, channel: &str) {
    let start = Instant::now();
    loop {
        let (_, listening): (String, usize) = run(server, cmd("PUBSUB").arg("NUMSUB").arg(channel)).await;
        if listening == PROCESSES {
            return sleep(SETTLE).await;
        }
        assert!(start.elapsed() < LIMIT, "only {listening} processes wait");
        sleep(Duration::from_millis(2)).await;
    }
}

fn times(output: &str, released: &[u64]) -> Vec<Duration> {
    let entries = output.lines().map(|line| line.parse().expect("an entry"));
    entries.zip(released).map(|(entry, released)| time(entry, *released)).collect()
}

fn time(Entry { asked, admitted }: Entry, released: u64) -> Duration {
    assert!(asked < released, "a reader did not wait yet");
    assert!(released < admitted, "a reader was admitted while the writer held the lock");
    Duration::from_nanos(admitted - released)
}

/// One of the processes that read. It prints its entries.
pub fn side(url: &str, flavor: &str, count: &str) {
    let count = count.parse().expect("a number");
    for entry in Flavor::named(flavor).runtime().block_on(read(url, count)) {
        println!("{entry}");
    }
}

async fn read(url: &str, count: usize) -> Vec<Entry> {
    let peer = Read::connect(url).await;
    let together = Arc::new(Barrier::new(READERS));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let locks = (0..count).map(|turn| peer.lock(&name(turn))).collect();
        readers.spawn(take_turns(locks, Arc::clone(&together)));
    }
    let entries = readers.join_all().await;
    (0..count).map(|turn| last(entries.iter().map(|entries| entries[turn]))).collect()
}

/// One reader, turn by turn.
async fn take_turns(locks: Vec<ReadLock>, together: Arc<Barrier>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for mut lock in locks {
        let asked = now();
        let guard = lock.lock().await.expect("a lock");
        entries.push(Entry { asked, admitted: now() });
        together.wait().await;
        sleep(SECTION).await;
        guard.unlock().await.expect("the lock was held");
    }
    entries
}

fn last(entries: impl Iterator<Item = Entry>) -> Entry {
    let later =
        |a: Entry, b: Entry| Entry { asked: a.asked.max(b.asked), admitted: a.admitted.max(b.admitted) };
    entries.reduce(later).expect("a reader")
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.asked, self.admitted)
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [asked, admitted] => Ok(Self { asked, admitted }),
            _ => Err(format!("no entry: {line}")),
        }
    }
}
