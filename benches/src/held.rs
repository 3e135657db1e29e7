//! What it costs to hold many locks for a long time.

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lockkeeper::{LockClient, LockConfig};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::time::sleep;

use crate::bare;
use crate::clock;
use crate::flavor::Flavor;
use crate::redisson::{self, Jvm};
use crate::rounds::Effort;
use crate::table::Table;

const LOCKS: usize = 10_000;

/// A lease is so many slices: 30 seconds, which is the default, or fewer in a quick run.
const LEASE: u32 = 100;

/// What the server and the client did, in a time.
struct Facts {
    commands: f64,
    received: f64,
    sent: f64,
    server: f64,
    client: f64,
}

/// For how long the locks are taken.
pub fn lease(effort: Effort) -> Duration {
    effort.longer(LEASE).slice
}

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort) {
    let lease = lease(effort);
    println!("\n## {LOCKS} locks that are held\n");
    println!(
        "Per second, over a time as long as the lease of {} s. Each is renewed three times in it.",
        lease.as_secs()
    );
    println!("CPU is of one core.\n");
    let runtime = Flavor::CurrentThread.runtime();
    let candidates = [
        ("lockkeeper", runtime.block_on(hold(url, lease))),
        (redisson::NAME, runtime.block_on(hold_in_java(url, jvm, lease))),
    ];
    let mut table = Table::new([
        "candidate",
        "commands",
        "bytes to the server",
        "bytes back",
        "server CPU",
        "client CPU",
    ]);
    for (name, facts) in candidates {
        table.row([
            name.to_owned(),
            format!("{:.1}", facts.commands),
            format!("{:.0}", facts.received),
            format!("{:.0}", facts.sent),
            format!("{:.2} %", facts.server * 100.0),
            format!("{:.2} %", facts.client * 100.0),
        ]);
    }
    print!("{table}");
}

async fn hold(url: &str, lease: Duration) -> Facts {
    let config = LockConfig::builder().watchdog_lease(lease).build().expect("a valid lease");
    let client = LockClient::connect_with(url, config).await.expect("a client");
    let mut locks: Vec<_> = (0..LOCKS).map(|number| client.rlock(format!("held:{number}"))).collect();
    let guards = try_join_all(locks.iter_mut().map(|lock| lock.lock())).await.expect("free locks");
    let facts = watch(url, lease, clock::computed).await;
    try_join_all(guards.into_iter().map(|guard| guard.unlock()))
        .await
        .expect("locks that were held all the time");
    facts
}

async fn hold_in_java(url: &str, jvm: &Jvm, lease: Duration) -> Facts {
    jvm.order("hold", "rlock", "held", &[LOCKS as u128]);
    let facts = watch(url, lease, || jvm.computed()).await;
    jvm.order("let_go", "rlock", "held", &[]);
    facts
}

async fn watch(url: &str, time: Duration, computed: impl Fn() -> u64) -> Facts {
    let mut server = bare::connection(url).await;
    let (start, before) = (Instant::now(), read(&mut server, computed()).await);
    sleep(time).await;
    let (time, after) = (start.elapsed().as_secs_f64(), read(&mut server, computed()).await);
    Facts {
        commands: (after.commands - before.commands) / time,
        received: (after.received - before.received) / time,
        sent: (after.sent - before.sent) / time,
        server: (after.server - before.server) / time,
        client: (after.client - before.client) / time,
    }
}

async fn read(server: &mut MultiplexedConnection, computed: u64) -> Facts {
    let facts: String = bare::run(server, cmd("INFO").arg("everything")).await;
    let fact = |name: &str| -> f64 {
        let value = facts.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        value.split(',').next().and_then(|value| value.parse().ok()).expect("a number")
    };
    Facts {
        commands: fact("cmdstat_evalsha:calls=") + fact("cmdstat_eval:calls="),
        received: fact("total_net_input_bytes:"),
        sent: fact("total_net_output_bytes:"),
        server: fact("used_cpu_user:") + fact("used_cpu_sys:"),
        client: computed as f64 / 1e9,
    }
}
