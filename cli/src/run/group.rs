//! The process group of a command.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

/// How long the kernel has to end processes that got `SIGKILL`.
const LIMIT: Duration = Duration::from_secs(1);
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

    pub(super) fn kill(self) {
        // The whole group at once: no process of it can start another one in between.
        self.signal(Signal::SIGKILL);
    }

    pub(super) fn is_empty(self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }

    /// Ends the group, and waits until it is gone.
    pub(super) async fn end(self) {
        let start = Instant::now();
        while !self.is_empty() && start.elapsed() < LIMIT {
            self.kill();
            sleep(PAUSE).await;
        }
    }
}
