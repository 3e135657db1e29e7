//! Does the lock hold between processes, and what if one of them is killed inside?
//!
//! Several worker processes take jobs from one input file and write the results to one ledger, and only the lock
//! keeps them apart. One of them is killed inside its section, with half a line written. Observe how long the section
//! stays closed after that (for the rest of its lease), and that the check at the end finds each job in the ledger
//! once, whole and in order. Then observe the same without the lock.
//!
//! ```text
//! scripts/demo                                        # with a server of its own
//! cargo run --release --example ledger                # with the one at REDIS_URL, or at redis://127.0.0.1/
//! cargo run --release --example ledger -- 1000        # so many jobs
//! cargo run --release --example ledger -- jobs.txt    # your jobs: in each line an account and an amount
//! cargo run --release --example ledger -- --without-lock
//! ```
//!
//! How the lock is used is in `worker.rs`. The check in `check.rs` shares no code with it.

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

const LOCK: &str = "example:ledger";

/// Short, so that what follows when a worker dies is soon to be seen.
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
