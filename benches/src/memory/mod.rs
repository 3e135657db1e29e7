//! What a lock that is held costs, and a task that waits for one: in the client's process and on the server.
//!
//! Each number comes from a process of its own, as the growth of its resident memory. So it includes what the
//! allocator adds, and the handle, guard and task that the application keeps.

mod java;

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use lockkeeper::{LockClient, LockGuard};
use lockkeeper_testkit::Server;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::bare::{self, Bare};
use crate::flavor::Flavor;
use crate::peer::{Fair, Lock, Peer};
use crate::redisson;
use crate::rounds::Effort;
use crate::sides;
use crate::stats::median;
use crate::table::Table;

/// The word by which this program starts a process to be measured.
pub const SIDE: &str = "memory-side";

const HELD: usize = 10_000;
const WAITING: usize = 1_000;

/// Waiters are started so many at a time. Each begins with an attempt, and what that needs is not what waiting needs.
const STEP: usize = 10;
const STEP_TIME: Duration = Duration::from_millis(2);

/// Until everybody who was started waits.
const SETTLE: Duration = Duration::from_millis(300);

const CASES: [(&str, &str, usize); 4] = [
    ("held", "lock that is held and renewed", HELD),
    ("waiting-one", "waiter, all for one lock", WAITING),
    ("waiting-many", "waiter, each for another lock", WAITING),
    ("waiting-fair", "waiter, each hundred for one fair lock", WAITING),
];

/// Bytes for each of what was made.
struct Cost {
    client: f64,
    server: f64,
}

pub fn measure(effort: Effort) {
    println!("\n## Memory\n");
    println!(
        "Growth of the client's resident memory, and of the server's `used_memory`, for each. Redisson's is"
    );
    println!(
        "what is in use on the heap after a collection; for a waiter, with the stack of its thread. What the"
    );
    println!("server keeps for it is the same, and is lost in the buffers of its connections.\n");
    // Nobody else is connected to it: that takes memory, and gives it back at some later time.
    let server = Server::start();
    let url = &server.url();
    let mut table = Table::new(["what", "how many", "client bytes", "server bytes"]);
    let rounds = 0..effort.rounds.min(3);
    for (case, what, count) in CASES {
        let costs: Vec<Cost> = rounds.clone().map(|_| ask(url, case)).collect();
        let bytes = |of: fn(&Cost) -> f64| format!("{:.0}", median(costs.iter().map(of)));
        table.row([what.to_owned(), count.to_string(), bytes(|cost| cost.client), bytes(|cost| cost.server)]);
    }
    let (held, waiting): (Vec<f64>, Vec<f64>) = rounds.map(|_| java::weigh(url).into()).unzip();
    for ((_, what, count), bytes) in CASES.iter().zip([held, waiting]) {
        let what = format!("{}: {what}", redisson::NAME);
        table.row([what, count.to_string(), format!("{:.0}", median(bytes)), String::new()]);
    }
    print!("{table}");
}

fn ask(url: &str, case: &str) -> Cost {
    let text = sides::output(sides::start(&[SIDE, url, case]));
    let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
    let mut next = || numbers.next().expect("two numbers");
    Cost { client: next(), server: next() }
}

/// One process: prints what it measured.
pub fn side(url: &str, case: &str) {
    let cost = Flavor::CurrentThread.runtime().block_on(async {
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
    scale.tare().await;
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
    take(url, names.iter().map(String::as_str).chain(["first"])).await;
    let mut waiters = JoinSet::new();
    wait(&mut waiters, &client, "first");
    sleep(SETTLE).await;
    scale.tare().await;
    for step in 0..WAITING / STEP {
        (0..STEP).for_each(|number| wait(&mut waiters, &client, &name(step * STEP + number)));
        sleep(STEP_TIME).await;
    }
    sleep(SETTLE).await;
    let cost = scale.weigh(WAITING).await;
    assert!(waiters.try_join_next().is_none(), "nobody gets a lock that somebody else holds");
    cost
}

/// Others hold these, longer than anybody here waits.
async fn take(url: &str, names: impl Iterator<Item = &str>) {
    let others = Bare::connect(url).await;
    for name in names {
        others.lock(name).lock().await;
    }
}

fn wait<P: Peer>(waiters: &mut JoinSet<<P::Lock as Lock>::Guard>, client: &P, name: &str) {
    let mut lock = client.lock(name);
    waiters.spawn(async move { lock.lock().await });
}

/// Weighs this process and the server.
struct Scale {
    server: MultiplexedConnection,
    before: (f64, f64),
}

impl Scale {
    async fn new(url: &str) -> Self {
        let mut server = bare::connection(url).await;
        let () = bare::run(&mut server, &cmd("FLUSHALL")).await;
        Self { server, before: (0.0, 0.0) }
    }

    /// What is there now does not count.
    async fn tare(&mut self) {
        self.before = self.read().await;
    }

    async fn weigh(&mut self, count: usize) -> Cost {
        let (client, server) = self.read().await;
        let each = |now: f64, before: f64| (now - before) / count as f64;
        Cost { client: each(client, self.before.0), server: each(server, self.before.1) }
    }

    async fn read(&mut self) -> (f64, f64) {
        (resident(), used(&mut self.server).await)
    }
}

/// Bytes that the server uses.
async fn used(server: &mut MultiplexedConnection) -> f64 {
    let facts: String = bare::run(server, cmd("INFO").arg("memory")).await;
    number_after(&facts, "used_memory:")
}

/// Bytes of this process that are in memory.
fn resident() -> f64 {
    let facts = fs::read_to_string("/proc/self/status").expect("a Linux system");
    number_after(&facts, "VmRSS:") * 1_024.0
}

fn number_after(facts: &str, name: &str) -> f64 {
    let fact = facts.lines().find_map(|line| line.strip_prefix(name)).expect("a known fact");
    fact.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}
