//! Who computes while a pair is under way, and for how long.

use lockkeeper::LockClient;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::runtime::Runtime;

use crate::bare::{self, Bare};
use crate::flavor::Flavor;
use crate::pairs::{Candidate, Naming, candidate};
use crate::rounds::{Effort, interleave};
use crate::share;
use crate::stats::median;
use crate::table::Table;

const NAMING: Naming = |task| format!("time:{task}");

/// Microseconds of a pair.
struct Times {
    all: f64,
    client: f64,
    scripts: f64,
    server: f64,
}

/// What the server has computed, in microseconds.
struct Server {
    connection: MultiplexedConnection,
    runtime: Runtime,
}

pub fn measure(url: &str, effort: Effort) {
    println!("\n## Where the time of a pair goes\n");
    println!(
        "Microseconds of one task's pair on a free lock, current_thread. Client and server: what they compute, the"
    );
    println!("kernel's part included. The rest is nobody's: the ways between them, and to wake up.\n");
    let candidates = [
        candidate::<Bare>("bare", url, Flavor::CurrentThread, NAMING),
        candidate::<LockClient>("lockkeeper", url, Flavor::CurrentThread, NAMING),
    ];
    let server = Server::new(url);
    let samples =
        interleave(effort.rounds, candidates.len(), |which| run(&candidates[which], &server, effort));
    let mut table = Table::new(["candidate", "pair", "client", "server, in scripts", "server, else", "rest"]);
    for ((name, _), rounds) in candidates.iter().zip(&samples) {
        let part = |part: fn(&Times) -> f64| format!("{:.1}", median(rounds.iter().map(part)));
        table.row([
            (*name).to_owned(),
            part(|times| times.all),
            part(|times| times.client),
            part(|times| times.scripts),
            part(|times| times.server - times.scripts),
            part(|times| times.all - times.client - times.server),
        ]);
    }
    print!("{table}");
}

fn run((_, work): &Candidate, server: &Server, effort: Effort) -> Times {
    let before = server.worked();
    let sample = work(1, effort.slice);
    let after = server.worked();
    let a_pair = |before: f64, after: f64| (after - before) / sample.pairs;
    Times {
        all: 1e6 / sample.rate,
        client: sample.client,
        scripts: a_pair(before.0, after.0),
        server: a_pair(before.1, after.1),
    }
}

impl Server {
    fn new(url: &str) -> Self {
        let runtime = Flavor::CurrentThread.runtime();
        Self { connection: runtime.block_on(bare::connection(url)), runtime }
    }

    /// In scripts, and at all.
    fn worked(&self) -> (f64, f64) {
        let mut connection = self.connection.clone();
        self.runtime.block_on(async {
            let facts: String = bare::run(&mut connection, cmd("INFO").arg("cpu")).await;
            let fact = |name: &str| -> f64 {
                let fact = facts.lines().find_map(|line| line.strip_prefix(name)).expect("a known fact");
                fact.parse().expect("a number")
            };
            let seconds = fact("used_cpu_user:") + fact("used_cpu_sys:");
            (share::worked(&mut connection).await, seconds * 1e6)
        })
    }
}
