//! The crates that are compared, behind one trait.

mod async_redis_lock;
mod distkit;
mod lockkeeper;
mod relock;
mod rlock;
mod rslock;
mod traits;

pub use self::async_redis_lock::AsyncRedisLock;
pub use self::distkit::Distkit;
pub use self::lockkeeper::{Clustered, Fair, NewHandles, Read, Red, Synced, Together};
pub use self::relock::Relock;
pub use self::rlock::Rlock;
pub use self::rslock::Rslock;
pub use self::traits::{LEASE, Lock, Peer};
