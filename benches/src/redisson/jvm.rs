//! A process that runs the Java program of `tests/interop`, and takes one order after the other.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::command::command;

/// Is killed with its value.
pub struct Jvm {
    process: Child,
    input: ChildStdin,
    output: RefCell<BufReader<ChildStdout>>,
    version: String,
}

impl Jvm {
    /// With settings of `Settings.java`.
    pub fn start(url: &str, options: &[&str], settings: &[String]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder around this package");
        let mut command = command(root, options, url);
        let started = command.args(settings).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.expect("java, which scripts/bench installs");
        let input = process.stdin.take().expect("a pipe");
        let output = RefCell::new(BufReader::new(process.stdout.take().expect("a pipe")));
        let mut jvm = Self { process, input, output, version: String::new() };
        jvm.version = jvm.read("ready ").replace(' ', " on Java ");
        jvm
    }

    /// Such as "4.7.0 on Java 17.0.15".
    pub fn version(&self) -> &str {
        &self.version
    }

    /// See `Loads.java`.
    pub fn order(&self, load: &str, kind: &str, name: &str, numbers: &[u128]) -> Vec<u64> {
        self.begin(load, kind, name, numbers);
        self.result()
    }

    pub fn begin(&self, load: &str, kind: &str, name: &str, numbers: &[u128]) {
        let numbers: Vec<String> = numbers.iter().map(u128::to_string).collect();
        let order = format!("0 bench {load} {kind} {name} {}\n", numbers.join(" "));
        (&self.input).write_all(order.as_bytes()).expect("a process that runs");
    }

    pub fn result(&self) -> Vec<u64> {
        let numbers = self.read("0 ok");
        numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    }

    /// Nanoseconds that it has computed, all threads together.
    pub fn computed(&self) -> u64 {
        self.order("computed", "any", "any", &[])[0]
    }

    /// The rest of a line.
    fn read(&self, start: &str) -> String {
        let mut line = String::new();
        self.output.borrow_mut().read_line(&mut line).expect("text");
        let rest = line.trim_end().strip_prefix(start);
        rest.unwrap_or_else(|| panic!("Redisson: {line:?}")).to_owned()
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
