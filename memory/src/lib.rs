#![doc = include_str!("../README.md")]

mod channels;
mod clock;
mod cluster;
mod commands;
mod glob;
mod history;
mod keyspace;
mod link;
mod look;
mod lua;
mod memory_cluster;
mod net;
mod number;
mod scripts;
mod server;
mod simulated;
mod state;
mod sync;
mod tracking;
mod value;
mod wait;
mod wire;

#[doc(hidden)]
pub use link::Network;
#[doc(hidden)]
pub use memory_cluster::MemoryCluster;
pub use net::Stream;
pub use server::{Connecting, Data, MemoryServer};
