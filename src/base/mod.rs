//! What every other room uses: the clock, errors and faults, the settings, tasks. It knows no server and no lock.

pub(crate) mod client_id;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod error;
pub(crate) mod fault;
pub(crate) mod jitter;
pub(crate) mod limits;
pub(crate) mod options;
#[cfg(feature = "unstable-simulation")]
pub(crate) mod pauses;
#[cfg(feature = "unstable-simulation")]
pub(crate) mod process;
pub(crate) mod sync;
pub(crate) mod task;
pub(crate) mod thread;
pub(crate) mod timer;
pub(crate) mod token;

/// A source location in the program that uses this crate.
pub(crate) type Caller = &'static std::panic::Location<'static>;
