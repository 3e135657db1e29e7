#![doc = include_str!("../README.md")]

mod client;
mod clock;
mod config;
mod engine;
mod error;
mod guard;
mod jitter;
mod locks;
mod names;
mod owner;
mod script;
mod store;
mod sync;

pub use client::{Holder, Inspection, LockClient};
pub use config::LockConfig;
pub use error::{Cause, Error, Result};
pub use guard::LockGuard;
pub use locks::{
    BaseLock, FairLock, FencedLock, Lent, Member, MultiLock, RLock, ReadLock, ReadWriteLock, RedLock,
    WriteLock,
};
pub use owner::Owner;
pub use store::Source;
