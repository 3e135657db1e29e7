//! A second process: this test binary again, told by its environment what to do in its test `child`.

use std::env;
use std::io::{BufRead, BufReader, Read, stdin};
use std::process::{Command, Stdio, exit};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::LIMIT;
use super::server::signal;

const ROLE: &str = "LOCKKEEPER_CHILD";
const URL: &str = "LOCKKEEPER_CHILD_URL";

/// What this process shall do, on which server. `None`: it runs the tests.
///
/// A child ends when its parent does, in whatever way.
pub fn role() -> Option<(String, String)> {
    let role = (env::var(ROLE).ok()?, env::var(URL).ok()?);
    thread::spawn(|| {
        let _ = stdin().read_to_end(&mut Vec::new());
        exit(0);
    });
    Some(role)
}

/// Is killed with its value.
pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    pub fn start(role: &str, url: &str) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            // With one thread, the first line of output would stand behind the name of the test.
            .args(["--exact", "child", "--nocapture", "--test-threads=2"])
            .envs([(ROLE, role), (URL, url)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { process, lines }
    }

    /// The lines up to this one, which end with it.
    pub fn read_until(&mut self, last: &str) -> Vec<String> {
        let mut read = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(3 * LIMIT) {
            assert!(!line.contains("unexpected"), "{line}");
            let is_last = line == last;
            read.push(line);
            if is_last {
                return read;
            }
        }
        panic!("no {last:?} in {read:?}");
    }

    /// What it has printed, of a child that was stopped.
    pub fn read_all(&mut self) {
        while self.lines.recv_timeout(Duration::from_millis(200)).is_ok() {}
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
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
