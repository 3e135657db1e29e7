//! The lines of calls that wait for a lock, and what the owners of one client do for each other without a command: they hand a hold
//! over, and readers share one.
//!
//! Lock cohorting, after "Lock Cohorting: A General Technique for Designing NUMA Locks" (Dice, Marathe, Shavit; 2012): the client holds the
//! lock on the server for a short time, and its owners take turns within that time.
//!
//! [`state`] decides. [`lines`] has its mutex, its clock and the wakers, and the future that waits. The task that attempts is in
//! `acquire/acquirer.rs`. A call on a free lock meets no line, except that a reader attempts for the readers that come meanwhile.
//!
//! # The explorer
//!
//! `explorer.rs` runs the lines of two clients with up to three calls each against a model of the server. In each run one thing goes wrong:
//! a call is cancelled or not polled any more, a reply is lost, a message connection breaks, a holder dies, somebody deletes the key, or a
//! step is late. The calls want one lock, or one or two of two permits. It checks:
//!
//! - No two calls have one hold, and there are not more holds than permits.
//! - No line sleeps beside a lock that was released, while messages arrive.
//! - A hold is not passed on after a message said that it is gone.
//! - An end can be reached from every state, and then the server has nothing.
//!
//! It does not cover readers who share, places in a fair queue, and time limits. The simulated worlds do.

pub(crate) mod lines;
pub(crate) mod state;
