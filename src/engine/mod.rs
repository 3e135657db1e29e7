//! The engine does all I/O and all waiting, once for all types of locks. The types differ in data: see [`crate::protocol`].
//!
//! # The life of a hold
//!
//! A call begins with a [`grant`] for each member of its lock, and attempts ([`acquire`]). If another owner holds the lock, the call stands in a
//! queue of this client ([`wait`]). What the server grants becomes a [`hold`], which a guard has. From then on its lease is renewed
//! ([`upkeep`]), until the guard gives the hold back: to the next waiter of this client, or to the server. Whatever is dropped on the way is
//! released in the background. Questions about locks change nothing ([`query`]).

mod acquire;
mod announce;
mod gather;
mod grant;
mod handle;
mod hold;
mod lock_ref;
mod per_member;
mod query;
mod queue_names;
mod reported_totals;
mod retry;
mod shared;
mod upkeep;
mod wait;

pub(crate) use acquire::recent_waits::{Outcome, RecentWait};
pub(crate) use acquire::span::AcquireSpan;
pub(crate) use acquire::{WaitLimit, acquire, claim};
pub(crate) use announce::{Announcer, Listening, announced};
pub(crate) use grant::owner_grants::{OwnerGrants, OwnerNames};
pub(crate) use grant::{Caller, Grant};
pub(crate) use handle::{Handle, Quorum};
pub(crate) use hold::held::{HeldLock, HoldTimes};
pub(crate) use lock_ref::LockRef;
pub(crate) use query::clients::Clients;
pub(crate) use query::list::{Part, Scan, info};
pub(crate) use query::permits;
pub(crate) use query::why::{Chain, all_chains, chains};
pub(crate) use query::{
    check_rights, force_unlock, force_unlock_of, inspect, is_locked, remaining_lease, with_type,
};
pub(crate) use shared::Engine;
pub(crate) use upkeep::failover::start;
pub(crate) use wait::waiter::WakeUps;
