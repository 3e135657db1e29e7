//! Does a lock exclude other processes, and what happens if its holder is killed?
//!
//! Worker processes take jobs from one input file, and write the results to one ledger. Only the lock keeps them apart.
//! One worker is killed while it holds the lock, with half a line written. Observe that the others wait for the rest of
//! its lease, and then continue. Observe that the check at the end finds each job in the ledger once, whole and in
//! order. Then observe the same without the lock.
//!
//! ```text
//! scripts/demo                                        # starts its own server
//! cargo run --release --example ledger                # uses the one at REDIS_URL, or at redis://127.0.0.1/
//! cargo run --release --example ledger -- 1000        # 1000 jobs
//! cargo run --release --example ledger -- jobs.txt    # your jobs: each line is an account and an amount
//! cargo run --release --example ledger -- --without-lock
//! ```
//!
//! `worker.rs` uses the lock. The check in `check.rs` shares no code with it.

mod check;
mod jobs;
mod parent;
mod report;
mod run;
mod screen;
mod worker;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const LOCK: &str = "lock:example:ledger";

/// Short, so that the others soon continue after a worker is killed.
const LEASE: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let outcome = match args.split_first() {
        Some((first, rest)) if first == "worker" => worker::main(rest).await.map(|()| ExitCode::SUCCESS),
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
