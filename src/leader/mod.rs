//! Leading: one of several processes does the work, and the others stand by.
//!
//! A [`Candidate`] campaigns and runs the work, a [`Leadership`] is what the work knows of its term, and a [`LeaderWatch`] tells others
//! who leads. A leadership is a [`FencedLock`](crate::FencedLock).

// This module uses two things that are not public: `FencedLock::stand_by`, which is `lock` without reports of long
// waits, and the scripts of announcements, which tell others who leads.

mod announcements;
mod candidate;
mod leadership;
mod watch;

pub use candidate::{Candidate, CandidateHandle};
pub use leadership::Leadership;
pub use watch::{Leader, LeaderWatch};
