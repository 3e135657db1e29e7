//! The engine does all I/O and all waiting, once for all types of locks. The types differ in data: see [`crate::protocol`].

mod acquire;
mod gather;
mod grant;
mod handle;
mod hold;
mod lock_ref;
mod per_member;
mod query;
mod queue_names;
mod retry;
mod shared;
mod upkeep;
mod wait;

pub(crate) use acquire::span::Acquiring;
pub(crate) use acquire::{Patience, acquire};
pub(crate) use grant::Caller;
pub(crate) use grant::owner_grants::OwnerGrants;
pub(crate) use handle::{Handle, Quorum};
pub(crate) use hold::held::{HeldLock, HoldTimes};
pub(crate) use query::list::{info, list_all};
pub(crate) use query::{check_rights, force_unlock, inspect, is_locked, remaining_lease};
pub(crate) use shared::Engine;
pub(crate) use upkeep::failover::start;
