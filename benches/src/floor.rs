//! The rate at which `redis-benchmark` calls the script that acquires: what this server and this machine can give.

use std::process::Command;
use std::time::Duration;

use crate::bare::{Bare, scripts};
use crate::connection::{connect, load};
use crate::flavor::Flavor;
use crate::pairs::{Naming, candidate};
use crate::report::{Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};

const FLAVOR: Flavor = Flavor::CurrentThread;
const NAMING: Naming = |task| format!("floor:{task}");
const PROGRAM: &str = "redis-benchmark";

/// About the time of a call.
const CALL: Duration = Duration::from_micros(30);

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    let title = format!("Script calls of redis-benchmark and of the bare scripts, {}", FLAVOR.name());
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        let text =
            format!("Not measured: {PROGRAM} is not installed (on Debian: apt-get install redis-tools).");
        return report.section(title, text);
    }
    report.section(
        title,
        format!(
            "{PROGRAM} acquires under a new name each time, and has one connection per task. The bare scripts acquire\n\
             and release, which are two calls per pair, on two connections that all tasks share."
        ),
    );
    let sha = FLAVOR.runtime().block_on(async {
        let mut server = connect(url).await;
        load(&mut server, &scripts::lockkeeper("rlock/acquire.lua")).await
    });
    let (_, pairs) = candidate::<Bare>("bare", url, FLAVOR, NAMING);
    let mut table = Table::new(["tasks", "redis-benchmark calls/s", "bare calls/s", "ratio of bare"])
        .plot_ratios("ratio of bare", 1);
    for tasks in [1, 16, 128] {
        let samples = interleave(effort.rounds, 2, |which| match which {
            0 => benchmark(url, &sha, tasks, effort.count(CALL)),
            _ => pairs(tasks, effort.slice).rate * 2.0,
        });
        table.row([
            tasks.into(),
            number(median(samples[0].iter().copied()), 0),
            number(median(samples[1].iter().copied()), 0),
            Ratio::new(&samples[1], &samples[0], |rate| *rate).into(),
        ]);
    }
    report.table(table);
}

/// Calls per second.
fn benchmark(url: &str, sha: &str, clients: usize, calls: usize) -> f64 {
    let mut command = Command::new(PROGRAM);
    command.args(["-u", url, "-c", &clients.to_string(), "-n", &calls.to_string()]);
    command.args(["-r", "1000000000", "--csv"]);
    command.args([
        "EVALSHA",
        sha,
        "1",
        "floor:__rand_int__",
        "00000000-0000-4000-8000-000000000000:1",
        "1000",
    ]);
    let output = command.output().expect("the output of a process");
    let text = String::from_utf8(output.stdout).expect("text");
    // A line of titles: "test","rps",… The values are in the line after it.
    let rate = text.lines().last().and_then(|line| line.rsplit("\",\"").nth(6));
    rate.and_then(|rate| rate.parse().ok()).unwrap_or_else(|| panic!("no rate: {text}"))
}
