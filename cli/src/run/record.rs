//! The record of the wait for the lock: a line of JSON for each.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use lockkeeper::LockClient;

use crate::exit::Failure;

/// Where the waits are added.
pub(super) struct Record(File);

impl Record {
    /// A file that cannot be written is found before anything is acquired. The standard output of this process is a pipe to the front, so
    /// `/dev/stdout` is none.
    pub(super) fn open(file: &Path) -> Result<Self, Failure> {
        let refused =
            |problem: &dyn Display| Failure::usage(format!("--record {}: {problem}", file.display()));
        let opened =
            OpenOptions::new().create(true).append(true).open(file).map_err(|error| refused(&error))?;
        let is_file = opened.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file { Ok(Self(opened)) } else { Err(refused(&"it is no file")) }
    }

    /// Adds the waits of the client, in one write, because other processes can add to the same file. A fault is ignored: the lock matters
    /// more than the record.
    pub(super) fn add(&mut self, locks: &LockClient) {
        let lines = locks.recent_waits().into_iter();
        let lines: String =
            lines.filter_map(|wait| Some(serde_json::to_string(&wait).ok()? + "\n")).collect();
        let _ = self.0.write_all(lines.as_bytes());
    }
}
