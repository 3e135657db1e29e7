//! The runtimes of tokio, and clocks that the standard library does not have.

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

pub fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub fn many_threads() -> Runtime {
    Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

/// Nanoseconds of a clock that all processes of a machine share.
pub fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that all threads of this process have used.
pub fn cpu_time() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
