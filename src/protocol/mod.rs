//! What each type of lock sends to the server, and how it reads the replies: keys, scripts, calls and replies.
//!
//! This is pure data: no async, no clock, no connection. A type of lock is a unit struct that implements [`Protocol`].
//!
//! # What differs between the types
//!
//! - **Fair lock.** Each waiter has a place in a queue on the server, and a channel of its own. The first attempt queues. Heartbeats keep the
//!   places of a process, a hundred with one command, and their replies say whose turn it is: a lost message delays a waiter by one
//!   heartbeat. The place of a waiter that gives up is undone like an attempt.
//! - **Read-write lock.** One owner uses two protocols on one name. A read hold inside a write hold has the id of the writer, so that Java's
//!   scripts treat both as one owner. Each read hold has a key on the server with the number of its grant, so a late copy of a release
//!   cannot end a later read hold of the same id. Java's watchdog can shorten the lease of the whole lock, so the renewal also restores
//!   read holds with a fixed lease, up to their own end.
//! - **Claims.** One call names up to a hundred locks, and acquires the first free one. On the server each is an `RLock`. A copy of the call
//!   can acquire any of them, so an attempt is recorded for each of these locks, and undone for each.
//! - **Several members** are no protocol of their own. A `MultiLock` attempts its members one after the other, in an order that all clients
//!   share, up to the first refusal. A `RedLock` attempts all at once, and waits 5 to 50 ms more for replies that come after the decision. After
//!   a failed round, the call releases what it acquired, and waits for a member that refused. The hold is lost when fewer deadlines than the
//!   quorum are still in the future.

mod announcement;
mod claim;
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

pub(crate) use announcement::{
    Announced, MOST_BYTES, announcement_read, announcement_remove, announcement_write, parse_announced,
};
pub(crate) use claim::{Claim, claim};
pub use exclusive::Reentrant;
pub use fair::Fair;
pub use fenced::Fenced;
pub(crate) use found::{Found, FoundKind, TYPES, find};
pub(crate) use keys::{LockKeys, RELEASED, announcement_key, client_key, self_test_keys};
pub(crate) use listing::{Holding, LeaseLeft, Listing};
pub use read_write::{Read, Write};
pub(crate) use reply::{
    AcquireReply, ClaimReply, ConfirmReply, Granted, PermitInUse, PermitsReply, PlaceReply, ReleaseReply,
    RenewalReply, parse_heartbeat, parse_holders, parse_renewal,
};
pub(crate) use rights::{announcements, sharded};
pub(crate) use script::{Arg, Call, Form, PermitIds, Reply, Row, Script, owner_text};
pub(crate) use scripts::{check, client_read, client_write, inspect, self_test};
pub(crate) use semaphore::Semaphore;
pub(crate) use slot::slot;
pub(crate) use traits::{HolderRef, IfHeld, LockType, Protocol, Queue, millis};
