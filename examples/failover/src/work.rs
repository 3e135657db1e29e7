//! Workers that lock and unlock, and the ledger of their sections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::{Error, LockClient};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep};

use crate::Result;

/// How long a section takes, and a worker rests after it.
const SECTION: Duration = Duration::from_millis(1);
const REST: Duration = Duration::from_millis(5);

/// Replies that were under way when the servers changed have arrived by then.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// So many further sections of a lock are a sign that the work goes on.
const ENOUGH: usize = 5;

/// Workers of several clients, which lock and unlock the same locks.
pub(crate) struct Work {
    ledger: Arc<Ledger>,
    workers: Vec<JoinHandle<lockkeeper::Result<()>>>,
}

#[derive(Default)]
struct Ledger {
    stop: AtomicBool,
    /// The sections of each lock at whose end the lock was still held.
    sections: Mutex<BTreeMap<String, Vec<Section>>>,
    /// Sections that were told that a new master lacks their lock. They were without protection.
    lost: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Section {
    start: Instant,
    end: Instant,
}

impl Work {
    /// Starts a worker of each client for each lock.
    pub(crate) fn start(clients: &[LockClient], names: &[String]) -> Self {
        let ledger = Arc::<Ledger>::default();
        let pairs =
            clients.iter().flat_map(|locks| names.iter().map(move |name| (locks.clone(), name.clone())));
        let workers =
            pairs.map(|(locks, name)| tokio::spawn(work(locks, name, Arc::clone(&ledger)))).collect();
        Self { ledger, workers }
    }

    /// Waits until each of these locks had several sections that began after this time, or a call failed.
    pub(crate) async fn goes_on(&self, names: &[String], since: Instant) {
        let mut look = interval(Duration::from_millis(5));
        let counts =
            |name: &String| self.ledger.starts(name).filter(|start| *start > since + UNDER_WAY).count();
        while !self.workers.iter().any(JoinHandle::is_finished)
            && names.iter().any(|name| counts(name) < ENOUGH)
        {
            look.tick().await;
        }
    }

    /// The longest time between the beginnings of two sections of one of these locks, since then.
    pub(crate) fn longest_pause(&self, names: &[String], since: Instant) -> Duration {
        let pause_of = |name: &String| {
            let starts: Vec<_> = self.ledger.starts(name).collect();
            starts.windows(2).filter(|pair| pair[1] > since).map(|pair| pair[1] - pair[0]).max()
        };
        names.iter().filter_map(pause_of).max().unwrap_or_default()
    }

    /// Ends the work, and checks that no call failed, and that no two sections of one lock overlapped.
    pub(crate) async fn end(self) -> Result<()> {
        self.ledger.stop.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await??; // an error that a caller got
        }
        let lost = self.ledger.lost.load(Ordering::Relaxed);
        let (all, overlaps) = self.ledger.check();
        println!(
            "the ledger: {all} sections, {overlaps} that overlap another one of the same lock\n\
             no call failed; {lost} sections were told that they lost their lock"
        );
        if overlaps == 0 { Ok(()) } else { Err("two owners were in one section".into()) }
    }
}

impl Ledger {
    /// The beginnings of the sections of a lock, in order.
    fn starts(&self, name: &str) -> impl Iterator<Item = Instant> {
        let sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        let mut starts: Vec<_> =
            sections.get(name).into_iter().flatten().map(|section| section.start).collect();
        starts.sort_unstable();
        starts.into_iter()
    }

    fn add(&self, name: &str, section: Section) {
        let mut sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        sections.entry(name.to_owned()).or_default().push(section);
    }

    /// Counts the sections, and those that began before another one of the same lock had ended.
    fn check(&self) -> (usize, usize) {
        let mut sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut all, mut overlaps) = (0, 0);
        for sections in sections.values_mut() {
            sections.sort_unstable_by_key(|section| section.start);
            all += sections.len();
            overlaps += sections.windows(2).filter(|pair| pair[1].start < pair[0].end).count();
        }
        (all, overlaps)
    }
}

async fn work(locks: LockClient, name: String, ledger: Arc<Ledger>) -> lockkeeper::Result<()> {
    let mut lock = locks.rlock(&name);
    while !ledger.stop.load(Ordering::Relaxed) {
        let guard = lock.lock().await?;
        let start = Instant::now();
        sleep(SECTION).await;
        let end = Instant::now();
        match guard.unlock().await {
            Ok(()) => ledger.add(&name, Section { start, end }),
            Err(Error::NotHeld(_)) => _ = ledger.lost.fetch_add(1, Ordering::Relaxed),
            Err(error) => return Err(error),
        }
        sleep(REST).await;
    }
    Ok(())
}
