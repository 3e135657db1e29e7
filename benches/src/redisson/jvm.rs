//! A process of the Java program of `tests/interop`, which executes one order after the other.

#[path = "../../../tests/interop/jvm.rs"]
mod command;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A JVM. Dropping this value kills it.
pub struct Jvm {
    process: Child,
    input: ChildStdin,
    output: RefCell<BufReader<ChildStdout>>,
    version: String,
}

impl Jvm {
    /// Starts a JVM with these options, and the program with these settings of `Settings.java`.
    pub fn start(url: &str, options: &[&str], settings: &[String]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of the project");
        let mut command = command::command(root, options, url);
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

    /// Executes an order, see `Loads.java`, and returns its numbers.
    pub fn order(&self, load: &str, kind: &str, name: &str, numbers: &[u128]) -> Vec<u64> {
        self.begin(load, kind, name, numbers);
        self.result()
    }

    /// Sends an order, and does not wait for its result.
    pub fn begin(&self, load: &str, kind: &str, name: &str, numbers: &[u128]) {
        let numbers: Vec<String> = numbers.iter().map(u128::to_string).collect();
        let order = format!("0 bench {load} {kind} {name} {}\n", numbers.join(" "));
        (&self.input).write_all(order.as_bytes()).expect("a running process");
    }

    /// Waits for the result of the last order.
    pub fn result(&self) -> Vec<u64> {
        let numbers = self.read("0 ok");
        numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    }

    /// Nanoseconds of CPU time that all threads of the process have used.
    pub fn cpu_time(&self) -> u64 {
        self.order("computed", "any", "any", &[])[0]
    }

    /// Reads a line, and returns what follows this start of it.
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
