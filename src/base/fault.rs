//! What went wrong between this client and a server, as data.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Whether a command that failed possibly ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The command did not run and will not: no connection took it.
    No,
    /// The command did not run and will not: the server answered so.
    Refused,
    /// The command possibly ran, or will still run.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The server refuses the credentials.
    Authentication,
    /// The connection ended while the command was under way.
    Broken,
    /// The server or the client library refuses something in the source, such as the number of the database.
    Configuration,
    /// The server refuses commands that need memory.
    OutOfMemory,
    /// The user has no right to do this.
    Permission,
    /// The server is a replica, which does not write.
    ReadOnly,
    /// The answer is one that this crate does not know.
    Rejected,
    /// The runtime of the client is gone.
    RuntimeGone,
    /// The server wants the keys of a command to be in one slot.
    SeveralSlots,
    /// Some keys of the command are at this server of a cluster, and others can be elsewhere.
    Split,
    /// There was no answer in time.
    TimedOut,
    /// By the server's clock, the command came after its time. It changed nothing.
    Late,
    /// The server granted the lock, and too few replicas have the hold.
    TooFewReplicas { acknowledged: u32, wanted: u32 },
    /// The server runs and cannot work now: it loads its data, runs a long script, or its cluster is down.
    Unavailable,
    /// No connection could be made.
    Unreachable,
    /// The key holds a value of another type.
    WrongType,
}

/// The failure of a command.
#[derive(Clone)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) sent: Sent,
    cause: Arc<dyn Error + Send + Sync>,
    /// The address of the server.
    server: Option<Arc<str>>,
    /// Where the command has to be sent instead.
    pub(crate) redirect: Option<Arc<Redirect>>,
}

/// What a node of a cluster says about a slot that it does not have.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    /// The node that has the slot: host and port.
    pub(crate) address: String,
    /// The slot is being moved to that node. Only this command is to be sent there.
    pub(crate) is_for_once: bool,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, sent: Sent, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, sent, cause: cause.into().into(), server: None, redirect: None }
    }

    /// A reply that the header of the script does not announce.
    pub(crate) fn unexpected(reply: &impl fmt::Debug) -> Self {
        Self::new(FaultKind::Rejected, Sent::Unknown, format!("unexpected reply {reply:?}"))
    }

    /// Names the server, if nothing did so before.
    pub(crate) fn at(mut self, server: &Arc<str>) -> Self {
        self.server.get_or_insert_with(|| Arc::clone(server));
        self
    }

    pub(crate) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Whether the store sends the command again, at once.
    pub(crate) fn is_followed(&self) -> bool {
        self.redirect.is_some() || self.kind == FaultKind::Late
    }

    /// Whether the same command can succeed a moment later, if nobody changes anything.
    pub(crate) const fn is_transient(&self) -> bool {
        use FaultKind::{Authentication, Configuration, Permission, Rejected, RuntimeGone, WrongType};
        !matches!(self.kind, Authentication | Configuration | Permission | Rejected | RuntimeGone | WrongType)
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
