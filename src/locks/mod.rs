//! The types of locks: API and documentation. What they have in common is in [`BaseLock`].

#[macro_use]
mod methods;

mod base;
mod fair;
mod fenced;
pub(crate) mod guard;
pub(crate) mod info;
mod multi;
mod owner_lock;
mod read_write;
mod red;
mod rlock;
mod sides;

pub use base::BaseLock;
pub use fair::FairLock;
pub use fenced::FencedLock;
pub use multi::{Member, MultiLock};
pub use owner_lock::OwnerLock;
pub use read_write::ReadWriteLock;
pub use red::RedLock;
pub use rlock::RLock;
pub use sides::{ReadLock, WriteLock};
