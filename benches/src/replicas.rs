//! `sync_replicas`: acquires that wait until a replica has the hold.

use std::thread::sleep;
use std::time::{Duration, Instant};

use lockkeeper::LockClient;
use lockkeeper_testkit::Server;

use crate::pairs::{Naming, candidate, table};
use crate::peer::Synced;
use crate::report::Report;
use crate::rounds::Effort;

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
        candidate::<LockClient>("sync_replicas = 0", &master.url(), NAMING),
        candidate::<Synced>("sync_replicas = 1", &master.url(), NAMING),
    ];
    report.section(
        "A server with a replica",
        "Lock and unlock. With `sync_replicas = 1`, each acquire waits until the replica has the hold. Master, replica and\n\
         client share the cores of one machine.",
        &table(&candidates, &[1, 16], effort, |_, _| None),
    );
}
