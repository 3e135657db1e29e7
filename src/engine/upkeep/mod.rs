//! What goes on without a caller: renewals, heartbeats, releases that nobody awaits, and what follows a failover.

pub(crate) mod background;
pub(crate) mod failover;
pub(crate) mod heartbeat;
pub(crate) mod recent_releases;
pub(crate) mod renewal;
pub(crate) mod scheduler;
