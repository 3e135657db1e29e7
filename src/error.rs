//! What can go wrong.

use std::fmt;

use crate::store::{Fault, FaultKind, OpenError, Sent};

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// A lock that somebody else holds is never an error: `try_lock` and `try_lock_for` answer `Ok(None)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server refuses the user name or the password.
    Authentication(Cause),
    /// The client was shut down, or the runtime on which it was made is gone.
    Closed,
    /// A setting of [`LockConfig`](crate::LockConfig), or the address, is no good. Nothing was sent.
    #[non_exhaustive]
    InvalidConfig {
        /// The setting; `url` for the address.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A duration that was passed is no good. Nothing was sent.
    #[non_exhaustive]
    InvalidDuration {
        /// What it was passed as: `lease`, `max_hold` or `wait`.
        argument: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The handles do not make a lock together.
    #[non_exhaustive]
    InvalidMembers {
        /// What is wrong with them.
        problem: &'static str,
    },
    /// The name is no good. Nothing was sent.
    #[non_exhaustive]
    InvalidName {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The lock was lost while it was in use: its lease ended, or somebody removed it. The work was stopped.
    #[non_exhaustive]
    Lost {
        /// The lock.
        name: String,
    },
    /// What should be released was not held any more: for an unknown time before, the section was not protected.
    #[non_exhaustive]
    NotHeld {
        /// The lock.
        name: String,
    },
    /// The server has no memory left for a new lock. Releasing and renewing still work.
    OutOfMemory(Cause),
    /// The server does not allow this user one of the commands, keys or channels.
    Permission(Cause),
    /// The server is a replica, which does not write.
    ReadOnly(Cause),
    /// The server gave an answer that is not understood.
    Server(Cause),
    /// The server did not answer in time.
    TimedOut(Cause),
    /// The server can not work now: it loads its data, runs a long script, or looks for its cluster.
    Unavailable(Cause),
    /// No connection could be had, or it broke.
    Unreachable(Cause),
    /// The server is older than Redis 7.0 or Valkey 7.2.
    #[non_exhaustive]
    UnsupportedServer {
        /// What it said of itself; empty if it can not even say that.
        version: String,
    },
    /// An owner that reads wants to write. It would wait for its own read lock, so it has to give that back first.
    #[non_exhaustive]
    Upgrade {
        /// The lock.
        name: String,
    },
    /// The name is in use as a lock of another kind, or the key as something else. Nothing was changed.
    #[non_exhaustive]
    WrongKind {
        /// The lock.
        name: String,
        /// What the name is in use as.
        found: &'static str,
    },
}

/// The error behind an [`Error`], of whatever library noticed it.
#[derive(Clone)]
pub struct Cause(Fault);

impl Error {
    /// Whether the server may have done what was asked for, or may do so yet.
    ///
    /// After an acquire this needs no care: what may have been acquired is released in the background. After an
    /// `unlock`, the release goes on in the background as well.
    pub const fn outcome_unknown(&self) -> bool {
        match self.cause() {
            Some(Cause(fault)) => matches!(fault.sent, Sent::Unknown),
            None => false,
        }
    }

    /// Whether the same call can succeed later without a change to the program, its settings or its names.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory(_)
                | Self::ReadOnly(_)
                | Self::TimedOut(_)
                | Self::Unavailable(_)
                | Self::Unreachable(_)
        )
    }

    const fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Authentication(cause)
            | Self::OutOfMemory(cause)
            | Self::Permission(cause)
            | Self::ReadOnly(cause)
            | Self::Server(cause)
            | Self::TimedOut(cause)
            | Self::Unavailable(cause)
            | Self::Unreachable(cause) => Some(cause),
            Self::Closed
            | Self::InvalidConfig { .. }
            | Self::InvalidDuration { .. }
            | Self::InvalidMembers { .. }
            | Self::InvalidName { .. }
            | Self::Lost { .. }
            | Self::NotHeld { .. }
            | Self::UnsupportedServer { .. }
            | Self::Upgrade { .. }
            | Self::WrongKind { .. } => None,
        }
    }

    pub(crate) fn wrong_kind(name: &str, is_read_write: bool) -> Self {
        let found = if is_read_write { "a read-write lock" } else { "a lock that is not a read-write lock" };
        Self::WrongKind { name: name.to_owned(), found }
    }

    /// A command about the lock `name` failed.
    pub(crate) fn of_lock(name: &str, fault: Fault) -> Self {
        match fault.kind {
            FaultKind::WrongType => Self::WrongKind { name: name.to_owned(), found: "a key of another type" },
            _ => fault.into(),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let variant = match fault.kind {
            FaultKind::Authentication => Self::Authentication,
            FaultKind::Broken | FaultKind::Unreachable => Self::Unreachable,
            FaultKind::OutOfMemory => Self::OutOfMemory,
            FaultKind::Permission => Self::Permission,
            FaultKind::ReadOnly => Self::ReadOnly,
            FaultKind::Rejected | FaultKind::WrongType => Self::Server,
            FaultKind::TimedOut => Self::TimedOut,
            FaultKind::Unavailable => Self::Unavailable,
        };
        variant(Cause(fault))
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Fault(fault) => fault.into(),
            OpenError::Source(error) => Self::InvalidConfig {
                field: "url",
                // Not the address itself: it may hold a password.
                problem: format!("is not an address such as redis://user:password@host:6379/0: {}", error.0),
            },
            OpenError::Unsupported { version } => Self::UnsupportedServer { version },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authentication(_) => f.write_str("the server refuses the credentials"),
            Self::Closed => f.write_str("the lock client was shut down, or its runtime is gone"),
            Self::InvalidConfig { field, problem } => write!(f, "invalid configuration: `{field}` {problem}"),
            Self::InvalidDuration { argument, problem } => {
                write!(f, "invalid duration: `{argument}` {problem}")
            }
            Self::InvalidMembers { problem } => write!(f, "invalid members of a lock: {problem}"),
            Self::InvalidName { problem } => write!(f, "invalid lock name: {problem}"),
            Self::Lost { name } => write!(f, "the lock `{name}` was lost"),
            Self::NotHeld { name } => {
                write!(f, "the lock `{name}` was not held any more when it was released")
            }
            Self::OutOfMemory(_) => f.write_str("the server has no memory left for a new lock"),
            Self::Permission(_) => f.write_str("the server does not allow this user to lock"),
            Self::ReadOnly(_) => f.write_str("the server is a read-only replica"),
            Self::Server(_) => f.write_str("the server gave an answer that is not understood"),
            Self::TimedOut(_) => f.write_str("the server did not answer in time"),
            Self::Unavailable(_) => f.write_str("the server can not work now"),
            Self::Unreachable(_) => f.write_str("the server can not be reached"),
            Self::UnsupportedServer { version } if version.is_empty() => {
                f.write_str("the server is older than Redis 7.0 or Valkey 7.2")
            }
            Self::UnsupportedServer { version } => {
                write!(f, "the server has version {version}, older than Redis 7.0 or Valkey 7.2")
            }
            Self::Upgrade { name } => {
                write!(f, "the read lock `{name}` is held by the owner that wants the write lock")
            }
            Self::WrongKind { name, found } => write!(f, "the name `{name}` is in use as {found}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().map(|Cause(fault)| fault.cause())
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
