//! What Redisson needs for the same.
//!
//! All of the heap is resident from the beginning, and its garbage is collected before it is weighed. A waiter needs
//! a stack besides, which adds to what is resident. So do the compilers, a few megabytes now and then: next to the
//! stacks of a thousand threads that is little, for locks it would be more than all else.

use std::thread::sleep;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::runtime::Runtime;

use super::{Cost, HELD, WAITING, used};
use crate::bare;
use crate::flavor::Flavor;
use crate::redisson::Jvm;

const OPTIONS: [&str; 3] = ["-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch"];

/// Until the server has made the buffers of its connections small again.
const SETTLE: Duration = Duration::from_secs(3);

/// Nobody waits that long for a lock that is passed on.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of a lock that is held and renewed, and of a thread that waits with others for one lock. All of it is done once
/// before: what is needed then, and kept, is not for each.
pub fn weigh(url: &str) -> [Cost; 2] {
    let scale = Scale::new(url);
    let (held, waiting) = ([HELD as u128], [WAITING as u128]);
    let jvm = &scale.jvm;
    jvm.order("hold", "rlock", "first", &held);
    jvm.order("let_go", "rlock", "first", &[]);
    let lock = scale.growth(HELD, || jvm.order("hold", "rlock", "lock", &held));
    let lock = Cost { client: lock.heap, server: lock.server };
    jvm.order("let_go", "rlock", "lock", &[]);
    jvm.order("wait", "rlock", "first", &waiting);
    jvm.order("serve", "rlock", "first", &[PATIENCE.as_millis()]);
    let waiter = scale.growth(WAITING, || jvm.order("wait", "rlock", "one", &waiting));
    let waiter = Cost { client: waiter.heap + waiter.resident, server: waiter.server };
    [lock, waiter]
}

/// Bytes.
struct Growth {
    heap: f64,
    resident: f64,
    server: f64,
}

struct Scale {
    jvm: Jvm,
    server: MultiplexedConnection,
    runtime: Runtime,
}

impl Scale {
    fn new(url: &str) -> Self {
        let runtime = Flavor::CurrentThread.runtime();
        let mut server = runtime.block_on(bare::connection(url));
        let () = runtime.block_on(bare::run(&mut server, &cmd("FLUSHALL")));
        Self { jvm: Jvm::start(url, &OPTIONS, &[]), server, runtime }
    }

    /// For each of so many.
    fn growth<T>(&self, count: usize, make: impl FnOnce() -> T) -> Growth {
        let before = self.read();
        make();
        let after = self.read();
        let [heap, resident, server] = [0, 1, 2].map(|which| (after[which] - before[which]) / count as f64);
        Growth { heap, resident, server }
    }

    /// What the process and the server need now.
    fn read(&self) -> [f64; 3] {
        sleep(SETTLE);
        let client = self.jvm.order("weigh", "any", "any", &[]);
        [client[0] as f64, client[1] as f64, self.runtime.block_on(used(&mut self.server.clone()))]
    }
}
