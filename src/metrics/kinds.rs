//! How the things that are counted differ. `recorded.rs` has the labels, in the same order.

/// How an acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted,
    /// Another owner held the lock, and the call did not wait.
    Busy,
    /// Another owner held the lock for as long as the call waited.
    TimedOut,
    Error,
    /// It was dropped before its end.
    Cancelled,
}

impl Acquired {
    /// The names in metrics and spans.
    pub(crate) const NAMES: [&'static str; 5] = ["granted", "busy", "timed_out", "error", "cancelled"];

    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// How a renewal of one hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Ok,
    /// The server did not have the hold any more.
    Gone,
    /// It is tried again.
    Failed,
}

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossCause {
    NotRenewed,
    /// The server did not have it any more.
    Removed,
    LeaseEnded,
    MaxHold,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionUse {
    Commands,
    Messages,
}
