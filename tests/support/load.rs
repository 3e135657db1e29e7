//! Work that goes on during a fault, and sections that the judge of `lockkeeper verify` reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::{Error, FencingToken, LockClient, LockGuard};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::fixture::{
    FairLocks, FencedLocks, Fixture, MultiLocks, RLocks, ReadLocks, SingleRedLocks, Subject, WriteLocks,
};
use super::verify::check;
use super::{MS, soon};

/// How many names of each type are used.
const NAMES: usize = 4;

/// Tasks that acquire and release locks until [`Load::end`].
pub struct Load {
    stop: Arc<AtomicBool>,
    pause: Duration,
    tasks: Vec<JoinHandle<Log>>,
}

/// What the tasks did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// The longest time between the ends of two sections of one task.
    pub gap: Duration,
    pub sections: usize,
    /// Sections whose hold the new master lacked.
    pub lost: usize,
}

/// What one task did.
struct Log {
    name: String,
    stop: Arc<AtomicBool>,
    pause: Duration,
    /// The sections at whose end the lock was still held.
    sections: Vec<Section>,
    lost: usize,
    gap: Duration,
    last: Instant,
}

#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub start: Instant,
    pub end: Instant,
    /// Other sections like this can be at the same time.
    pub is_shared: bool,
    pub token: Option<FencingToken>,
}

impl Load {
    /// Ten tasks with an RLock each.
    pub fn start(locks: &LockClient) -> Self {
        let mut load = Self::new(MS);
        for number in 0..10 {
            load.add(&format!("load:{number}"), |log| work::<RLocks>(locks.clone(), log));
        }
        load
    }

    /// Locks of all types and many names. For each name, a task of each client contends. An RLock is named `rlock:0`.
    pub fn of_all_types(clients: &[&LockClient]) -> Self {
        // With a shorter pause, the work itself keeps a small machine busy.
        let mut load = Self::new(20 * MS);
        for locks in clients {
            for number in 0..NAMES {
                let name = |kind: &str| format!("{kind}:{number}");
                load.add(&name("fair"), |log| work::<FairLocks>((*locks).clone(), log));
                load.add(&name("fenced"), |log| work_with_tokens((*locks).clone(), log));
                load.add(&name("multi"), |log| work::<MultiLocks>((*locks).clone(), log));
                load.add(&name("read_write"), |log| work::<ReadLocks>((*locks).clone(), log));
                load.add(&name("read_write"), |log| work::<WriteLocks>((*locks).clone(), log));
                load.add(&name("red"), |log| work::<SingleRedLocks>((*locks).clone(), log));
                load.add(&name("rlock"), |log| work::<RLocks>((*locks).clone(), log));
            }
        }
        load
    }

    fn new(pause: Duration) -> Self {
        Self { stop: Arc::default(), pause, tasks: Vec::new() }
    }

    fn add<F: Future<Output = Log> + Send + 'static>(&mut self, name: &str, work: impl FnOnce(Log) -> F) {
        let log = Log {
            name: name.to_owned(),
            stop: Arc::clone(&self.stop),
            pause: self.pause,
            sections: Vec::new(),
            lost: 0,
            gap: Duration::ZERO,
            last: Instant::now(),
        };
        self.tasks.push(tokio::spawn(work(log)));
    }

    /// Ends the work. No call has failed, and no two sections overlapped.
    pub async fn end(self) -> Work {
        self.stop.store(true, Ordering::Relaxed);
        let (mut all, mut ledger) = (Work::default(), HashMap::<String, Vec<Section>>::new());
        for task in self.tasks {
            let log = soon(task).await.unwrap();
            all.gap = all.gap.max(log.gap);
            all.sections += log.sections.len() + log.lost;
            all.lost += log.lost;
            ledger.entry(log.name).or_default().extend(log.sections);
        }
        for (name, sections) in ledger {
            check(&name, &sections);
        }
        all
    }
}

/// The names of the locks of all types.
pub fn names() -> impl Iterator<Item = String> {
    let kinds = ["fair", "fenced", "multi", "read_write", "red", "rlock"];
    kinds.into_iter().flat_map(|kind| (0..NAMES).map(move |number| format!("{kind}:{number}")))
}

impl Log {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    async fn section<T>(&mut self, guard: LockGuard<T>, is_shared: bool, token: Option<FencingToken>) {
        let start = Instant::now();
        sleep(MS).await; // the section
        let end = Instant::now();
        match guard.unlock().await {
            Ok(()) => self.sections.push(Section { start, end, is_shared, token }),
            // No failure of the call: it says that the section was without protection.
            Err(Error::NotHeld(_)) => self.lost += 1,
            Err(error) => panic!("{}: {error}", self.name),
        }
        self.gap = self.gap.max(self.last.elapsed());
        self.last = Instant::now();
        sleep(self.pause).await;
    }
}

async fn work<F: Fixture>(locks: LockClient, mut log: Log) -> Log {
    let mut lock = F::lock(&locks, &log.name);
    while log.goes_on() {
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("{}: {error}", log.name));
        log.section(guard, F::IS_SHARED, None).await;
    }
    log
}

async fn work_with_tokens(locks: LockClient, mut log: Log) -> Log {
    let mut lock = FencedLocks::lock(&locks, &log.name);
    while log.goes_on() {
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("{}: {error}", log.name));
        let token = guard.token();
        log.section(guard, false, Some(token)).await;
    }
    log
}
