//! A lock on a majority of three servers, beside one on a single server.

use std::time::Duration;

use lockkeeper::LockClient;
use lockkeeper_testkit::Server;

use crate::flavor::Flavor;
use crate::pairs::{Candidate, Naming, Sample, candidate};
use crate::peer::{Red, Rslock, Together};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};
use crate::table::Table;

const FLAVOR: Flavor = Flavor::CurrentThread;
const NAMING: Naming = |task| format!("red:{task}");

pub fn measure(effort: Effort) {
    let servers = [(); 3].map(|()| Server::start());
    let urls = servers.each_ref().map(Server::url).join(" ");
    let one = &servers[0].url();
    let candidates = [
        candidate::<LockClient>("RLock, one server", one, FLAVOR, NAMING),
        candidate::<Together>("three RLocks, the slowest", &urls, FLAVOR, NAMING),
        candidate::<Red>("RedLock", &urls, FLAVOR, NAMING),
        candidate::<Rslock>("rslock, one server", one, FLAVOR, NAMING),
        candidate::<Rslock>("rslock, three servers", &urls, FLAVOR, NAMING),
    ];
    println!("\n## Three servers, {}\n", FLAVOR.name());
    println!(
        "Lock and unlock. The slowest: an RLock on each of the three at once, until the last has answered."
    );
    println!(
        "Three servers on the cores of one machine get in each other's way, which separate ones do not.\n"
    );
    report_all_up(&candidates, effort);

    println!("\n## Three servers, one of them stopped, {}\n", FLAVOR.name());
    println!(
        "A SIGSTOP: its connections stay open, and it never answers. First: the greatest until a millisecond"
    );
    println!("after it was stopped. Ratio: to the same candidate before.\n");
    report_stopped(&candidates, [2, 4], &servers[2], effort);
}

fn report_all_up(candidates: &[Candidate], effort: Effort) {
    let mut table = Table::new([
        "candidate",
        "tasks",
        "p50 µs",
        "ratio to one RLock",
        "to the slowest",
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
                format!("{:.0}", median(rounds.iter().map(p50))),
                Ratio::new(rounds, &samples[0], p50).to_string(),
                to_slowest.to_string(),
                if *name == "RedLock" { to_slowest.at_most(1.5) } else { String::new() },
                format!("{:.0}", median(rounds.iter().map(|sample| sample.p99))),
            ]);
        }
    }
    print!("{table}");
}

fn report_stopped(candidates: &[Candidate], which: [usize; 2], server: &Server, effort: Effort) {
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
            format!("{:.0}", median(before[index].iter().map(p50))),
            format!("{:.0}", first[index]),
            format!("{:.0}", median(after[index].iter().map(p50))),
            Ratio::new(&after[index], &before[index], p50).to_string(),
            format!("{:.0}", median(after[index].iter().map(|sample| sample.p99))),
        ]);
    }
    print!("{table}");
}

fn p50(sample: &Sample) -> f64 {
    sample.p50
}
