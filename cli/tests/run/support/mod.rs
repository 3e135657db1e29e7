//! What all of these tests need.

mod contender;
mod log;
mod network;
mod processes;
mod scene;
mod worker;

use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) use contender::{ALONE, Contender};
pub(crate) use log::now;
pub(crate) use network::Network;
pub(crate) use processes::state_of;
pub(crate) use scene::{LEASE, Scene, json, problem, text};

/// How long a test waits for what has to happen.
const LIMIT: Duration = Duration::from_secs(20);

/// Waits for a condition.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        let waited = start.elapsed();
        assert!(waited < LIMIT, "in vain: {what}");
        // What takes longer is looked at less often.
        sleep((waited / 20).clamp(Duration::from_millis(2), Duration::from_millis(25)));
    }
}
