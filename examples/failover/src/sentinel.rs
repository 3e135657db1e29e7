//! The master of a group that sentinels watch is killed.

use std::time::Duration;

use lockkeeper::{LockClient, Source};
use lockkeeper_testkit::{MASTER, Sentinels};
use tokio::time::{Instant, sleep};

use crate::Result;
use crate::held::Held;
use crate::work::Work;

const DOWN_AFTER: Duration = Duration::from_secs(1);
const LOCKS: usize = 8;

/// The work is seen for this long before the failover, and again after it.
const AROUND: Duration = Duration::from_secs(1);

pub(crate) async fn run() -> Result<()> {
    println!("starting a master, two replicas and three sentinels (down-after {DOWN_AFTER:?}) …");
    let mut group = Sentinels::start(DOWN_AFTER);
    let source = Source::sentinel(MASTER, group.urls(), "redis://servers/");
    let clients = [LockClient::connect(source.clone()).await?, LockClient::connect(source).await?];
    let names: Vec<_> = (0..LOCKS).map(|number| format!("lock:example:{number}")).collect();
    let work = Work::start(&clients, &names);
    let held = Held::start(&clients, "lock:example:held").await?;
    sleep(AROUND).await;

    let before = group.master();
    let port = |group: &Sentinels, index: usize| group.servers[index].port();
    println!(
        "the workers of two clients lock and unlock {LOCKS} locks on 127.0.0.1:{}",
        port(&group, before)
    );
    group.servers[before].kill();
    let killed = Instant::now();
    println!("  0.00 s  killed -9: the master");
    work.goes_on(&names, killed).await;
    println!("{:>6.2} s  the workers lock and unlock again", killed.elapsed().as_secs_f64());
    let after = group.switched(before);
    println!(
        "{:>6.2} s  most sentinels name 127.0.0.1:{}",
        killed.elapsed().as_secs_f64(),
        port(&group, after)
    );
    sleep(AROUND).await;
    held.end().await?;
    work.end().await?;
    for locks in clients {
        locks.shutdown().await?;
    }
    Ok(())
}
