//! The types of locks: API and documentation. [`base`] has the methods that all share, and what they run on. [`lock`] gives them to each type.

pub(crate) mod base;
mod claims;
mod fair;
mod fenced;
pub(crate) mod guard;
mod held;
mod lock;
mod multi;
mod read_write;
mod red;
mod rlock;
mod semaphore;
mod several;
mod span;
mod votes;

pub use base::BaseLock;
pub use claims::Claims;
pub use fair::FairLock;
pub use fenced::FencedLock;
pub use multi::{Member, MultiLock};
pub use read_write::{ReadLock, ReadWriteLock, WriteLock};
pub use red::RedLock;
pub use rlock::RLock;
pub use semaphore::{PermitId, Semaphore};
