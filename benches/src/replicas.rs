//! `sync_replicas`: acquires that wait until a replica has the hold.

use std::thread::sleep;
use std::time::{Duration, Instant};

use lockkeeper::LockClient;
use lockkeeper_testkit::Server;

use crate::flavor::Flavor;
use crate::pairs::{Naming, candidate};
use crate::peer::Synced;
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};

const FLAVOR: Flavor = Flavor::CurrentThread;
const NAMING: Naming = |task| format!("replicas:{task}");

pub fn measure(effort: Effort, report: &mut Report) {
    let (master, replica) = (Server::with(&["--repl-diskless-sync-delay", "0"]), Server::start());
    replica.run::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let start = Instant::now();
    while !master.run::<String>(&["INFO", "replication"]).contains("state=online") {
        assert!(start.elapsed() < Duration::from_secs(20), "the replica does not follow");
        sleep(Duration::from_millis(20));
    }
    let candidates = [
        candidate::<LockClient>("sync_replicas = 0", &master.url(), FLAVOR, NAMING),
        candidate::<Synced>("sync_replicas = 1", &master.url(), FLAVOR, NAMING),
    ];
    let mut table =
        Table::new(["candidate", "tasks", "pairs/s", "ratio", "p50 µs", "p99 µs"]).plot_ratios("ratio", 2);
    for tasks in [1, 16] {
        let samples =
            interleave(effort.rounds, candidates.len(), |which| candidates[which].1(tasks, effort.slice));
        for ((name, _), rounds) in candidates.iter().zip(&samples) {
            table.row([
                (*name).into(),
                tasks.into(),
                number(median(rounds.iter().map(|sample| sample.rate)), 0),
                Ratio::new(rounds, &samples[0], |sample| sample.rate).into(),
                number(median(rounds.iter().map(|sample| sample.p50)), 0),
                number(median(rounds.iter().map(|sample| sample.p99)), 0),
            ]);
        }
    }
    report.section(
        format!("A server with a replica, {}", FLAVOR.name()),
        "Lock and unlock. With `sync_replicas = 1`, each acquire waits until the replica has the hold. Master, replica and\n\
         client share the cores of one machine.",
    );
    report.table(table);
}
