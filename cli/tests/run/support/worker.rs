//! The command that `lockkeeper run` runs: this test program again. It writes to the log until it is told to stop.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::LIMIT;
use super::log::Log;

const WORKER: &str = "LOCKKEEPER_WORKER";
const LOG: &str = "LOCKKEEPER_WORKER_LOG";
const WHO: &str = "LOCKKEEPER_WORKER_NAME";

/// The shell command that becomes the worker.
pub(super) const SHELL: &str =
    r#""$LOCKKEEPER_WORKER" --exact support::worker::worker --nocapture --test-threads=2 >/dev/null"#;

pub(super) fn configure(command: &mut Command, log: &Path, who: &str) {
    command.env(WORKER, env::current_exe().expect("this program")).env(LOG, log).env(WHO, who);
}

pub(super) fn stop_file(log: &Path, who: &str) -> PathBuf {
    log.with_extension(format!("stop-{who}"))
}

/// Not a test, but the main function of a worker.
#[test]
fn worker() {
    let (Some(path), Ok(who)) = (env::var_os(LOG).map(PathBuf::from), env::var(WHO)) else { return };
    let (log, stop, start) = (Log::new(path.clone()), stop_file(&path, &who), Instant::now());
    while !stop.exists() && start.elapsed() < LIMIT {
        log.alive(&who);
        sleep(Duration::from_millis(2));
    }
}
