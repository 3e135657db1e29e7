//! The only place that knows Redis. The engine asks a [`Store`] to run a script and to subscribe to channels, and gets plain data
//! back.

mod dial;
mod endpoint;
mod error;
mod facade;
mod listener;
mod login;
mod self_test;
mod server;
mod source;
mod subscriber;
mod task;
mod wire;

pub(crate) use error::OpenError;
pub(crate) use facade::Store;
pub(crate) use listener::Listener;
pub(crate) use server::{Connection, ConnectionIndex};
pub use source::Source;
