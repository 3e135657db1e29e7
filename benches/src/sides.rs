//! Further processes of this program.

use std::process::{Child, Command, Stdio};

pub fn start(args: &[&str]) -> Child {
    let program = std::env::current_exe().expect("the path of this program");
    Command::new(program).args(args).stdout(Stdio::piped()).spawn().expect("a process")
}

/// Waits until a process has ended, and returns what it printed.
pub fn output(process: Child) -> String {
    let output = process.wait_with_output().expect("the output of a process");
    assert!(output.status.success(), "a process of the benchmark failed: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Waits until a process has ended, and returns the numbers that it printed.
pub fn numbers(process: Child) -> Vec<f64> {
    output(process).split_whitespace().map(|number| number.parse().expect("a number")).collect()
}
