//! The only place that knows Redis. The engine asks a [`Store`] to run a script and to subscribe to channels, and gets plain data
//! back.

mod connection;
mod error;
mod facade;
mod messages;
mod source;
mod task;
mod topology;

pub(crate) use connection::{Connection, Route};
pub(crate) use error::{OpenError, SourceError};
pub(crate) use facade::{Store, Switches};
pub(crate) use messages::Listener;
pub(crate) use source::Identity;
pub use source::Source;
