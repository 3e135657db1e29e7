//! A cluster beside a single server.

use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use lockkeeper::{LockClient, LockConfig, Source};
use lockkeeper_testkit::{Cluster, Server};
use tokio::time::sleep;

use crate::connection::{Info, connect};
use crate::pairs::{Candidate, Naming, candidate, table};
use crate::peer::Clustered;
use crate::report::{Report, Table, number, percent};
use crate::rounds::{Effort, interleave};
use crate::runtime::{cpu_time, one_thread};
use crate::stats::{Ratio, median};

/// The servers of one candidate.
struct Deployment {
    name: &'static str,
    /// One that is no cluster, or all masters of a cluster.
    urls: Vec<String>,
    is_cluster: bool,
}

const NAMING: Naming = |task| format!("cluster:{task}");

pub fn measure(effort: Effort, report: &mut Report) {
    let (single, one, three) = (Server::start(), Server::cluster_of_one(), Cluster::start(3, 0));
    let deployments = [
        Deployment { name: "single server", urls: vec![single.url()], is_cluster: false },
        Deployment { name: "cluster of one master", urls: vec![one.url()], is_cluster: true },
        Deployment { name: "cluster of three masters", urls: three.urls(), is_cluster: true },
    ];
    let candidates = deployments.each_ref().map(of);
    let target = |name: &str, _| match name {
        "cluster of one master" => Some(0.9),
        "cluster of three masters" => Some(0.8),
        _ => None,
    };
    report.section(
        "A cluster",
        "Lock and unlock, each task with a lock of its own. All servers and the client share the cores of one machine.",
        &table(&candidates, &[1, 16, 128], effort, target),
    );
    let [single, _, three] = &deployments;
    let costs = measure_held([single, three], effort, report);
    calculate(costs, report);
}

fn of(Deployment { name, urls, is_cluster }: &Deployment) -> Candidate {
    let urls = urls.join(" ");
    if *is_cluster {
        candidate::<Clustered>(name, &urls, NAMING)
    } else {
        candidate::<LockClient>(name, &urls, NAMING)
    }
}

impl Deployment {
    async fn client(&self) -> LockClient {
        let source = if self.is_cluster {
            Source::cluster(self.urls.clone())
        } else {
            Source::url(self.urls[0].clone())
        };
        LockClient::connect_with(source, patient()).await.expect("a client")
    }

    /// The sum of a value over all servers.
    async fn sum(&self, value: impl Fn(&Info) -> f64) -> f64 {
        let read = async |url: &String| value(&Info::read(&mut connect(url).await, "everything").await);
        join_all(self.urls.iter().map(read)).await.into_iter().sum()
    }
}

/// The default settings, with time limits that no busy machine exceeds.
fn patient() -> LockConfig {
    let limit = Duration::from_secs(60);
    LockConfig::builder().command_timeout(limit).retry_timeout(limit).build().expect("valid")
}

/// A third of the lease: each hold is renewed once in it.
const PERIOD: Duration = Duration::from_secs(10);

/// The greatest ratio to a single server of the client's CPU time.
const TARGET: f64 = 1.5;

/// What the renewal costs in each second.
#[derive(Clone, Copy)]
struct Cost {
    commands: f64,
    /// Seconds of CPU time.
    client: f64,
    server: f64,
    holds: f64,
}

/// Returns the costs with these deployments.
fn measure_held(deployments: [&Deployment; 2], effort: Effort, report: &mut Report) -> [Cost; 2] {
    let (holds, time) = if effort.is_quick() { (1_000, Duration::from_secs(1)) } else { (10_000, PERIOD) };
    let rounds = interleave(effort.rounds.min(3), deployments.len(), |which| {
        one_thread().block_on(hold(deployments[which], holds, time))
    });
    let mut table = Table::new(["servers", "commands", "server CPU", "client CPU", "ratio", "target"]);
    let mut costs = rounds.iter().zip(deployments).map(|(samples, deployment)| {
        let of = |value: fn(&Cost) -> f64| median(samples.iter().map(value));
        let cost = Cost {
            commands: of(|cost| cost.commands),
            client: of(|cost| cost.client),
            server: of(|cost| cost.server),
            holds: holds as f64,
        };
        let ratio = Ratio::new(samples, &rounds[0], |cost| cost.client);
        table.row([
            deployment.name.to_owned(),
            number(cost.commands, 1),
            percent(cost.server, 2),
            percent(cost.client, 2),
            ratio.to_string(),
            if deployment.is_cluster { ratio.at_most(TARGET) } else { String::new() },
        ]);
        cost
    });
    let costs = [(); 2].map(|()| costs.next().expect("two deployments"));
    report.section(
        format!("{holds} held locks with names of their own, on a cluster"),
        format!(
            "The work per second, over {} s. Each lock is renewed once in {} s. 100 % CPU is one core.",
            time.as_secs_f64(),
            PERIOD.as_secs()
        ),
        &table,
    );
    costs
}

async fn hold(deployment: &Deployment, holds: usize, time: Duration) -> Cost {
    // A client of its own, which ends: its task that asks for the masters works, too.
    let client = deployment.client().await;
    let mut locks: Vec<_> = (0..holds).map(|number| client.rlock(format!("held:{number}"))).collect();
    let guards = try_join_all(locks.iter_mut().map(|lock| lock.lock())).await.expect("free locks");
    let before = Cost::now(deployment).await;
    let start = Instant::now();
    let computed = cpu_time();
    sleep(time).await;
    let client_time = (cpu_time() - computed) as f64 / 1e9;
    let seconds = start.elapsed().as_secs_f64();
    let after = Cost::now(deployment).await;
    try_join_all(guards.into_iter().map(|guard| guard.unlock())).await.expect("no lock was lost");
    client.shutdown().await.expect("nothing is held");
    Cost {
        commands: (after.commands - before.commands) / seconds,
        client: client_time / seconds,
        server: (after.server - before.server) / seconds,
        holds: holds as f64,
    }
}

impl Cost {
    /// What the servers did so far.
    async fn now(deployment: &Deployment) -> Self {
        let commands = deployment.sum(|info| info.scripts()).await;
        let server = deployment.sum(|info| info.cpu_seconds()).await;
        Self { commands, client: 0.0, server, holds: 0.0 }
    }
}

const SLOTS: f64 = 16_384.0;

/// The client looks for holds that are due so many times in each period.
const TICKS: f64 = 16.0;

/// Connections of a client to each master: one for commands, as there are at least two masters, one for messages, and one for
/// questions.
const CONNECTIONS: usize = 1 + 1 + 1;

/// Holds for each command, at most.
const BATCH: f64 = 100.0;

/// The client's CPU time is proportional to the holds and to the commands.
fn calculate([single, cluster]: [Cost; 2], report: &mut Report) {
    let period = PERIOD.as_secs_f64();
    let holds = single.holds / period;
    let of_command = (cluster.client - single.client) / (cluster.commands - single.commands);
    let of_hold = (single.client - of_command * single.commands) / holds;
    let mut table = Table::new([
        "masters",
        "holds",
        "connections",
        "commands per period",
        "holds per command",
        "client CPU",
    ]);
    for (masters, holds) in [(3, 1e4), (3, 1e5), (100, 1e5), (100, 1e6)] {
        let commands = commands(holds);
        let client = (of_hold * holds + of_command * commands) / period;
        table.row([
            masters.to_string(),
            number(holds, 0),
            (masters * CONNECTIONS).to_string(),
            number(commands, 0),
            number(holds / commands, 1),
            percent(client, 1),
        ]);
    }
    report.section(
        "Large clusters, calculated",
        format!(
            "The client's CPU time is taken as {:.1} µs for each renewal and {:.1} µs for each command more, as measured above.\n\
             A command renews holds of one slot that are due at about the same time.",
            of_hold * 1e6,
            of_command * 1e6
        ),
        &table,
    );
}

/// The commands for each period. In each tick: the slots that any of the holds has which are due then.
fn commands(holds: f64) -> f64 {
    let due = holds / TICKS;
    let slots = SLOTS * (1.0 - (-due / SLOTS).exp());
    TICKS * slots.max(due / BATCH)
}
