//! Pauses of threads where they lock data. A test meets orders of events with them that are rare otherwise.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
}

/// Pauses this thread now and then, from now on. For lockkeeper's own tests.
///
/// ```
/// lockkeeper::pause_this_thread();
/// ```
pub fn pause_this_thread() {
    IS_ON.set(true);
}

pub(crate) fn perhaps() {
    if IS_ON.get() {
        match fastrand::u8(..64) {
            0 => thread::sleep(Duration::from_micros(fastrand::u64(..300))),
            1..8 => thread::yield_now(),
            _ => {}
        }
    }
}
