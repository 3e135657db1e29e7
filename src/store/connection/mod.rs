//! Connections to one server: how they are made, and what became of the commands that were sent on them.

mod connection_index;
mod dial;
mod endpoint;
mod login;
mod membership;
mod route;
mod server;
pub(crate) mod wire;

pub(crate) use connection_index::{ConnectionCount, ConnectionIndex};
pub(crate) use dial::{CommandDial, MessageDial, connect, connect_to_master};
pub(crate) use endpoint::{Endpoint, with_tcp_settings};
pub(crate) use login::follow;
pub(crate) use membership::Membership;
pub(crate) use route::Route;
pub(crate) use server::{Connection, Server};
