//! The in-memory server behaves as a real server does.

#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod cluster;
pub mod differential;
mod differential_tracking;
pub mod resp;
