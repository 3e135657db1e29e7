//! What do callers notice when a master is killed, or when slots of a cluster move?
//!
//! Workers of two clients lock and unlock, one guard is held all the time, and one waiter waits for it. Meanwhile the servers
//! change: `sentinel.rs` kills the master of a group that sentinels watch. `cluster.rs` kills one of the masters of a cluster, and
//! then moves slots to other masters. Observe that no call fails, that the work goes on as soon as another server is the master,
//! and that the guard is still held there. At the end, a ledger of all sections shows that no two sections of one lock overlapped.
//!
//! ```text
//! scripts/demo sentinel
//! scripts/demo cluster
//! ```

mod cluster;
mod held;
mod sentinel;
mod work;

use std::env;
use std::process::ExitCode;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match env::args().nth(1).as_deref() {
        None | Some("sentinel") => sentinel::run().await,
        Some("cluster") => cluster::run().await,
        Some(other) => Err(format!("give `sentinel` or `cluster`, and not `{other}`").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failover: {error}");
            ExitCode::FAILURE
        }
    }
}
