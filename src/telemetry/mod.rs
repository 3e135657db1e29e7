//! What is seen from outside: what is counted and timed, futures inside of spans, and a limit for events that repeat.
//!
//! Only this room knows the crate `metrics`, which the feature of that name brings.
//!
//! Without the feature, `no_instruments.rs` stands for `instruments.rs`, and nothing is kept for a lock or a hold.
//!
//! A client asks the recorder for its metrics when it needs them first, and keeps them. So nothing is looked up when a lock is
//! acquired, and the recorder has to be installed before the client connects.

mod inside;
#[cfg_attr(not(feature = "metrics"), path = "no_instruments.rs")]
mod instruments;
mod kinds;
mod records;
pub(crate) mod report;
mod table;

pub(crate) use inside::inside;
pub(crate) use instruments::Counter;
pub(crate) use kinds::{Acquired, Renewed};
pub(crate) use records::{Commands, Counted, Held, OfClient, OfLock, Renewing, reconnects, stalls};
