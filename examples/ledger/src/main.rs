//! Does a lock exclude other processes, and what happens if its holder is killed, or cut off from Redis?
//!
//! Worker processes take jobs from one input file, and write the results to one ledger. First they do so without a lock.
//! Observe torn and doubled lines. Then the same workers use the lock, and one of them is killed while it holds the lock,
//! with half a line written. Observe that the others wait for the rest of its lease, and then continue. Observe that the
//! ledger has each job once, whole and in order. At last, a holder is cut off from Redis, once with a plain `SET NX` and once
//! with lockkeeper. Observe that lockkeeper stops its work before the next worker begins.
//!
//! The program succeeds only if the first ledger is spoiled, the second one is right, and two workers worked at the same time
//! with `SET NX` but not with lockkeeper.
//!
//! ```text
//! scripts/demo                                 # starts its own server
//! cargo run -p lockkeeper-demo                 # uses the one at REDIS_URL, or at redis://127.0.0.1/
//! cargo run -p lockkeeper-demo -- 1000         # 1000 jobs
//! cargo run -p lockkeeper-demo -- jobs.txt     # your jobs: each line is an account and an amount
//! ```
//!
//! `worker.rs` uses the lock. The check in `check.rs` shares no code with it.

mod check;
mod cut_off;
mod jobs;
mod parent;
mod run;
mod screen;
mod worker;

use std::env;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const LOCK: &str = "lock:example:ledger";

/// Short, so that the others soon continue after a worker is killed. `parent.rs` tells the user so.
const LEASE: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let outcome = match args.split_first() {
        Some((first, rest)) if first == "worker" => worker::main(rest).await.map(|()| ExitCode::SUCCESS),
        Some((first, rest)) if first == "cut-off" => {
            thread::spawn(worker::end_with_parent);
            cut_off::worker(rest).await.map(|()| ExitCode::SUCCESS)
        }
        _ => parent::main(&args).await,
    };
    outcome.unwrap_or_else(|error| {
        let cause = error.source().map(|cause| format!(": {cause}"));
        eprintln!("ledger: {error}{}", cause.unwrap_or_default());
        ExitCode::FAILURE
    })
}

fn redis_url() -> String {
    env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into())
}
