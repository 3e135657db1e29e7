//! What each type of lock sends to the server, and how it reads the replies: keys, scripts, calls and replies.
//!
//! This is pure data: no async, no clock, no connection. A type of lock is a unit struct that implements [`Protocol`].

mod exclusive;
mod fair;
mod fenced;
mod found;
mod keys;
mod listing;
mod read_write;
mod reply;
mod rights;
mod script;
mod scripts;
mod semaphore;
mod slot;
mod traits;

pub(crate) use exclusive::Reentrant;
pub(crate) use fair::Fair;
pub(crate) use fenced::Fenced;
pub(crate) use found::{Found, find};
pub(crate) use keys::LockKeys;
pub(crate) use listing::{Holding, LeaseLeft, Listing};
pub(crate) use read_write::{Read, Write};
pub(crate) use reply::{
    AcquireReply, Granted, PermitInUse, PermitsReply, PlaceReply, ReleaseReply, StateReply, parse_heartbeat,
    parse_holders, parse_renewal,
};
pub(crate) use rights::sharded;
pub(crate) use script::{Arg, Batch, Call, Form, PermitIds, Reply, Row};
pub(crate) use scripts::{check, inspect, self_test};
pub(crate) use semaphore::Semaphore;
pub(crate) use slot::slot;
pub(crate) use traits::{HolderRef, IfHeld, LockType, Protocol, millis};
