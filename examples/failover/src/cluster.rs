//! A master of a cluster is killed, and then slots move to other masters.

use std::time::Duration;

use lockkeeper::{LockClient, LockConfig, Source};
use lockkeeper_testkit::Cluster;
use tokio::time::{Instant, sleep};

use crate::Result;
use crate::held::Held;
use crate::work::Work;

const NODE_TIMEOUT: Duration = Duration::from_secs(1);
const LOCKS: usize = 12;
const HELD: &str = "lock:example:held";

/// The work is seen for this long before the servers change, and again after that.
const AROUND: Duration = Duration::from_secs(1);

/// On a busy machine, a replica needs several tries to become a master.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run() -> Result<()> {
    println!("starting three masters and a replica of each (node timeout {NODE_TIMEOUT:?}) …");
    let mut group = Cluster::with(3, 1, NODE_TIMEOUT, &["--cluster-require-full-coverage", "no"]);
    let config = LockConfig::builder().retry_timeout(PATIENCE).build()?;
    let connect = || LockClient::connect_with(Source::cluster(group.urls()), config.clone());
    let clients = [connect().await?, connect().await?];
    let names: Vec<_> = (0..LOCKS).map(|number| format!("lock:example:{number}")).collect();
    let work = Work::start(&clients, &names);
    let held = Held::start(&clients, HELD).await?;
    sleep(AROUND).await;
    println!("the workers of two clients lock and unlock {LOCKS} locks on three masters");

    kill_a_master(&mut group, &work, &names).await;
    move_slots(&group, &work, &names).await;
    leave_a_slot_half_moved(&group, &work, &names[0]).await;

    held.end().await?;
    work.end().await?;
    for locks in clients {
        locks.shutdown().await?;
    }
    let left = group.keys();
    if left.is_empty() { Ok(()) } else { Err(format!("these keys are left: {left:?}").into()) }
}

/// The master that has the lock which is held all the time.
async fn kill_a_master(group: &mut Cluster, work: &Work, names: &[String]) {
    let slot = group.slot_of(HELD);
    let before = group.master_of(slot);
    let is_there = |name: &String| group.master_of_key(name) == before;
    let (there, elsewhere): (Vec<String>, Vec<String>) = names.iter().cloned().partition(is_there);
    group.kill(before);
    let killed = Instant::now();
    println!(
        "  0.00 s  killed -9: 127.0.0.1:{}, which has {} of the locks",
        group.servers[before].port(),
        there.len()
    );
    work.goes_on(&there, killed).await;
    println!("{:>6.2} s  the workers lock and unlock these again", killed.elapsed().as_secs_f64());
    println!(
        "          the longest pause of another lock was {:.0?}",
        work.longest_pause(&elsewhere, killed)
    );
    let after = group.switched(slot, before);
    println!(
        "{:>6.2} s  most nodes name 127.0.0.1:{}",
        killed.elapsed().as_secs_f64(),
        group.servers[after].port()
    );
    sleep(AROUND).await;
}

/// Moves the slots of all locks, each to the next master.
async fn move_slots(group: &Cluster, work: &Work, names: &[String]) {
    let start = Instant::now();
    for name in names.iter().map(String::as_str).chain([HELD]) {
        let slot = group.slot_of(name);
        group.move_slot(slot, next_master(group, slot));
    }
    let took = start.elapsed();
    println!("moved {} slots in {took:.0?}, each to another master", names.len() + 1);
    work.goes_on(names, Instant::now()).await;
    println!("  the longest pause of a lock was {:.0?}", work.longest_pause(names, start));
}

async fn leave_a_slot_half_moved(group: &Cluster, work: &Work, name: &str) {
    let (names, slot, start) = ([name.to_owned()], group.slot_of(name), Instant::now());
    let to = next_master(group, slot);
    group.open_slot(slot, to);
    sleep(AROUND).await;
    work.goes_on(&names, start).await;
    group.close_slot(slot, to);
    println!("left the slot of one lock half moved for {:.2?}", start.elapsed());
    work.goes_on(&names, Instant::now()).await;
    println!("  the longest pause of that lock was {:.0?}", work.longest_pause(&names, start));
}

fn next_master(group: &Cluster, slot: u16) -> usize {
    let (from, masters) = (group.master_of(slot), group.masters());
    masters.iter().copied().find(|master| *master > from).unwrap_or(masters[0])
}
