//! Signals to processes.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a signal can take until it has taken effect on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Sends a signal, such as `"STOP"`, and returns when it has taken effect on all threads of the process.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{name} {pid}");
    let start = Instant::now();
    while !has_taken_effect(pid, name) {
        assert!(start.elapsed() < LIMIT, "kill -{name} {pid} has no effect");
        sleep(Duration::from_millis(1));
    }
}

fn has_taken_effect(pid: u32, signal: &str) -> bool {
    let state = match signal {
        "KILL" => "(zombie)",
        "STOP" => "(stopped)",
        _ => return true,
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let status = |path: PathBuf| std::fs::read_to_string(path.join("status")).unwrap_or_default();
    threads.map(|thread| status(thread.path())).all(|status| status.is_empty() || status.contains(state))
}
