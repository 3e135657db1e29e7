//! What the owners of one client do for each other without a command: they pass a hold on, and readers share one.
//!
//! Lock cohorting, after "Lock Cohorting: A General Technique for Designing NUMA Locks" (Dice, Marathe, Shavit; 2012): the client
//! holds the lock on the server for a short time, and its owners take turns within that time.

pub(super) mod join;
pub(super) mod line;
pub(super) mod pass;
mod queue;
pub(super) mod seat;
pub(super) mod share;
