//! A second process, which runs one test of this program again. Most of these tests read from the environment what to do.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader, Read, stdin};
use std::process::{Command, Stdio, exit};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use lockkeeper_testkit::signal;

use super::LIMIT;

const ROLE: &str = "LOCKKEEPER_CHILD";
const URL: &str = "LOCKKEEPER_CHILD_URL";
const ALONE: &str = "LOCKKEEPER_ALONE";

/// The servers that child processes of this process were started for.
static SERVERS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Whether a child process was started for this server. One that ends without a shutdown leaves records, for two minutes.
pub fn was_at(url: &str) -> bool {
    SERVERS.lock().unwrap().contains(url)
}

/// Runs this test again, in a process of its own. True: this is that process, so the caller does its work.
pub fn is_alone(test: &str) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let again = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = [again.stdout, again.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(again.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Returns the role of this process and the URL of its server. `None`: it is the parent, and runs the tests.
///
/// A child exits when its parent ends, however the parent ends.
pub fn role() -> Option<(String, String)> {
    let role = (env::var(ROLE).ok()?, env::var(URL).ok()?);
    thread::spawn(|| {
        let _ = stdin().read_to_end(&mut Vec::new());
        exit(0);
    });
    Some(role)
}

/// A child process. Dropping it kills it.
pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    /// Starts a process that runs this test, in this role.
    pub fn start(test: &str, role: &str, url: &str) -> Self {
        SERVERS.lock().unwrap().insert(url.to_owned());
        let mut process = Command::new(env::current_exe().unwrap())
            // With one thread, the test harness prints the name of the test before the first line of output.
            .args(["--exact", test, "--nocapture", "--test-threads=2"])
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

    /// Returns the lines that the child prints, up to and including this one.
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

    /// Discards what a stopped child has printed.
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
