//! Clocks that the standard library does not tell.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of a clock that all processes of a host share.
pub fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds that this process has computed, all threads together.
pub fn computed() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
