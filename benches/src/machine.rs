//! Where and how it was measured.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use lockkeeper_testkit::Server;

use crate::redisson::{self, Jvm};
use crate::rounds::Effort;

/// As cargo has resolved them.
const PACKAGES: &str = include_str!("../Cargo.lock");
const COMPARED: [&str; 7] =
    ["lockkeeper", "redis", "rslock", "rlock", "relock", "distkit", "async-redis-lock"];

pub fn describe(server: &Server, jvm: Option<&Jvm>, effort: Effort) {
    println!("# Results\n");
    println!("Ratios are of the same round: the median of the rounds [least..greatest].");
    println!("Server and clients share the machine. Numbers of different runs can not be compared.\n");
    println!("- Command: `{}`", command());
    println!("- Rounds: {}, and {:?} for a candidate in each", effort.rounds, effort.slice);
    println!("- Date: {}", output("date", &["-u", "+%F %H:%M UTC"]));
    println!("- Processor: {}, {} cores", fact("/proc/cpuinfo", "model name"), cores());
    println!("- Memory: {}", fact("/proc/meminfo", "MemTotal"));
    println!("- Kernel: {}", output("uname", &["-sr"]));
    println!("- Load when it began: {}", fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    println!("- Server: {}", server.version());
    if let Some(jvm) = jvm {
        println!("- Redisson: {}, warmed up for {:?}", jvm.version(), redisson::warming(effort));
    }
    if cfg!(debug_assertions) {
        println!("- NOT OPTIMISED: built only to see that it works");
    }
    println!("- Compiler: {}", output("rustc", &["--version"]));
    println!("- Crates: {}", COMPARED.map(|name| format!("{name} {}", versions(name))).join(", "));
}

fn command() -> String {
    ["scripts/bench".to_owned()].into_iter().chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" ")
}

fn cores() -> usize {
    available_parallelism().map_or(0, usize::from)
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// A line of "name : value".
fn fact(file: &str, name: &str) -> String {
    let facts = fs::read_to_string(file).unwrap_or_default();
    let line = facts.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim()).to_owned()
}

/// More than one, if they do not agree on one.
fn versions(package: &str) -> String {
    let name = format!("name = \"{package}\"");
    let named = PACKAGES.split("[[package]]").filter(|text| text.lines().any(|line| line == name));
    let versions = named.filter_map(|text| text.lines().find_map(|line| line.strip_prefix("version = ")));
    versions.map(|version| version.trim_matches('"')).collect::<Vec<_>>().join(" and ")
}
