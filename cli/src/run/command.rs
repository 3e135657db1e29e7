//! The process that becomes the command.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nix::unistd::{Pid, getppid};
use tokio::process::Child;

use super::gate::{Gate, pass};
use super::message::Hold;
use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};

/// The owners of this `run` and of those around it, the outermost first.
pub(super) const OWNERS: &str = "LOCKKEEPER_OWNERS";

/// Starts the command, in a process group of its own. It waits at its gate.
pub(super) fn start(name: &str, hold: &Hold, command: &[OsString]) -> io::Result<(Child, Gate)> {
    let (gate, inherited) = Gate::new()?;
    let mut program = this_program(crate::EXEC)?;
    let numbers = [std::process::id().to_string(), inherited.as_raw_fd().to_string()];
    program.args(numbers).arg("--").args(command);
    program.env("LOCKKEEPER_NAME", name).env("LOCKKEEPER_OWNER", &hold.owner);
    let around = std::env::var(OWNERS).unwrap_or_default();
    program.env(OWNERS, format!("{around} {}", hold.owner).trim_start());
    match hold.token {
        Some(token) => program.env("LOCKKEEPER_TOKEN", token.to_string()),
        None => program.env_remove("LOCKKEEPER_TOKEN"),
    };
    Ok((program.spawn()?, gate))
}

/// A further process of this program, in a process group of its own: signals of a terminal do not reach it.
pub(crate) fn this_program(hidden: &str) -> io::Result<tokio::process::Command> {
    // The path of this program can lead to another version by now. `/proc/self/exe` leads to the version that runs.
    let running = PathBuf::from("/proc/self/exe");
    let path = if running.exists() { running } else { std::env::current_exe()? };
    let mut program = tokio::process::Command::new(path);
    program.arg0("lockkeeper").arg(hidden).process_group(0);
    Ok(program)
}

/// Waits at the gate, and becomes the command. Returns only if that fails.
pub(crate) fn become_command(parent: i32, gate: i32, command: &[OsString]) -> ExitCode {
    // `end_with_parent` comes before the check: the check finds a parent that died earlier, and a later death ends this
    // process.
    end_with_parent();
    if getppid() != Pid::from_raw(parent) {
        return NOT_EXECUTABLE.into();
    }
    match pass(gate) {
        Ok(true) => {}
        // The gate stays closed: the front is gone, or the lock was lost before the command could run.
        Ok(false) => return NOT_EXECUTABLE.into(),
        Err(error) => {
            return Failure { problem: format!("cannot open the gate: {error}"), code: NOT_EXECUTABLE }
                .report();
        }
    }
    let Some((program, arguments)) = command.split_first() else { return NOT_FOUND.into() };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    Failure { problem: format!("cannot run `{}`: {error}", program.display()), code }.report()
}

/// The kernel kills this process, and what it becomes, when its parent is gone.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn end_with_parent() {
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
}

/// Here only the keeper notices.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn end_with_parent() {}
