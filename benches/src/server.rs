//! What a pair of acquire and release costs the server, for each type of lock.

use crate::bare::{BareLock, KINDS, Kind, SHARED_READ, Scripts};
use crate::connection::{Info, connect};
use crate::peer::Lock;
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::runtime::one_thread;
use crate::stats::{Ratio, median};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A pair of these types costs at most so many pairs of the `RLock`.
const MOST: f64 = 1.5;
const WITH_TARGET: [&str; 4] = ["ReadLock", SHARED_READ, "WriteLock", "Semaphore"];

/// Whose scripts are sent.
const WHOSE: [&str; 3] = ["lockkeeper", "Redisson", "Redisson, latch"];

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let runtime = one_thread();
    let asking = runtime.block_on(connect(url));
    let mut candidates = Vec::new();
    for (name, ours, theirs) in KINDS {
        for (whose, kind, latch) in
            [(WHOSE[0], ours, false), (WHOSE[1], theirs, false), (WHOSE[2], theirs, true)]
        {
            candidates.push((name, whose, runtime.block_on(Candidate::new(url, name, whose, kind, latch))));
        }
    }
    let mut table = Table::new([
        "lock",
        "scripts of",
        "tasks",
        "a pair, µs",
        "ratio to lockkeeper's RLock",
        "target",
        "ratio to Redisson's of this lock",
    ]);
    for tasks in [1, 128] {
        let samples = interleave(effort.rounds, candidates.len(), |which| {
            candidates[which].2.run(&runtime, &asking, tasks, effort)
        });
        for (which, (name, whose, _)) in candidates.iter().enumerate() {
            let ratio = |to: usize| Ratio::new(&samples[which], &samples[to], |micros| *micros);
            let to_rlock = ratio(0);
            let has_target = *whose == WHOSE[0] && WITH_TARGET.contains(name);
            table.row([
                (*name).to_owned(),
                (*whose).to_owned(),
                tasks.to_string(),
                number(median(samples[which].iter().copied()), 1),
                to_rlock.to_string(),
                if has_target { to_rlock.at_most(MOST) } else { String::new() },
                ratio(which / WHOSE.len() * WHOSE.len() + 1).to_string(),
            ]);
        }
    }
    report.section(
        "Server time of a pair",
        "The scripts are sent bare. From `INFO commandstats`: the time of EVALSHA, for one acquire and one release. The `DEL` with which\n\
         Redisson removes its latch is not counted. A semaphore has no latch. All tasks use one semaphore with 256 permits. Each has locks of\n\
         its own, except where it says *one for all*: there, Redisson looks at all readers when one of them leaves.",
        &table,
    );
}

struct Candidate {
    scripts: Scripts,
    /// The name of the lock, or its beginning.
    name: String,
    is_shared: bool,
}

impl Candidate {
    async fn new(url: &str, lock: &str, whose: &str, kind: Kind, latch: bool) -> Self {
        let scripts = Scripts::connect(url, kind, latch).await;
        let name = format!("server:{lock}:{whose}").replace([' ', ','], "");
        scripts.prepare(&name).await;
        Self { scripts, name, is_shared: [SHARED_READ, "Semaphore"].contains(&lock) }
    }

    /// Microseconds of a pair.
    fn run(&self, runtime: &Runtime, asking: &MultiplexedConnection, tasks: usize, effort: Effort) -> f64 {
        runtime.block_on(async {
            let mut asking = asking.clone();
            let before = Info::read(&mut asking, "commandstats").await;
            let mut running = JoinSet::new();
            let until = Instant::now() + effort.slice;
            for task in 0..tasks {
                let lock = match self.is_shared {
                    true => self.scripts.lock(&self.name),
                    false => self.scripts.lock(&format!("{}:{task}", self.name)),
                };
                running.spawn(work(lock, until));
            }
            running.join_all().await;
            let after = Info::read(&mut asking, "commandstats").await;
            2.0 * (after.script_micros() - before.script_micros()) / (after.scripts() - before.scripts())
        })
    }
}

async fn work(mut lock: BareLock, until: Instant) {
    while Instant::now() < until {
        let guard = lock.lock().await;
        lock.unlock(guard).await;
    }
}
