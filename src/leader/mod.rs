//! Leading: one of several processes does the work, and the others stand by. It is made of a fenced lock, and adds no keys.
//!
//! `candidate.rs` campaigns and runs the work, `leadership.rs` is what the work knows of it, and `watch.rs` tells who leads.

mod candidate;
mod leadership;
mod watch;

pub use candidate::{Candidate, Resigner};
pub use leadership::Leadership;
pub use watch::LeaderWatch;
