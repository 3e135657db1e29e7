//! How long it takes until all are in who wait to read, once the writer goes.
//!
//! This program starts itself several times, and in each of them many tasks wait.

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

use crate::bare;
use crate::clock::now;
use crate::flavor::Flavor;
use crate::handoff::pings;
use crate::peer::{Peer, Read};
use crate::rounds::{Effort, interleave};
use crate::sides;
use crate::stats::{Ratio, median, percentile};
use crate::table::Table;

/// The word by which this program starts a process that reads.
pub const SIDE: &str = "read-side";

const PROCESSES: usize = 4;
/// In each process.
const READERS: usize = 50;

/// How long they stay in, so that nobody goes while others enter.
const SECTION: Duration = Duration::from_millis(50);
/// Until everybody waits, once each process does.
const SETTLE: Duration = Duration::from_millis(100);
const TURN: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);

/// Microseconds of each turn.
type Times = Vec<f64>;

pub fn measure(url: &str, flavor: Flavor, effort: Effort) {
    println!("\n## {} readers in {PROCESSES} processes, {}\n", PROCESSES * READERS, flavor.name());
    println!(
        "From just before the release of the writer until the last of them is in. PING: one round trip.\n"
    );
    let candidates = [turns, pinged];
    let count = effort.longer(4).count(TURN);
    let samples = interleave(effort.rounds, candidates.len(), |which| candidates[which](url, flavor, count));
    let mut table = Table::new(["who", "turns", "p50 µs", "ratio to PING", "greatest µs"]);
    for part in 0..=PROCESSES {
        let who = if part == 0 { "all".to_owned() } else { format!("{READERS} of process {part}") };
        table.row(row(who, &of_part(&samples[0], part), &of_part(&samples[1], 0)));
    }
    let pings = of_part(&samples[1], 0);
    table.row(row("PING".to_owned(), &pings, &pings));
    print!("{table}");
}

fn of_part(rounds: &[Vec<Times>], part: usize) -> Vec<Times> {
    rounds.iter().map(|parts| parts[part].clone()).collect()
}

fn row(who: String, rounds: &[Times], pings: &[Times]) -> [String; 5] {
    let p50 = |times: &Times| median(times.iter().copied());
    let mut all = rounds.concat();
    [
        who,
        all.len().to_string(),
        format!("{:.0}", median(rounds.iter().map(p50))),
        Ratio::new(rounds, pings, p50).to_string(),
        format!("{:.0}", percentile(&mut all, 1.0)),
    ]
}

fn pinged(url: &str, flavor: Flavor, count: usize) -> Vec<Times> {
    vec![pings(url, flavor, count * 10)]
}

/// The last to wait and the last to enter in one turn, in nanoseconds of a clock that all processes of a host share.
#[derive(Clone, Copy)]
struct Entry {
    asked: u64,
    entered: u64,
}

/// The times of all together, and of each process.
fn turns(url: &str, flavor: Flavor, count: usize) -> Vec<Times> {
    let start = || sides::start(&[SIDE, url, flavor.name(), &count.to_string()]);
    let (processes, released) = flavor.runtime().block_on(async {
        let writers = write(url, count).await;
        let processes = [(); PROCESSES].map(|()| start());
        (processes, release(url, writers).await)
    });
    let each = processes.map(|process| times(&sides::output(process), &released));
    let last = |turn: usize| each.iter().map(|times| times[turn]).fold(0.0, f64::max);
    let all = (0..count).map(last).collect();
    [vec![all], each.to_vec()].concat()
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

/// Turn by turn, once all wait. Returns when that was.
async fn release(url: &str, writers: Vec<LockGuard>) -> Vec<u64> {
    let mut server = bare::connection(url).await;
    let mut released = Vec::new();
    for writer in writers {
        wait_for_all(&mut server, &format!("redisson_rwlock:{{{}}}", writer.name())).await;
        released.push(now());
        writer.unlock().await.expect("a lock that was held");
    }
    released
}

async fn wait_for_all(server: &mut MultiplexedConnection, channel: &str) {
    let start = Instant::now();
    loop {
        let (_, listening): (String, usize) =
            bare::run(server, cmd("PUBSUB").arg("NUMSUB").arg(channel)).await;
        if listening == PROCESSES {
            return sleep(SETTLE).await;
        }
        assert!(start.elapsed() < PATIENCE, "only {listening} processes wait");
        sleep(Duration::from_millis(2)).await;
    }
}

fn times(output: &str, released: &[u64]) -> Times {
    let entries = output.lines().map(|line| line.parse().expect("an entry"));
    entries.zip(released).map(|(entry, released)| time(entry, *released)).collect()
}

fn time(Entry { asked, entered }: Entry, released: u64) -> f64 {
    assert!(asked < released, "somebody did not wait yet");
    assert!(released < entered, "somebody read while another wrote");
    (entered - released) as f64 / 1e3
}

/// One of the processes that read: prints its entries.
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
        readers.spawn(enter(locks, Arc::clone(&together)));
    }
    let entries = readers.join_all().await;
    (0..count).map(|turn| last(entries.iter().map(|entries| entries[turn]))).collect()
}

/// One reader, in one turn after the other.
async fn enter(locks: Vec<ReadLock>, together: Arc<Barrier>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for mut lock in locks {
        let asked = now();
        let guard = lock.lock().await.expect("a lock");
        entries.push(Entry { asked, entered: now() });
        together.wait().await;
        sleep(SECTION).await;
        guard.unlock().await.expect("a lock that was held");
    }
    entries
}

fn last(entries: impl Iterator<Item = Entry>) -> Entry {
    let later = |a: Entry, b: Entry| Entry { asked: a.asked.max(b.asked), entered: a.entered.max(b.entered) };
    entries.reduce(later).expect("a reader")
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.asked, self.entered)
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [asked, entered] => Ok(Self { asked, entered }),
            _ => Err(format!("no entry: {line}")),
        }
    }
}
