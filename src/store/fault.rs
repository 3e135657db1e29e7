//! What went wrong between this client and a server, as data.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Whether the command that failed may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It did not, and will not: it was handed to no connection.
    No,
    /// It did not, and will not: the server answered so.
    Refused,
    /// It may have run, and may still run.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The server wants other credentials.
    Authentication,
    /// The connection ended while the command was under way.
    Broken,
    /// The server refuses what needs memory.
    OutOfMemory,
    /// The user may not do this.
    Permission,
    /// A replica does not write.
    ReadOnly,
    /// An answer that no rule here expects.
    Rejected,
    /// No answer in time.
    TimedOut,
    /// The server is there and can not work now: it loads its data, runs a long script, or looks for its cluster.
    Unavailable,
    /// No connection could be had.
    Unreachable,
    /// The key holds a value of another type.
    WrongType,
}

/// A command failed.
#[derive(Clone)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) sent: Sent,
    cause: Arc<dyn Error + Send + Sync>,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, sent: Sent, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, sent, cause: cause.into().into() }
    }

    /// A reply that the script's header does not announce.
    pub(crate) fn unexpected(reply: &impl fmt::Debug) -> Self {
        Self::new(FaultKind::Rejected, Sent::Unknown, format!("unexpected reply {reply:?}"))
    }

    pub(crate) fn cause(&self) -> &(dyn Error + 'static) {
        &*self.cause
    }

    /// Whether the same command can succeed a moment later, without anybody changing anything.
    pub(crate) const fn is_transient(&self) -> bool {
        use FaultKind::{Broken, ReadOnly, TimedOut, Unavailable, Unreachable};
        matches!(self.kind, Broken | ReadOnly | TimedOut | Unavailable | Unreachable)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}", self.kind, self.cause)?;
        f.write_str(if self.sent == Sent::Unknown { ", outcome unknown)" } else { ")" })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}
