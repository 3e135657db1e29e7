//! A second process: this test binary again, told by its environment what to do in its test `child`.

use std::env;
use std::io::{BufRead, BufReader, Lines};
use std::process::{ChildStdout, Command, Stdio};

use super::server::signal;

const ROLE: &str = "LOCKKEEPER_CHILD";
const URL: &str = "LOCKKEEPER_CHILD_URL";

/// What this process shall do, on which server. `None`: it runs the tests.
pub fn role() -> Option<(String, String)> {
    Some((env::var(ROLE).ok()?, env::var(URL).ok()?))
}

/// Is killed with its value.
pub struct Child {
    process: std::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    pub fn start(role: &str, url: &str) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .envs([(ROLE, role), (URL, url)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The lines up to this one, which end with it.
    pub fn read_until(&mut self, last: &str) -> Vec<String> {
        let mut read = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            assert!(!line.contains("unexpected"), "{line}");
            let is_last = line == last;
            read.push(line);
            if is_last {
                return read;
            }
        }
        panic!("no {last:?} in {read:?}");
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
    }

    pub fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
