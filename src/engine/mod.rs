//! The engine does all I/O and all waiting, once for all types of locks. The types differ in data: see [`crate::protocol`].

mod acquire;
mod background;
mod gather;
mod giving_back;
mod grant;
mod handle;
mod heartbeat;
mod held;
mod hold;
mod keep;
mod lease;
mod lock_ref;
mod owner_grants;
mod per_member;
mod query;
mod queue_names;
mod releases;
mod renewal;
mod retry;
mod scheduler;
mod shared;
mod sharing;
mod switch;
mod terms;
mod under_way;
mod wait_queue;
mod waiter;

pub(crate) use acquire::{Patience, acquire};
pub(crate) use grant::Caller;
pub(crate) use handle::{Handle, Quorum};
pub(crate) use held::{HeldLock, HoldTimes};
pub(crate) use owner_grants::OwnerGrants;
pub(crate) use query::{check_rights, force_unlock, inspect, is_locked, remaining_lease};
pub(crate) use shared::Engine;
pub(crate) use switch::start;
