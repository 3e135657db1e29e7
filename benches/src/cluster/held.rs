//! Many locks that are held.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::time::sleep;

use super::Deployment;
use crate::clock;
use crate::flavor::Flavor;
use crate::report::{Cell, Report, Table, number, percent};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};

/// A third of the lease: each hold is renewed once in it.
const PERIOD: Duration = Duration::from_secs(10);

/// The greatest ratio to a single server of the client's CPU time.
const TARGET: f64 = 1.5;

/// What the renewal costs in each second.
struct Cost {
    commands: f64,
    /// Seconds of CPU time.
    client: f64,
    server: f64,
}

pub fn measure(deployments: [&Deployment; 2], effort: Effort, report: &mut Report) {
    let (holds, time) = if effort.is_quick() { (1_000, Duration::from_secs(1)) } else { (10_000, PERIOD) };
    report.section(
        format!("{holds} held locks with names of their own, on a cluster"),
        format!(
            "The work per second, over {} s. Each lock is renewed once in {} s. 100 % CPU is one core.",
            time.as_secs_f64(),
            PERIOD.as_secs()
        ),
    );
    let rounds = interleave(effort.rounds.min(3), deployments.len(), |which| {
        Flavor::CurrentThread.runtime().block_on(hold(deployments[which], holds, time))
    });
    let mut table = Table::new(["servers", "commands", "server CPU", "client CPU", "ratio", "target"]);
    for (samples, deployment) in rounds.iter().zip(deployments) {
        let of = |value: fn(&Cost) -> f64| median(samples.iter().map(value));
        let ratio = Ratio::new(samples, &rounds[0], |cost| cost.client);
        table.row([
            deployment.name.into(),
            number(of(|cost| cost.commands), 1),
            percent(of(|cost| cost.server), 2),
            percent(of(|cost| cost.client), 2),
            ratio.into(),
            if deployment.is_cluster { ratio.at_most(TARGET).into() } else { Cell::default() },
        ]);
    }
    report.table(table);
}

async fn hold(deployment: &Deployment, holds: usize, time: Duration) -> Cost {
    // A client of its own, which ends: its task that asks for the masters works, too.
    let client = deployment.client().await;
    let mut locks: Vec<_> = (0..holds).map(|number| client.rlock(format!("held:{number}"))).collect();
    let guards = try_join_all(locks.iter_mut().map(|lock| lock.lock())).await.expect("free locks");
    let before = Cost::now(deployment).await;
    let start = Instant::now();
    let cpu_time = clock::cpu_time();
    sleep(time).await;
    let client_time = (clock::cpu_time() - cpu_time) as f64 / 1e9;
    let seconds = start.elapsed().as_secs_f64();
    let after = Cost::now(deployment).await;
    try_join_all(guards.into_iter().map(|guard| guard.unlock())).await.expect("no lock was lost");
    client.shutdown().await.expect("nothing is held");
    Cost {
        commands: (after.commands - before.commands) / seconds,
        client: client_time / seconds,
        server: (after.server - before.server) / seconds,
    }
}

impl Cost {
    /// What the servers did so far.
    async fn now(deployment: &Deployment) -> Self {
        let commands = deployment.sum(|info| info.of_command("evalsha", "calls")).await;
        let server = deployment.sum(|info| info.cpu_seconds()).await;
        Self { commands, client: 0.0, server }
    }
}
