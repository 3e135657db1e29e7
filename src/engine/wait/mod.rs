//! Waiting for a lock that another owner holds, and what the owners of one client do for each other without a command: they hand a
//! hold over, and readers share one.
//!
//! Lock cohorting, after "Lock Cohorting: A General Technique for Designing NUMA Locks" (Dice, Marathe, Shavit; 2012): the client
//! holds the lock on the server for a short time, and its owners take turns within that time.
//!
//! [`machine`] decides. [`queue`] has its mutex, its clock and its wakers, and [`waiter`] is the future that waits.

mod machine;
pub(crate) mod queue;
pub(crate) mod waiter;
