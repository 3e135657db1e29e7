//! Servers and a fault proxy for the tests and benchmarks of lockkeeper.
//!
//! - [`Server`] runs a Redis or Valkey server of its own on a free port, and stops it when it is dropped. It can be
//!   frozen, killed and started again.
//! - [`Sentinels`] are three sentinels that watch a master and two replicas.
//! - [`Cluster`] is a group of masters that share the slots, with replicas. Slots can be moved, and nodes added.
//! - [`Certificates`] are for servers and clients that speak TLS.
//! - [`Refusal`] is a server that refuses a new client.
//! - [`Commands`] are what tests and benchmarks run on a server, and what they read from it.
//! - [`Proxy`] stands between a client and a server, and makes the faults that a network can make.
//! - [`Strict`] stands before a server, and refuses scripts whose keys are not declared, as some managed services do.
//! - [`lua`] reads the scripts of lockkeeper as the crate sends them.
//! - [`resp`] finds the ends of commands and replies in a byte stream.
//!
//! Every function panics when it cannot do its work, because its caller is a test or a benchmark, which has no use for
//! an error.

mod certificates;
mod clusters;
mod commands;
pub mod lua;
mod port;
mod process;
mod proxy;
mod refusal;
pub mod resp;
mod sentinels;
mod server;
mod stats;
mod strict;
mod turn;

pub use certificates::Certificates;
pub use clusters::Cluster;
pub use commands::Commands;
pub use port::ReservedPort;
pub use process::signal;
pub use proxy::{Faults, Proxy};
pub use refusal::Refusal;
pub use sentinels::{MASTER, Sentinels};
pub use server::Server;
pub use strict::{Strict, Wants};
