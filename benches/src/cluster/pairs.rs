//! Lock and unlock.

use lockkeeper::LockClient;

use super::Deployment;
use crate::flavor::Flavor;
use crate::pairs::{Candidate, Naming, candidate};
use crate::peer::Clustered;
use crate::report::{Cell, Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};

const FLAVOR: Flavor = Flavor::CurrentThread;
const NAMING: Naming = |task| format!("cluster:{task}");

/// The least ratio to a single server of a cluster of one master, and of three masters.
const TARGETS: [f64; 3] = [1.0, 0.9, 0.8];

pub fn measure(deployments: &[Deployment; 3], effort: Effort, report: &mut Report) {
    report.section(
        format!("A cluster, {}", FLAVOR.name()),
        "Lock and unlock, each task with a lock of its own. All servers and the client share the cores of one machine.",
    );
    let candidates = deployments.each_ref().map(of);
    let mut table = Table::new(["servers", "tasks", "pairs/s", "ratio", "target", "p50 µs", "client CPU µs"])
        .plot_ratios("ratio", 2);
    for tasks in [1, 16, 128] {
        let samples =
            interleave(effort.rounds, candidates.len(), |which| candidates[which].1(tasks, effort.slice));
        for (((name, _), rounds), target) in candidates.iter().zip(&samples).zip(TARGETS) {
            let of = |value: fn(&crate::pairs::Sample) -> f64| median(rounds.iter().map(value));
            let ratio = Ratio::new(rounds, &samples[0], |sample| sample.rate);
            table.row([
                (*name).into(),
                tasks.into(),
                number(of(|sample| sample.rate), 0),
                ratio.into(),
                if target < 1.0 { ratio.at_least(target).into() } else { Cell::default() },
                number(of(|sample| sample.p50), 0),
                number(of(|sample| sample.client), 1),
            ]);
        }
    }
    report.table(table);
}

fn of(Deployment { name, urls, is_cluster }: &Deployment) -> Candidate {
    let urls = urls.join(" ");
    if *is_cluster {
        candidate::<Clustered>(name, &urls, FLAVOR, NAMING)
    } else {
        candidate::<LockClient>(name, &urls, FLAVOR, NAMING)
    }
}
