//! Many waiters, each for another lock.

use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use lockkeeper::RLock;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Deployment;
use crate::flavor::Flavor;
use crate::info::Info;
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};

struct Sample {
    /// The connections of the client that waits.
    connections: f64,
    /// Milliseconds from the release of all locks until each waiter has acquired and released its own.
    served: f64,
}

pub fn measure(deployments: [&Deployment; 2], effort: Effort, report: &mut Report) {
    let waiters = if effort.is_quick() { 500 } else { 10_000 };
    report.section(
        format!("{waiters} waiters, each for another lock, on a cluster"),
        "Another client of the same process holds all locks, and releases them at once. The time until each waiter has\n\
         acquired and released its lock.",
    );
    let rounds = interleave(effort.rounds.min(3), deployments.len(), |which| {
        Flavor::CurrentThread.runtime().block_on(wait(deployments[which], waiters))
    });
    let mut table = Table::new(["servers", "connections", "served after ms", "ratio"]);
    for (samples, deployment) in rounds.iter().zip(deployments) {
        let of = |value: fn(&Sample) -> f64| number(median(samples.iter().map(value)), 0);
        table.row([
            deployment.name.into(),
            of(|sample| sample.connections),
            of(|sample| sample.served),
            Ratio::new(samples, &rounds[0], |sample| sample.served).into(),
        ]);
    }
    report.table(table);
}

async fn wait(deployment: &Deployment, waiters: usize) -> Sample {
    let holder = deployment.client().await;
    let name = |number| format!("wanted:{number}");
    let mut held: Vec<_> = (0..waiters).map(|number| holder.rlock(name(number))).collect();
    let guards = try_join_all(held.iter_mut().map(|lock| lock.lock())).await.expect("free locks");
    let before = deployment.sum(clients).await;
    let client = deployment.client().await;
    let mut waiting = JoinSet::new();
    for number in 0..waiters {
        waiting.spawn(once(client.rlock(name(number))));
    }
    while deployment.sum(channels).await < waiters as f64 {
        sleep(Duration::from_millis(50)).await;
    }
    let connections = deployment.sum(clients).await - before;
    let released = Instant::now();
    let releasing = join_all(guards.into_iter().map(|guard| guard.unlock()));
    let (_, _) = tokio::join!(releasing, waiting.join_all());
    let served = released.elapsed().as_secs_f64() * 1e3;
    for locks in [holder, client] {
        locks.shutdown().await.expect("nothing is held");
    }
    Sample { connections, served }
}

async fn once(mut lock: RLock) {
    lock.lock().await.expect("a lock").unlock().await.expect("the lock was held");
}

fn clients(info: &Info) -> f64 {
    info.number("connected_clients")
}

fn channels(info: &Info) -> f64 {
    info.number("pubsub_channels") + info.number("pubsubshard_channels")
}
