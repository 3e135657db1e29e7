//! `WAIT`: a client waits until replicas have what it wrote.

use std::time::Duration;

use crate::commands::{integer, wrong_number};
use crate::value::Bytes;

/// What a replica answers.
pub(crate) const OF_REPLICA: &str = "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a \
     replica is configured to be writable (which is not the default) writes to replicas are just \
     local and are not propagated.";

/// What those are told who wait when the server becomes a replica.
pub(crate) const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

pub(crate) struct Wait {
    pub(crate) replicas: usize,
    /// Zero: for ever.
    pub(crate) time: Duration,
}

impl Wait {
    /// Reads the words of the command.
    pub(crate) fn parse(words: &[Bytes]) -> Result<Self, String> {
        let [_, replicas, time] = words else { return Err(wrong_number("wait")) };
        let replicas = integer(replicas)?;
        let time = integer(time).map_err(|_| "ERR timeout is not an integer or out of range".to_owned())?;
        let time = u64::try_from(time).map_err(|_| "ERR timeout is negative".to_owned())?;
        Ok(Self { replicas: replicas.try_into().unwrap_or(0), time: Duration::from_millis(time) })
    }
}
