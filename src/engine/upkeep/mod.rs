//! What goes on without a caller: renewals, heartbeats, releases that nobody awaits, and what follows a failover.
//!
//! [`scheduler`] runs a duty in a task of its own: it takes what is due off a list, and serves up to a hundred grants with one command. There
//! are two duties, [`renewal`] and [`heartbeat`]. [`records`] tells others what this client holds and waits for, from a task of its own. [`background`] runs jobs, such as undos, until they end. [`failover`] acts when another
//! server became the master, with what [`recent_releases`] remembers.

pub(crate) mod background;
pub(crate) mod failover;
pub(crate) mod heartbeat;
pub(crate) mod recent_releases;
pub(crate) mod records;
pub(crate) mod renewal;
pub(crate) mod scheduler;
