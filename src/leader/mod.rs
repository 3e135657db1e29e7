//! Leading: one of several processes does the work, and the others stand by.
//!
//! A [`Candidate`] campaigns and runs the work, a [`Leadership`] is what the work knows of its term, and a [`LeaderWatch`] tells others
//! who leads. It is made of a [`FencedLock`](crate::FencedLock) and its [`Announcements`](crate::Announcements). Beside what is public, these have
//! `stand_by`, as `lock` without reports of long waits, and `holder`, which asks for the list of all connections only if it must.

mod candidate;
mod leadership;
mod watch;

pub use candidate::{Candidate, CandidateHandle};
pub use leadership::Leadership;
pub use watch::{Leader, LeaderWatch};
