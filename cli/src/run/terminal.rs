//! A command that reads from the terminal has to be in its foreground.

use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::group::Group;

/// The terminal, which is lent to the command. It comes back with the drop.
pub(super) struct Terminal {
    command: Group,
    is_lent: bool,
}

impl Terminal {
    pub(super) const fn of(command: Group) -> Self {
        Self { command, is_lent: false }
    }

    /// Lends the terminal to the command, which is about to start. If its output goes elsewhere, such as to a pager that reads from
    /// the terminal, the command gets the terminal only when it asks.
    pub(super) fn lend(&mut self) {
        if io::stdout().is_terminal() {
            self.lend_now();
        }
    }

    /// What a shell does for its jobs. A command that wants the terminal gets it. With a command that the user suspends, this
    /// process is suspended too; the keeper still watches.
    pub(super) fn look(&mut self) {
        match stopped_by(self.command) {
            Some(Signal::SIGTTIN | Signal::SIGTTOU) if !self.is_lent && self.lend_now() => {
                self.command.signal(Signal::SIGCONT);
            }
            Some(signal) if self.is_lent && signal != Signal::SIGTTIN && signal != Signal::SIGTTOU => {
                self.take_back();
                // To the whole job. This process stops here, until the shell continues it.
                let _ = killpg(getpgrp(), Signal::SIGTSTP);
                self.lend_now();
                self.command.signal(Signal::SIGCONT);
            }
            _ => {}
        }
    }

    /// False: there is no terminal, or another job has it.
    fn lend_now(&mut self) -> bool {
        let input = io::stdin();
        let has_it = input.is_terminal() && tcgetpgrp(&input) == Ok(getpgrp());
        self.is_lent = has_it && tcsetpgrp(&input, self.command.id()).is_ok();
        self.is_lent
    }

    fn take_back(&mut self) {
        if !std::mem::take(&mut self.is_lent) {
            return;
        }
        // A process in the background that changes the foreground is stopped by this signal, unless the signal is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
            let _ = blocked.thread_unblock();
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// The signal that stopped the first process of the command. Its status stays for those who wait for its end.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn stopped_by(command: Group) -> Option<Signal> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let leader: Pid = command.id();
    match waitid(Id::Pid(leader), flags) {
        Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
        _ => None,
    }
}

/// Here this cannot be asked without taking the status.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const fn stopped_by(_command: Group) -> Option<Signal> {
    None
}
