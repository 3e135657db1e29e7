//! The CPU time of client and server while a lock is acquired and released.

use lockkeeper::LockClient;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use crate::bare::Bare;
use crate::connection::connect;
use crate::flavor::Flavor;
use crate::info::{Info, script_micros};
use crate::pairs::{Candidate, Naming, candidate};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::median;

const FLAVOR: Flavor = Flavor::CurrentThread;
const NAMING: Naming = |task| format!("time:{task}");

/// Microseconds of a pair.
struct Times {
    all: f64,
    client: f64,
    scripts: f64,
    server: f64,
}

/// A connection that asks the server for its CPU time.
struct Server {
    connection: MultiplexedConnection,
    runtime: Runtime,
}

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    report.section(
        format!("Time of one lock and unlock, {}", FLAVOR.name()),
        "Microseconds of one task's lock and unlock on a free lock. *Client* and *server* are CPU time, with the part of the\n\
         kernel. In the rest neither computes: messages are on their way, and processes wake up.",
    );
    let candidates = [
        candidate::<Bare>("bare", url, FLAVOR, NAMING),
        candidate::<LockClient>("lockkeeper", url, FLAVOR, NAMING),
    ];
    let server = Server::new(url);
    let samples =
        interleave(effort.rounds, candidates.len(), |which| run(&candidates[which], &server, effort));
    let mut table = Table::new([
        "candidate",
        "pair µs",
        "client µs",
        "server, scripts µs",
        "server, other µs",
        "rest µs",
    ]);
    for ((name, _), rounds) in candidates.iter().zip(&samples) {
        let part = |part: fn(&Times) -> f64| number(median(rounds.iter().map(part)), 1);
        table.row([
            (*name).into(),
            part(|times| times.all),
            part(|times| times.client),
            part(|times| times.scripts),
            part(|times| times.server - times.scripts),
            part(|times| times.all - times.client - times.server),
        ]);
    }
    report.table(table);
}

fn run((_, work): &Candidate, server: &Server, effort: Effort) -> Times {
    let before = server.cpu_time();
    let sample = work(1, effort.slice);
    let after = server.cpu_time();
    let per_pair = |before: f64, after: f64| (after - before) / sample.pairs;
    Times {
        all: 1e6 / sample.rate,
        client: sample.client,
        scripts: per_pair(before.0, after.0),
        server: per_pair(before.1, after.1),
    }
}

impl Server {
    fn new(url: &str) -> Self {
        let runtime = FLAVOR.runtime();
        Self { connection: runtime.block_on(connect(url)), runtime }
    }

    /// Microseconds in scripts, and in all.
    fn cpu_time(&self) -> (f64, f64) {
        let mut connection = self.connection.clone();
        self.runtime.block_on(async {
            let info = Info::read(&mut connection, "cpu").await;
            (script_micros(&mut connection).await, info.cpu_seconds() * 1e6)
        })
    }
}
