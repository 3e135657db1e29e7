//! The types of locks: API and documentation. [`lock`] has the methods of all kinds, [`several`] what a handle contains, and [`base`] what the kinds run on.

pub(crate) mod base;
mod claims;
mod fair;
mod fenced;
pub(crate) mod guard;
mod lock;
mod multi;
mod read_write;
mod red;
mod rlock;
mod semaphore;
mod several;
mod span;
mod votes;

pub use base::{BaseLock, Single};
pub use claims::Claims;
pub use fair::FairLock;
pub use fenced::FencedLock;
pub use guard::Extra;
pub use lock::Lock;
pub use multi::{Member, Multi, MultiLock};
pub use read_write::{ReadLock, ReadWriteLock, WriteLock};
pub use red::{Red, RedLock};
pub use rlock::RLock;
pub use semaphore::{PermitId, Semaphore};
