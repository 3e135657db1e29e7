//! Where and how a run was made.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use lockkeeper_testkit::Server;

use crate::redisson::{self, Jvm};
use crate::rounds::Effort;

/// The versions that cargo resolved.
const PACKAGES: &str = include_str!("../Cargo.lock");
const COMPARED: [&str; 7] =
    ["lockkeeper", "redis", "rslock", "rlock", "relock", "distkit", "async-redis-lock"];

/// Describes a run of these parts; of all of them if none is named.
pub fn describe(parts: &[&str], server: &Server, jvm: Option<&Jvm>, effort: Effort) -> String {
    let quick = effort.is_quick().then_some("--quick");
    let command: Vec<&str> =
        ["scripts/bench"].into_iter().chain(parts.iter().copied()).chain(quick).collect();
    let cores = available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut facts = vec![
        format!("`{}`", command.join(" ")),
        format!("{} rounds of {:?} per candidate", effort.rounds, effort.slice),
        output("date", &["-u", "+%F %H:%M UTC"]),
        format!("{cores} cores, load {}", load.split(' ').next().unwrap_or_default()),
        format!("Linux {}", output("uname", &["-r"])),
        server.version(),
        output("rustc", &["--version"]),
    ];
    if let Some(jvm) = jvm {
        let warm_up = redisson::warm_up(effort);
        facts.push(format!("Redisson {}, warmed up for {warm_up:?}", jvm.version()));
    }
    if cfg!(debug_assertions) {
        facts.push("NOT OPTIMISED: this build only shows that the benchmark works".to_owned());
    }
    facts.extend(COMPARED.map(|name| format!("{name} {}", versions(name))));
    facts.join("; ")
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// More than one, if the candidates need different versions.
fn versions(package: &str) -> String {
    let name = format!("name = \"{package}\"");
    let named = PACKAGES.split("[[package]]").filter(|text| text.lines().any(|line| line == name));
    let versions = named.filter_map(|text| text.lines().find_map(|line| line.strip_prefix("version = ")));
    versions.map(|version| version.trim_matches('"')).collect::<Vec<_>>().join(" and ")
}
