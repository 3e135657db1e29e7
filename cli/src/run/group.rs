//! The process group of a command.

use std::fs;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::time::sleep;

const PAUSE: Duration = Duration::from_millis(5);

/// The process group of a command. A process that starts a session of its own leaves the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Pid);

impl Group {
    pub(super) const fn new(leader: i32) -> Self {
        Self(Pid::from_raw(leader))
    }

    pub(super) const fn id(self) -> Pid {
        self.0
    }

    /// Sends a signal to all processes of the group. That there is none is no error.
    pub(super) fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    /// Whether no process of the group seems to run. One that just started its successor and ended can hide the successor: only
    /// [`end`](Self::end) is sure.
    pub(super) fn seems_empty(self) -> bool {
        !self.exists() || !self.has_living_leader() && self.has_only_zombies()
    }

    /// Asked first: this is much less work than to look at all processes.
    fn has_living_leader(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        state_in(self.0, &stat).is_some_and(lives)
    }

    pub(super) fn exists(self) -> bool {
        killpg(self.0, None) != Err(Errno::ESRCH)
    }

    /// A zombie does no work, but counts as a member until its parent asks for its status: a stopped front, or the first process
    /// of a container, asks late or never.
    fn has_only_zombies(self) -> bool {
        let Ok(processes) = fs::read_dir("/proc") else { return false };
        let stats =
            processes.flatten().filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
        let mut members = stats.filter_map(|stat| state_in(self.0, &stat)).peekable();
        members.peek().is_some() && !members.any(lives)
    }

    /// Kills the group until no process of it runs.
    pub(super) async fn end(self) {
        while self.exists() {
            // SIGKILL reaches the whole group at once, and no member starts another process after it. So the members
            // are listed after the signal.
            self.signal(Signal::SIGKILL);
            if self.has_only_zombies() {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

const fn lives(state: char) -> bool {
    !matches!(state, 'Z' | 'X')
}

/// The state of a process, if it is in this group. The name of the program before it is in brackets, and can contain anything.
fn state_in(group: Pid, stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let (state, _parent, its_group) = (fields.next()?, fields.next()?, fields.next()?);
    if its_group == group.to_string() { state.chars().next() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_behind_a_name_with_brackets_and_spaces() {
        let stat = "12 (a) S 3 4) Z 1 77 77 0 -1";
        assert_eq!(state_in(Pid::from_raw(77), stat), Some('Z'));
        assert_eq!(state_in(Pid::from_raw(7), stat), None);
        assert_eq!(state_in(Pid::from_raw(4), stat), None);
    }
}
