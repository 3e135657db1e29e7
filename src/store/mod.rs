//! The only place that knows Redis. The engine asks a [`Store`] to run a script and to subscribe to channels, and gets plain data
//! back.

mod certificates;
mod connection_index;
mod dial;
mod endpoint;
mod error;
mod facade;
mod first_contact;
mod identity;
mod listener;
mod login;
mod master;
mod membership;
mod messages;
mod route;
mod self_test;
mod server;
mod source;
mod subscriber;
mod subscriptions;
mod task;
mod topology;
mod wire;

pub(crate) use error::{OpenError, SourceError};
pub(crate) use facade::{Store, Switches};
pub(crate) use identity::Identity;
pub(crate) use listener::Listener;
pub(crate) use route::Route;
pub(crate) use server::Connection;
pub use source::Source;
