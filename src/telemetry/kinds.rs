//! How the things that are counted differ, and the labels for that.

use crate::base::error::LossCause;

macro_rules! kinds {
    ($($(#[$of_kinds:meta])* $kinds:ident { $($(#[$of_kind:meta])* $kind:ident = $label:literal,)* })*) => {$(
        $(#[$of_kinds])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $kinds {
            $($(#[$of_kind])* $kind,)*
        }

        impl $kinds {
            /// In the order of their numbers.
            pub(super) const ALL: [Self; [$($label),*].len()] = [$(Self::$kind),*];

            pub(crate) const fn label(self) -> &'static str {
                match self {
                    $(Self::$kind => $label,)*
                }
            }
        }
    )*};
}

kinds! {
    /// How an acquire ended. Spans have these labels, too.
    Acquired {
        Granted = "granted",
        /// Another owner held the lock, and the call did not wait.
        Busy = "busy",
        /// Another owner held the lock for as long as the call waited.
        TimedOut = "timed_out",
        Error = "error",
        /// It was dropped before its end.
        Cancelled = "cancelled",
    }

    /// How a renewal of one hold ended.
    Renewed {
        Ok = "ok",
        /// The server did not have the hold any more.
        Gone = "gone",
        /// It is tried again.
        Failed = "failed",
    }

    /// How a command ended.
    Answered {
        Ok = "ok",
        Refused = "refused",
        Unanswered = "unanswered",
        NotSent = "not_sent",
    }
}

impl LossCause {
    /// In the order of their numbers.
    pub(crate) const ALL: [Self; 4] = [Self::NotRenewed, Self::Removed, Self::LeaseEnded, Self::MaxHold];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::NotRenewed => "not_renewed",
            Self::Removed => "removed",
            Self::LeaseEnded => "lease_ended",
            Self::MaxHold => "max_hold",
        }
    }
}
