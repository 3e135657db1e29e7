//! The terminal and its job control: a command that reads from the terminal has to be in its foreground.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::group::Group;
use super::suspension::Suspension;

/// The terminal of this process, which is lent to the command.
pub(super) struct Terminal {
    command: Group,
    /// `None`: there is no terminal.
    device: Option<File>,
    /// The settings before it was lent.
    settings: Option<Termios>,
    /// The command gets the terminal whenever this process has it.
    is_wanted: bool,
    suspension: Suspension,
    /// The user asked this process to suspend both. The command may not have stopped yet.
    is_asked: bool,
}

impl Terminal {
    pub(super) fn of(command: Group) -> Self {
        // The terminal is opened by its name: the standard input can be a pipe or a file.
        let device = File::open("/dev/tty").ok();
        let suspension = Suspension::new();
        Self { command, device, settings: None, is_wanted: false, suspension, is_asked: false }
    }

    /// Lends the terminal to the command, which is about to start. If its input or output goes elsewhere, another process of the
    /// job may use the terminal, such as a pager. Then the command gets the terminal only when it asks.
    pub(super) fn lend(&mut self) {
        self.is_wanted = io::stdin().is_terminal() && io::stdout().is_terminal();
        if self.is_wanted {
            self.lend_now();
        }
    }

    /// What a shell does for its jobs. A command that wants the terminal gets it. With a command that the user suspends, this
    /// process is suspended too; the keeper still watches. Returns whether that happened.
    pub(super) fn look(&mut self) -> bool {
        if self.suspension.was_asked_for() {
            self.is_asked = true;
            self.command.signal(Signal::SIGTSTP);
        }
        match stopped_by(self.command) {
            Some(_) if self.is_asked => {
                self.suspend();
                return true;
            }
            Some(Signal::SIGTTIN | Signal::SIGTTOU) => self.lend_on_demand(),
            Some(_) if self.is_lent() => {
                self.suspend();
                return true;
            }
            None if self.is_wanted => {
                // The shell has brought this job to the foreground.
                self.lend_now();
            }
            _ => {}
        }
        false
    }

    fn lend_on_demand(&mut self) {
        // The command perhaps stopped just before it got the terminal. Then it has the terminal, and only has to
        // continue.
        if self.is_lent() || self.lend_now() {
            self.is_wanted = true;
            self.command.signal(Signal::SIGCONT);
        }
    }

    /// Stops this process after the command, and continues the command when a shell continues this process.
    fn suspend(&mut self) {
        self.is_asked = false;
        if self.is_lent() {
            self.take_back(false);
            // The terminal has stopped only the command, which had it. This signal stops the rest of the job.
            let _ = killpg(getpgrp(), Signal::SIGTSTP);
        } else {
            let _ = raise(Signal::SIGTSTP);
        }
        self.suspension.stop();
        if self.is_wanted {
            self.lend_now();
        }
        self.command.signal(Signal::SIGCONT);
    }

    /// False: there is no terminal, or another job has it.
    fn lend_now(&mut self) -> bool {
        let Some(device) = &self.device else { return false };
        if tcgetpgrp(device) != Ok(getpgrp()) {
            return false;
        }
        if self.settings.is_none() {
            self.settings = tcgetattr(device).ok();
        }
        tcsetpgrp(device, self.command.id()).is_ok()
    }

    /// Whether the command has the terminal, or has left it to nobody.
    fn is_lent(&self) -> bool {
        let holder = self.device.as_ref().and_then(|device| tcgetpgrp(device).ok());
        holder.is_some_and(|id| id == self.command.id() || !Group::new(id.as_raw()).exists())
    }

    /// Ends the loan. A command that was killed could not restore the settings of the terminal: then this process does.
    pub(super) fn take_back(&self, restores: bool) {
        let Some(device) = self.device.as_ref().filter(|_| self.is_lent()) else { return };
        // A process in the background that changes the terminal is stopped by SIGTTOU, unless this signal is blocked.
        let blocked = SigSet::from(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(device, getpgrp());
            if let Some(settings) = self.settings.as_ref().filter(|_| restores) {
                let _ = tcsetattr(device, SetArg::TCSANOW, settings);
            }
            let _ = blocked.thread_unblock();
        }
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
