//! This program, started by itself.

use std::process::{Child, Command, Stdio};

pub fn start(args: &[&str]) -> Child {
    let program = std::env::current_exe().expect("this program");
    Command::new(program).args(args).stdout(Stdio::piped()).spawn().expect("a process")
}

/// What it printed, once it has ended.
pub fn output(process: Child) -> String {
    let output = process.wait_with_output().expect("a process that ends");
    assert!(output.status.success(), "a side failed: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}
