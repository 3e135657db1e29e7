//! The cost of many locks that are held for a long time.

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lockkeeper::{LockClient, LockConfig};
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::clock;
use crate::connection::connect;
use crate::flavor::Flavor;
use crate::info::Info;
use crate::redisson::{self, Jvm};
use crate::report::{Report, Table, number, percent};
use crate::rounds::Effort;

/// How many locks are held. Fewer in a quick run: its leases are short, and its programs slow.
fn locks(effort: Effort) -> usize {
    if effort.is_quick() { 1_000 } else { 10_000 }
}

/// What the server and the client did so far; or per second.
struct Work {
    commands: f64,
    received: f64,
    sent: f64,
    /// Seconds of CPU time.
    server: f64,
    client: f64,
}

pub fn measure(url: &str, jvm: &Rc<Jvm>, effort: Effort, report: &mut Report) {
    let (lease, locks) = (effort.lease(), locks(effort));
    report.section(
        format!("{locks} held locks"),
        format!(
            "The work per second, over one lease of {} s. Each lock is renewed three times in it. 100 % CPU is one core.",
            lease.as_secs()
        ),
    );
    let runtime = Flavor::CurrentThread.runtime();
    let candidates = [
        ("lockkeeper", runtime.block_on(hold(url, lease, locks))),
        (redisson::NAME, runtime.block_on(hold_in_java(url, jvm, lease, locks))),
    ];
    let mut table = Table::new([
        "candidate",
        "commands",
        "bytes to the server",
        "bytes back",
        "server CPU",
        "client CPU",
    ]);
    for (name, work) in candidates {
        table.row([
            name.into(),
            number(work.commands, 1),
            number(work.received, 0),
            number(work.sent, 0),
            percent(work.server, 2),
            percent(work.client, 2),
        ]);
    }
    report.table(table);
}

async fn hold(url: &str, lease: Duration, count: usize) -> Work {
    let config = LockConfig::builder().watchdog_lease(lease).build().expect("a valid lease");
    let client = LockClient::connect_with(url, config).await.expect("a client");
    let mut locks: Vec<_> = (0..count).map(|number| client.rlock(format!("held:{number}"))).collect();
    let guards = try_join_all(locks.iter_mut().map(|lock| lock.lock())).await.expect("free locks");
    let work = watch(url, lease, clock::cpu_time).await;
    try_join_all(guards.into_iter().map(|guard| guard.unlock())).await.expect("no lock was lost");
    work
}

async fn hold_in_java(url: &str, jvm: &Jvm, lease: Duration, count: usize) -> Work {
    jvm.order("hold", "rlock", "held", &[count as u128]);
    let work = watch(url, lease, || jvm.cpu_time()).await;
    jvm.order("let_go", "rlock", "held", &[]);
    work
}

async fn watch(url: &str, time: Duration, cpu_time: impl Fn() -> u64) -> Work {
    let mut server = connect(url).await;
    let (start, before) = (Instant::now(), read(&mut server, cpu_time()).await);
    sleep(time).await;
    let (time, after) = (start.elapsed().as_secs_f64(), read(&mut server, cpu_time()).await);
    Work {
        commands: (after.commands - before.commands) / time,
        received: (after.received - before.received) / time,
        sent: (after.sent - before.sent) / time,
        server: (after.server - before.server) / time,
        client: (after.client - before.client) / time,
    }
}

async fn read(server: &mut MultiplexedConnection, cpu_time: u64) -> Work {
    let info = Info::read(server, "everything").await;
    Work {
        commands: info.of_command("evalsha", "calls") + info.of_command("eval", "calls"),
        received: info.number("total_net_input_bytes"),
        sent: info.number("total_net_output_bytes"),
        server: info.cpu_seconds(),
        client: cpu_time as f64 / 1e9,
    }
}
