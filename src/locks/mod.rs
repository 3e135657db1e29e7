//! The types of locks: API and documentation. [`lock`] has the methods that all share, [`base`] what they run on.

mod announcements;
pub(crate) mod base;
mod claims;
mod fair;
mod fenced;
pub(crate) mod guard;
pub(crate) mod lock;
mod multi;
mod read_write;
mod red;
mod rlock;
mod semaphore;
mod span;

pub use announcements::Announcements;
pub use base::{BaseLock, Kind};
pub use claims::Claims;
pub use fair::{Fair, FairLock};
pub use fenced::{Fenced, FencedLock};
pub use lock::Lock;
pub use multi::{All, Member, MultiLock};
pub use read_write::{Read, ReadLock, ReadWriteLock, Sides, Write, WriteLock};
pub use red::{Majority, RedLock};
pub use rlock::{RLock, Reentrant};
pub use semaphore::{Permit, PermitHolder, PermitId, Semaphore};
