//! The in-memory server: what users test with it, and that it behaves as a real server does.

#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod cluster;
mod dice;
pub mod differential;
mod differential_tracking;
pub mod resp;
mod users;
