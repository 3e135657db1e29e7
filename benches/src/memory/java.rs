//! What Redisson needs for the same.

use std::thread::sleep;
use std::time::Duration;

use super::{HELD, WAITING};
use crate::redisson::Jvm;

/// All of the heap is resident from the beginning, so what else a process needs shows in what is resident. The
/// optimising compiler, which takes and gives back tens of megabytes at any time, is not there.
const OPTIONS: [&str; 4] = ["-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch", "-XX:TieredStopAtLevel=1"];

/// Until what is left to be done is done.
const SETTLE: Duration = Duration::from_secs(1);

/// Nobody waits that long for a lock that is passed on.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes.
struct Weight {
    /// In use, after a collection.
    heap: f64,
    resident: f64,
}

/// Bytes for a lock that is held and renewed, and for a thread that waits with others for one lock. All of it is done
/// once before: what is needed then, and kept, is not for each.
pub fn weigh(url: &str) -> [f64; 2] {
    let jvm = Jvm::start(url, &OPTIONS, &[]);
    let (held, waiting) = ([HELD as u128], [WAITING as u128]);
    jvm.order("hold", "rlock", "first", &held);
    jvm.order("let_go", "rlock", "first", &[]);
    let lock = growth(&jvm, HELD, || jvm.order("hold", "rlock", "lock", &held));
    jvm.order("let_go", "rlock", "lock", &[]);
    jvm.order("wait", "rlock", "first", &waiting);
    jvm.order("serve", "rlock", "first", &[PATIENCE.as_millis()]);
    let waiter = growth(&jvm, WAITING, || jvm.order("wait", "rlock", "one", &waiting));
    [lock.heap, waiter.heap + waiter.resident]
}

/// For each of so many.
fn growth<T>(jvm: &Jvm, count: usize, make: impl FnOnce() -> T) -> Weight {
    let before = now(jvm);
    make();
    let after = now(jvm);
    let each = |after: f64, before: f64| (after - before) / count as f64;
    Weight { heap: each(after.heap, before.heap), resident: each(after.resident, before.resident) }
}

fn now(jvm: &Jvm) -> Weight {
    sleep(SETTLE);
    let weight = jvm.order("weigh", "any", "any", &[]);
    Weight { heap: weight[0] as f64, resident: weight[1] as f64 }
}
