//! The gate: a command that was started does not run before the keeper can stop it.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::close;

/// The end of the front. If the front ends, the gate stays closed.
pub(super) struct Gate(Option<PipeWriter>);

impl Gate {
    /// Also returns the end of the process that becomes the command. It is inherited by its number.
    pub(super) fn new() -> io::Result<(Self, PipeReader)> {
        let (reader, writer) = pipe()?;
        fcntl(&reader, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok((Self(Some(writer)), reader))
    }

    /// Lets the command run.
    pub(super) fn open(&mut self) {
        if let Some(mut writer) = self.0.take() {
            let _ = writer.write_all(&[1]);
        }
    }
}

/// Waits until the gate is open. False: it stays closed. The command does not inherit the gate.
pub(super) fn pass(number: i32) -> io::Result<bool> {
    // The file is opened by its path, because only unsafe code can make a `File` of a number.
    let mut reader = File::open(format!("/dev/fd/{number}"))?;
    close(number)?;
    Ok(reader.read(&mut [0])? == 1)
}
