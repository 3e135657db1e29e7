//! The processes that belong to a test, found by a mark in their environment, which all descendants inherit.

use std::fs::{self, File};
use std::os::fd::AsFd;

use lockkeeper_testkit::signal;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::wait_until;

const MARK: &str = "LOCKKEEPER_TEST";

#[derive(Clone, Debug)]
pub(crate) struct Processes {
    mark: String,
}

/// The state of a process, as `/proc` shows it: `T` is stopped, `Z` is a zombie.
pub(crate) fn state_of(process: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.expect("a state")
}

/// A process, as `/proc` shows it.
#[derive(Debug)]
struct Process {
    id: u32,
    parent: u32,
    arguments: String,
}

impl Processes {
    pub(super) const fn marked(mark: String) -> Self {
        Self { mark }
    }

    pub(super) fn mark(&self) -> (&'static str, &str) {
        (MARK, &self.mark)
    }

    /// All that live. A zombie does not.
    fn all(&self) -> Vec<Process> {
        let wanted = format!("{MARK}={}", self.mark);
        let ids = fs::read_dir("/proc").expect("/proc").flatten();
        ids.filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            environment.split(|byte| *byte == 0).find(|variable| *variable == wanted.as_bytes())?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            let arguments = fs::read(entry.path().join("cmdline")).ok()?;
            Some(Process { id, parent, arguments: String::from_utf8_lossy(&arguments).replace('\0', " ") })
        })
        .collect()
    }

    /// The child of a front that holds the lock. Those who look at processes see the name of the lock.
    pub(crate) fn keeper_of(&self, front: u32) -> Option<u32> {
        let is_keeper =
            |process: &Process| process.parent == front && process.arguments.contains("__keep -- ");
        self.all().into_iter().find(is_keeper).map(|process| process.id)
    }

    /// The child of a front that is, or becomes, the command.
    pub(crate) fn command_of(&self, front: u32) -> Option<u32> {
        let is_command = |process: &Process| process.parent == front && !process.arguments.contains("__keep");
        self.all().into_iter().find(is_command).map(|process| process.id)
    }

    /// Whether nobody has read yet what this process wrote to its standard output, a pipe.
    pub(crate) fn has_written(&self, process: u32) -> bool {
        assert!(self.all().iter().any(|found| found.id == process), "a process of this test");
        let pipe = File::open(format!("/proc/{process}/fd/1")).expect("a pipe");
        let mut polled = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).expect("a state") == 1
    }

    /// The arguments of all of them.
    pub(crate) fn arguments(&self) -> String {
        self.all().into_iter().map(|process| process.arguments + "\n").collect()
    }

    #[track_caller]
    pub(crate) fn wait_until_gone(&self) {
        wait_until("all processes are gone", || self.all().is_empty());
    }

    /// For a test that failed.
    pub(super) fn kill_all(&self) {
        for process in self.all() {
            eprintln!("left behind: {process:?}");
            signal(process.id, "KILL");
        }
    }
}
