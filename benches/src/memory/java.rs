//! The memory that Redisson needs.

use std::thread::sleep;
use std::time::Duration;

use crate::redisson::Jvm;

/// The whole heap is resident from the start, so a growth of resident memory is memory outside the heap. The optimising
/// compiler is off: it allocates and frees tens of megabytes at any time.
const OPTIONS: [&str; 4] = ["-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch", "-XX:TieredStopAtLevel=1"];

/// The time until unfinished work of the process is done.
const SETTLE: Duration = Duration::from_secs(1);

/// Longer than any waiter waits for a lock that is handed on.
const LIMIT: Duration = Duration::from_secs(60);

/// Bytes.
struct Weight {
    /// In use, after a collection.
    heap: f64,
    resident: f64,
}

/// Returns the bytes of a held and renewed lock, and of a thread that waits with others for one lock. Both are done once
/// before: memory that is allocated only once then does not count.
pub fn weigh(url: &str, held: usize, waiting: usize) -> [f64; 2] {
    let jvm = Jvm::start(url, &OPTIONS, &[]);
    let (locks, waiters) = ([held as u128], [waiting as u128]);
    jvm.order("hold", "rlock", "first", &locks);
    jvm.order("let_go", "rlock", "first", &[]);
    let lock = growth(&jvm, held, || jvm.order("hold", "rlock", "lock", &locks));
    jvm.order("let_go", "rlock", "lock", &[]);
    jvm.order("wait", "rlock", "first", &waiters);
    jvm.order("serve", "rlock", "first", &[LIMIT.as_millis()]);
    let waiter = growth(&jvm, waiting, || jvm.order("wait", "rlock", "one", &waiters));
    [lock.heap, waiter.heap + waiter.resident]
}

/// The growth of memory by what `make` makes, for each of so many.
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
