//! The engine does all I/O and all waiting, once for all types of locks. The types differ in data: see
//! [`crate::protocol`].
//!
//! # The life of a hold
//!
//! The engine knows one lock on one server. A call begins with a [`grant`], and attempts ([`acquire`]). If another owner holds the
//! lock, the call stands in a line of this client ([`line`]). What the server grants becomes a [`hold`], which a guard
//! has ([`held`]). From then on its lease is renewed ([`upkeep`]), until the guard gives the hold back: to the next
//! waiter of this client, or to the server. Whatever is dropped on the way is released in the [`background`]. Questions
//! about locks change nothing ([`query`]).
//!
//! `tests/house.rs` has the order of these files, from the bottom to the top.

mod acquire;
mod background;
mod grant;
mod handle;
mod held;
mod hold;
mod line;
mod listeners;
mod lock_ref;
mod names;
mod query;
mod recent_releases;
mod retry;
mod scheduler;
mod shared;
mod tracked;
mod under_way;
mod upkeep;
#[cfg(test)]
mod visit;
mod waits;

pub(crate) use acquire::wait::{Due, Wait};
pub(crate) use acquire::{Untaken, WaitLimit, acquire, answers_in, claim, end_of, joined, late};
pub(crate) use grant::Grant;
pub(crate) use grant::owner_grants::{OwnerGrants, OwnerNames};
pub(crate) use handle::Handle;
pub(crate) use held::{HeldLock, HoldTimes};
pub(crate) use lock_ref::{LockRef, NOT_A_LOCK, OTHER_PERMITS, check_name};
pub(crate) use query::permits;
pub(crate) use query::{force_all, holders, is_locked, list, run, run_at, with_type};
pub(crate) use shared::Engine;
pub(crate) use upkeep::start;
pub(crate) use waits::{LONG, Orders, Waits};
pub use waits::{RecentWait, WaitOutcome};
