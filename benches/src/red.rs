//! A `RedLock` on three servers, beside a lock on one server.

use std::time::Duration;

use lockkeeper::LockClient;
use lockkeeper_testkit::Server;

use crate::pairs::{Candidate, Naming, Sample, candidate};
use crate::peer::{Red, Rslock, Together};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};

const NAMING: Naming = |task| format!("red:{task}");

pub fn measure(effort: Effort, report: &mut Report) {
    let servers = [(); 3].map(|()| Server::start());
    let urls = servers.each_ref().map(Server::url).join(" ");
    let one = &servers[0].url();
    let candidates = [
        candidate::<LockClient>("RLock, one server", one, NAMING),
        candidate::<Together>("slowest of three RLocks", &urls, NAMING),
        candidate::<Red>("RedLock", &urls, NAMING),
        candidate::<Rslock>("rslock, one server", one, NAMING),
        candidate::<Rslock>("rslock, three servers", &urls, NAMING),
    ];
    report.section(
        "Three servers",
        "Lock and unlock. *Slowest of three RLocks* acquires an RLock on each server at the same time, and waits for all\n\
         answers. The three servers share the cores of one machine, which separate servers do not.",
        &all_up(&candidates, effort),
    );
    report.section(
        "Three servers, one of them stopped",
        "One server gets SIGSTOP: its connections stay open, and it never answers. *First* is the slowest lock and unlock\n\
         in the first millisecond after that. The ratio is to the same candidate before.",
        &one_stopped(&candidates, [2, 4], &servers[2], effort),
    );
}

fn all_up(candidates: &[Candidate], effort: Effort) -> Table {
    let mut table = Table::new([
        "candidate",
        "tasks",
        "p50 µs",
        "ratio to one RLock",
        "to the slowest of three",
        "target",
        "p99 µs",
    ]);
    for tasks in [1, 16] {
        let samples =
            interleave(effort.rounds, candidates.len(), |which| candidates[which].1(tasks, effort.slice));
        for ((name, _), rounds) in candidates.iter().zip(&samples) {
            let to_slowest = Ratio::new(rounds, &samples[1], p50);
            table.row([
                (*name).to_owned(),
                tasks.to_string(),
                number(median(rounds.iter().map(p50)), 0),
                Ratio::new(rounds, &samples[0], p50).to_string(),
                to_slowest.to_string(),
                if *name == "RedLock" { to_slowest.at_most(1.5) } else { String::new() },
                number(median(rounds.iter().map(|sample| sample.p99)), 0),
            ]);
        }
    }
    table
}

fn one_stopped(candidates: &[Candidate], which: [usize; 2], server: &Server, effort: Effort) -> Table {
    let effort = effort.longer(4);
    let run = |which: usize| candidates[which].1(1, effort.slice);
    let rounds = effort.rounds.min(3);
    let before = interleave(rounds, which.len(), |index| run(which[index]));
    server.freeze();
    let first = which.map(|which| candidates[which].1(1, Duration::from_millis(1)).p99);
    let after = interleave(rounds, which.len(), |index| run(which[index]));
    server.thaw();
    let mut table =
        Table::new(["candidate", "p50 µs before", "first µs", "p50 µs", "ratio to before", "p99 µs"]);
    for (index, which) in which.into_iter().enumerate() {
        table.row([
            candidates[which].0.to_owned(),
            number(median(before[index].iter().map(p50)), 0),
            number(first[index], 0),
            number(median(after[index].iter().map(p50)), 0),
            Ratio::new(&after[index], &before[index], p50).to_string(),
            number(median(after[index].iter().map(|sample| sample.p99)), 0),
        ]);
    }
    table
}

fn p50(sample: &Sample) -> f64 {
    sample.p50
}
