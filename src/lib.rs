#![doc = include_str!(concat!(env!("OUT_DIR"), "/README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod base;
mod diagnosis;
mod engine;
pub mod leader;
mod locks;
mod protocol;
mod store;
mod telemetry;

pub use api::client::LockClient;
pub use api::list_parts::ListParts;
pub use api::owner::Owner;
pub use base::config::{LockConfig, LockConfigBuilder};
pub use base::credentials::Credentials;
pub use base::error::{Cause, ConfigError, Error, LockId, LossCause, Lost, Result};
pub use base::options::{LockOptions, LockOptionsBuilder};
pub use base::token::FencingToken;
#[cfg(feature = "unstable-simulation")]
#[doc(hidden)]
pub use base::{
    limits::Limits,
    pauses::{locked_mutexes, pause_by},
    process::Process,
};
pub use diagnosis::info::{HoldInfo, Holder, LockInfo, LockKind, LockList, RemainingLease};
pub use diagnosis::waits::{ChainLink, LockWait, WaitChain};
pub use engine::{RecentWait, WaitOutcome};
pub use locks::guard::{HoldWatch, LockGuard};
pub use locks::{
    BaseLock, Claims, FairLock, FencedLock, Lock, Member, MultiLock, PermitId, RLock, ReadLock,
    ReadWriteLock, RedLock, Semaphore, WriteLock,
};
pub use store::Source;

/// The kinds of a [`Lock`].
pub mod kind {
    pub use crate::locks::{Extra, Multi, Red, Single};
    pub use crate::protocol::{Fair, Fenced, Read, Reentrant, Write};
}

/// The deadpool-redis that this crate uses, so that your `Pool` has the right type. Its module `redis` is redis-rs.
#[cfg(feature = "deadpool-redis")]
pub use deadpool_redis;

// A new page needs two lines in `guide`. `build.rs` copies the pages to `OUT_DIR`, with links for rustdoc.
/// The pages of `docs/` for users.
#[cfg(any(doc, doctest))]
pub mod guide {
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/choosing.md"))]
    pub mod choosing {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/configuration.md"))]
    pub mod configuration {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/deploy.md"))]
    pub mod deploy {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/errors.md"))]
    pub mod errors {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/getting-started.md"))]
    pub mod getting_started {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/guarantees.md"))]
    pub mod guarantees {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/operate.md"))]
    pub mod operate {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/performance.md"))]
    pub mod performance {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/redisson.md"))]
    pub mod redisson {}
    // The doc tests of this page need `paused-clock`. rustdoc always shows the page, because other pages link to it.
    #[cfg(any(not(doctest), feature = "paused-clock"))]
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/docs/testing.md"))]
    pub mod testing {}
}
