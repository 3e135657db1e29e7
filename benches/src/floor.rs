//! How fast `redis-benchmark` calls the script that acquires: what the server and this machine have to give.

use std::process::Command;
use std::time::Duration;

use crate::bare::{self, Bare, scripts};
use crate::flavor::Flavor;
use crate::pairs::{Naming, candidate};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};
use crate::table::Table;

const FLAVOR: Flavor = Flavor::CurrentThread;
const NAMING: Naming = |task| format!("floor:{task}");
const PROGRAM: &str = "redis-benchmark";

/// About the time of a call.
const CALL: Duration = Duration::from_micros(30);

pub fn measure(url: &str, effort: Effort) {
    println!("\n## Calls of a script, by redis-benchmark and here, {}\n", FLAVOR.name());
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        println!("Not measured: {PROGRAM} is not installed (on Debian: apt-get install redis-tools).");
        return;
    }
    println!(
        "{PROGRAM} acquires, under a new name each time, and has a connection for each task. The bare scripts"
    );
    println!("acquire and release, two calls a pair, on two connections that the tasks share.\n");
    let sha = FLAVOR.runtime().block_on(async {
        let mut server = bare::connection(url).await;
        bare::load(&mut server, &scripts::lockkeeper("rlock/acquire.lua")).await
    });
    let (_, pairs) = candidate::<Bare>("bare", url, FLAVOR, NAMING);
    let mut table = Table::new(["tasks", "redis-benchmark calls/s", "bare calls/s", "ratio of bare"]);
    for tasks in [1, 16, 128] {
        let samples = interleave(effort.rounds, 2, |which| match which {
            0 => benchmark(url, &sha, tasks, effort.count(CALL)),
            _ => pairs(tasks, effort.slice).rate * 2.0,
        });
        table.row([
            tasks.to_string(),
            format!("{:.0}", median(samples[0].iter().copied())),
            format!("{:.0}", median(samples[1].iter().copied())),
            Ratio::new(&samples[1], &samples[0], |rate| *rate).to_string(),
        ]);
    }
    print!("{table}");
}

/// Calls per second.
fn benchmark(url: &str, sha: &str, clients: usize, calls: usize) -> f64 {
    let mut command = Command::new(PROGRAM);
    command.args([
        "-u",
        url,
        "-c",
        &clients.to_string(),
        "-n",
        &calls.to_string(),
        "-r",
        "1000000000",
        "--csv",
    ]);
    command.args([
        "EVALSHA",
        sha,
        "1",
        "floor:__rand_int__",
        "00000000-0000-4000-8000-000000000000:1",
        "1000",
    ]);
    let output = command.output().expect("a process that ends");
    let text = String::from_utf8(output.stdout).expect("text");
    // "test","rps",… and below it the values.
    let rate = text.lines().last().and_then(|line| line.rsplit("\",\"").nth(6));
    rate.and_then(|rate| rate.parse().ok()).unwrap_or_else(|| panic!("no rate: {text}"))
}
