//! Turns: only so many groups of servers run at the same time in one process.

use std::sync::{Condvar, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Limits how many groups of one kind run at the same time.
#[derive(Debug)]
pub(crate) struct Turns {
    running: Mutex<usize>,
    ended: Condvar,
    at_once: usize,
}

/// Counts as a group that runs, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(&'static Turns);

impl Turns {
    pub(crate) const fn new(at_once: usize) -> Self {
        Self { running: Mutex::new(0), ended: Condvar::new(), at_once }
    }

    /// Waits until another group may run.
    pub(crate) fn wait_for(&'static self) -> Turn {
        let running = self.running.lock().expect("nothing panics while it is locked");
        let mut running = self
            .ended
            .wait_while(running, |running| *running >= self.at_once)
            .expect("nothing panics while it is locked");
        *running += 1;
        Turn(self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Ok(mut running) = self.0.running.lock() {
            *running -= 1;
        }
        self.0.ended.notify_one();
    }
}

/// Waits until a condition holds. Panics after the limit.
pub(crate) fn wait_until(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(10));
    }
}
