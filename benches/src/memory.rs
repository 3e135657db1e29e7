//! The memory of a held lock and of a waiting task: in the client's process and on the server.
//!
//! Each number is the growth of the resident memory of a process that measures nothing else. So it includes the overhead of
//! the allocator, and the handle, guard and task that the application keeps.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use lockkeeper::{LockClient, LockGuard};
use lockkeeper_testkit::Server;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::bare::Bare;
use crate::connection::{Info, connect, run};
use crate::peer::{Fair, Lock, Peer};
use crate::redisson::{self, Jvm};
use crate::report::{Report, Table, number};
use crate::rounds::Effort;
use crate::runtime::one_thread;
use crate::sides;
use crate::stats::median;

/// The word by which this program starts a process to be measured.
pub const SIDE: &str = "memory-side";

const HELD: usize = 10_000;
const WAITING: usize = 1_000;

/// How many waiters start at the same time. A waiter first attempts, and the memory for that does not count.
const STEP: usize = 10;
const STEP_TIME: Duration = Duration::from_millis(2);

/// The time until all started tasks wait.
const SETTLE: Duration = Duration::from_millis(300);

const CASES: [(&str, &str, usize); 4] = [
    ("held", "held and renewed lock", HELD),
    ("waiting-one", "waiter, all for one lock", WAITING),
    ("waiting-many", "waiter, each for another lock", WAITING),
    ("waiting-fair", "waiter, a hundred for each fair lock", WAITING),
];

/// Bytes per lock or waiter.
struct Cost {
    client: f64,
    server: f64,
}

pub fn measure(effort: Effort, report: &mut Report) {
    // No other client is connected to this server: connections use memory, and free it at any later time.
    let server = Server::start();
    let url = &server.url();
    let mut table = Table::new(["what", "number", "client bytes", "server bytes"]);
    let rounds = 0..effort.rounds.min(3);
    for (case, what, count) in CASES {
        let costs: Vec<Cost> = rounds.clone().map(|_| ask(url, case)).collect();
        let bytes = |of: fn(&Cost) -> f64| number(median(costs.iter().map(of)), 0);
        table.row([what.to_owned(), count.to_string(), bytes(|cost| cost.client), bytes(|cost| cost.server)]);
    }
    let (held, waiting): (Vec<f64>, Vec<f64>) = rounds.map(|_| weigh_java(url, HELD, WAITING).into()).unzip();
    for ((_, what, count), bytes) in CASES.iter().zip([held, waiting]) {
        let what = format!("{}: {what}", redisson::NAME);
        table.row([what, count.to_string(), number(median(bytes), 0), String::new()]);
    }
    report.section(
        "Memory",
        "The growth per lock or waiter: of the client's resident memory, and of the server's `used_memory`. For Redisson it\n\
         is the growth of the used heap after a garbage collection, and for a waiter also of the memory outside the heap,\n\
         where the stack of its thread is. The server keeps the same for Redisson as for lockkeeper.",
        &table,
    );
}

fn ask(url: &str, case: &str) -> Cost {
    let numbers = sides::numbers(sides::start(&[SIDE, url, case]));
    Cost { client: numbers[0], server: numbers[1] }
}

/// The process to be measured. It prints its result.
pub fn side(url: &str, case: &str) {
    let cost = one_thread().block_on(async {
        match case {
            "held" => held(url).await,
            "waiting-one" => waiting::<LockClient>(url, |_| "one".to_owned()).await,
            "waiting-fair" => waiting::<Fair>(url, |number| format!("lock:{}", number / 100)).await,
            _ => waiting::<LockClient>(url, |number| format!("lock:{number}")).await,
        }
    });
    println!("{} {}", cost.client, cost.server);
}

async fn held(url: &str) -> Cost {
    let mut scale = Scale::new(url).await;
    let client = LockClient::connect(url).await.expect("a client");
    let _first = hold(&client, "first", 1).await;
    scale.reset().await;
    let _guards = hold(&client, "lock", HELD).await;
    scale.weigh(HELD).await
}

async fn hold(client: &LockClient, name: &str, count: usize) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(client.rlock(format!("{name}:{number}")).lock().await.expect("a free lock"));
    }
    guards
}

async fn waiting<P: Peer>(url: &str, name: fn(usize) -> String) -> Cost {
    let mut scale = Scale::new(url).await;
    let client = P::connect(url).await;
    let names: HashSet<String> = (0..WAITING).map(name).collect();
    hold_by_others(url, names.iter().map(String::as_str).chain(["first"])).await;
    let mut waiters = JoinSet::new();
    wait(&mut waiters, &client, "first");
    sleep(SETTLE).await;
    scale.reset().await;
    for step in 0..WAITING / STEP {
        (0..STEP).for_each(|number| wait(&mut waiters, &client, &name(step * STEP + number)));
        sleep(STEP_TIME).await;
    }
    sleep(SETTLE).await;
    let cost = scale.weigh(WAITING).await;
    assert!(waiters.try_join_next().is_none(), "a waiter acquired a lock that another client holds");
    cost
}

/// Another client holds these locks, longer than this process waits.
async fn hold_by_others(url: &str, names: impl Iterator<Item = &str>) {
    let others = Bare::connect(url).await;
    for name in names {
        others.lock(name).lock().await;
    }
}

fn wait<P: Peer>(waiters: &mut JoinSet<<P::Lock as Lock>::Guard>, client: &P, name: &str) {
    let mut lock = client.lock(name);
    waiters.spawn(async move { lock.lock().await });
}

/// Measures the memory of this process and of the server.
struct Scale {
    server: MultiplexedConnection,
    before: (f64, f64),
}

impl Scale {
    async fn new(url: &str) -> Self {
        let mut server = connect(url).await;
        let () = run(&mut server, &cmd("FLUSHALL")).await;
        Self { server, before: (0.0, 0.0) }
    }

    /// Memory that is in use now does not count.
    async fn reset(&mut self) {
        self.before = self.read().await;
    }

    async fn weigh(&mut self, count: usize) -> Cost {
        let (client, server) = self.read().await;
        let each = |now: f64, before: f64| (now - before) / count as f64;
        Cost { client: each(client, self.before.0), server: each(server, self.before.1) }
    }

    async fn read(&mut self) -> (f64, f64) {
        (resident(), Info::read(&mut self.server, "memory").await.number("used_memory"))
    }
}

/// Bytes of this process that are in memory.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident memory");
    let kilobytes: f64 = line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number");
    kilobytes * 1_024.0
}

// --- Redisson ----------------------------------------------------------------------------------------------------

/// The whole heap is resident from the start, so a growth of resident memory is memory outside the heap. The optimising
/// compiler is off: it allocates and frees tens of megabytes at any time.
const JAVA_OPTIONS: [&str; 4] = ["-Xms1g", "-Xmx1g", "-XX:+AlwaysPreTouch", "-XX:TieredStopAtLevel=1"];

/// The time until unfinished work of the process is done.
const JAVA_SETTLE: Duration = Duration::from_secs(1);

/// Longer than any waiter waits for a lock that is handed on.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the bytes of a held and renewed lock, and of a thread that waits with others for one lock. Both are done once
/// before: memory that is allocated only once then does not count.
fn weigh_java(url: &str, held: usize, waiting: usize) -> [f64; 2] {
    let jvm = Jvm::start(url, &JAVA_OPTIONS);
    let (locks, waiters) = ([held as u128], [waiting as u128]);
    jvm.order("hold", "rlock", "first", &locks);
    jvm.order("let_go", "rlock", "first", &[]);
    let lock = growth(&jvm, held, || jvm.order("hold", "rlock", "lock", &locks));
    jvm.order("let_go", "rlock", "lock", &[]);
    jvm.order("wait", "rlock", "first", &waiters);
    jvm.order("serve", "rlock", "first", &[LIMIT.as_millis()]);
    let waiter = growth(&jvm, waiting, || jvm.order("wait", "rlock", "one", &waiters));
    [lock[0], waiter[0] + waiter[1]]
}

/// The growth of memory by what `make` makes, for each of so many: the heap in use after a collection, and resident memory.
fn growth<T>(jvm: &Jvm, count: usize, make: impl FnOnce() -> T) -> [f64; 2] {
    let weigh = || {
        std::thread::sleep(JAVA_SETTLE);
        jvm.order("weigh", "any", "any", &[])
    };
    let before = weigh();
    make();
    let after = weigh();
    [0, 1].map(|at| (after[at] as f64 - before[at] as f64) / count as f64)
}
