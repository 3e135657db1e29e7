//! A master is added, and slots move to it under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::{LockClient, RLock, Source};
use lockkeeper_testkit::Cluster;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::patient;
use crate::flavor::Flavor;
use crate::report::{Report, Table, number};
use crate::rounds::Effort;
use crate::stats::{Latencies, at_most};

const LOCKS: usize = 32;

/// How many slots move, besides those of the locks.
const OTHERS: u16 = 100;

const REST: Duration = Duration::from_millis(1);

/// The greatest time of a pair while slots move.
const TARGET: f64 = 150.0;

pub fn measure(group: &mut Cluster, effort: Effort, report: &mut Report) {
    let others = if effort.is_quick() { 0 } else { OTHERS };
    report.section(
        "A master is added under load",
        format!(
            "{LOCKS} tasks lock and unlock, each a lock of its own, with a pause of {} ms after each pair. Meanwhile a master\n\
             is added, and the slots of all locks and {others} others move to it one by one. *Redirects* are commands that a\n\
             server refused with `MOVED` or `ASK`.",
            REST.as_millis()
        ),
    );
    let added = group.add_master();
    let runtime = Flavor::MultiThread.runtime();
    let redirects = |group: &Cluster| (group.errors("MOVED") + group.errors("ASK")) as f64;
    let (urls, before) = (group.urls(), redirects(group));
    let stop = Arc::<AtomicBool>::default();
    let working = runtime.block_on(start(urls, &stop));
    let slots: Vec<u16> = (0..LOCKS).map(|task| group.slot_of(&name(task))).chain(0..others).collect();
    let start = Instant::now();
    let mut moved = 0;
    for slot in slots {
        if group.master_of(slot) != added {
            group.move_slot(slot, added);
            moved += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let times = runtime.block_on(async { Latencies::merged(&working.join_all().await) });
    let mut table = Table::new([
        "moved slots",
        "slots/s",
        "pairs",
        "redirects",
        "p50 ms",
        "p99 ms",
        "worst pair ms",
        "target",
    ]);
    let worst = times.micros(1.0) / 1e3;
    table.row([
        moved.into(),
        number(moved as f64 / seconds, 0),
        number(times.count() as f64, 0),
        number(redirects(group) - before, 0),
        number(times.micros(0.5) / 1e3, 2),
        number(times.micros(0.99) / 1e3, 2),
        number(worst, 0),
        at_most(worst, TARGET).into(),
    ]);
    report.table(table);
}

fn name(task: usize) -> String {
    format!("moving:{task}")
}

async fn start(urls: Vec<String>, stop: &Arc<AtomicBool>) -> JoinSet<Latencies> {
    let client = LockClient::connect_with(Source::cluster(urls), patient()).await.expect("a client");
    let mut working = JoinSet::new();
    for task in 0..LOCKS {
        working.spawn(work(client.rlock(name(task)), Arc::clone(stop)));
    }
    working
}

async fn work(mut lock: RLock, stop: Arc<AtomicBool>) -> Latencies {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        lock.lock().await.expect("a lock").unlock().await.expect("the lock was held");
        times.push(start.elapsed());
        sleep(REST).await;
    }
    times.into_iter().collect()
}
