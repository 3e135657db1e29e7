//! The lines of calls that wait for a lock, and what the owners of one client do for each other without a command: they hand a hold
//! over, and readers share one.
//!
//! Lock cohorting, after "Lock Cohorting: A General Technique for Designing NUMA Locks" (Dice, Marathe, Shavit; 2012): the client holds the
//! lock on the server for a short time, and its owners take turns within that time.
//!
//! [`state`] decides. [`lines`] has its mutex, its clock and the wakers, and [`place`] is the future that waits. The task that asks the
//! server is `acquire/acquirer.rs`. A call on a free lock meets no line, except that a reader asks for those who come meanwhile.
//!
//! # The explorer
//!
//! (to be written)

pub(crate) mod lines;
pub(crate) mod place;
pub(crate) mod state;
