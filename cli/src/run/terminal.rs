//! A command that reads from the terminal has to be in its foreground.

use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::group::Group;

/// The terminal, lent to a command. It comes back with the drop.
pub(super) struct Foreground {
    before: Pid,
}

impl Foreground {
    /// Lends the terminal to a group, if there is one and this process has it.
    pub(super) fn lend(group: Group) -> Option<Self> {
        let input = io::stdin();
        let before = getpgrp();
        if !input.is_terminal() || tcgetpgrp(&input).ok()? != before {
            return None;
        }
        tcsetpgrp(&input, group.id()).ok()?;
        // Perhaps it was stopped because it read before it had the terminal.
        group.signal(Signal::SIGCONT);
        Some(Self { before })
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // A process in the background that changes the foreground is stopped by this signal, unless the signal is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(io::stdin(), self.before);
            let _ = blocked.thread_unblock();
        }
    }
}
