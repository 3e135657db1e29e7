//! The process that becomes the command.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::unistd::{Pid, getppid};

use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};

/// Becomes the command. Returns only if that fails.
pub(crate) fn become_command(parent: i32, command: &[String]) -> ExitCode {
    // Asked first and checked then: a parent that is gone before the first line is noticed by the second one.
    end_with_parent();
    if getppid() != Pid::from_raw(parent) {
        return NOT_EXECUTABLE.into();
    }
    let Some((program, arguments)) = command.split_first() else { return NOT_FOUND.into() };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    Failure { problem: format!("cannot run `{program}`: {error}"), code }.report()
}

/// The kernel kills this process, and what it becomes, when its parent is gone.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn end_with_parent() {
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
}

/// Here only the keeper notices.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn end_with_parent() {}
