//! The engine does all I/O and all waiting, once for all types of locks. The types differ in data: see [`crate::protocol`].
//!
//! # The life of a hold
//!
//! A call begins with a [`grant`] for each member of its lock, and attempts ([`acquire`]). If another owner holds the lock, the call stands in a
//! queue of this client ([`wait`]). What the server grants becomes a [`hold`], which a guard has ([`held`]). From then on its lease is renewed
//! ([`upkeep`]), until the guard gives the hold back: to the next waiter of this client, or to the server. Whatever is dropped on the way is
//! released in the [`background`]. Questions about locks change nothing ([`query`]).
//!
//! `tests/house.rs` has the order of these files, from the bottom to the top.

mod acquire;
mod background;
mod grant;
mod handle;
mod held;
mod hold;
mod listeners;
mod lock_ref;
mod members;
mod names;
mod query;
mod recent_releases;
mod retry;
mod scheduler;
mod shared;
mod under_way;
mod upkeep;
mod wait;

pub(crate) use acquire::recent_waits::{Outcome, RecentWait};
pub(crate) use acquire::{WaitLimit, acquire, claim};
pub(crate) use grant::Grant;
pub(crate) use grant::owner_grants::{OwnerGrants, OwnerNames};
pub(crate) use grant::sharing::Offer;
pub(crate) use handle::{Handle, Quorum};
pub(crate) use held::{HeldLock, HoldTimes};
pub(crate) use lock_ref::LockRef;
pub(crate) use query::clients::Clients;
pub(crate) use query::list::{Part, Scan, info};
pub(crate) use query::permits;
pub(crate) use query::why::{Chain, all_chains, chains};
pub(crate) use query::{
    check_rights, force_unlock, force_unlock_of, inspect, is_locked, remaining_lease, run, with_type,
};
pub(crate) use shared::Engine;
pub(crate) use upkeep::start;
pub(crate) use wait::queue::WakeUps;
