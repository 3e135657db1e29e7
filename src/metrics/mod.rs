//! What is counted and timed, for the feature `metrics`. Only this room knows the crate of that name.
//!
//! `recorded.rs` and `ignored.rs` have the same items. Without the feature, those of `ignored.rs` are used: they have no data and do
//! nothing.
//!
//! A client asks the recorder for its metrics when it needs them first, and keeps them. So nothing is looked up when a lock is
//! acquired, and the recorder has to be installed before the client connects.

mod group;
#[cfg(not(feature = "metrics"))]
mod ignored;
mod kinds;
#[cfg(feature = "metrics")]
mod recorded;
#[cfg(feature = "metrics")]
mod table;

pub(crate) use group::parse_group;
#[cfg(not(feature = "metrics"))]
pub(crate) use ignored::{Commands, Held, OfClient, OfLock, Reconnects, Renewing, Undoing, Waiting};
pub(crate) use kinds::{Acquired, ConnectionUse, LossCause, Renewed};
#[cfg(feature = "metrics")]
pub(crate) use recorded::{Commands, Held, OfClient, OfLock, Reconnects, Renewing, Undoing, Waiting};
