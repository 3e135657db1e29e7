//! The types of locks, for tests that are generic over them.

use std::time::Duration;

use lockkeeper::{BaseLock, LockClient, Owner, RLock};

/// A type of lock under test.
pub trait Fixture: Send + Sync + 'static {
    type Lock: BaseLock + 'static;
    type Rival: BaseLock + 'static;

    fn lock(client: &LockClient, name: &str) -> Self::Lock;
    fn rival(client: &LockClient, name: &str) -> Self::Rival;
    /// With a fixed lease.
    fn leased(client: &LockClient, name: &str, lease: Duration) -> Self::Lock;
    /// With a longest hold.
    fn bounded(client: &LockClient, name: &str, most: Duration) -> Self::Lock;
    /// The lock of an owner, for a moment.
    fn lent(owner: &mut Owner, name: &str) -> impl BaseLock;
}

pub struct RLocks;

impl Fixture for RLocks {
    type Lock = RLock;
    type Rival = RLock;

    fn lock(client: &LockClient, name: &str) -> RLock {
        client.rlock(name)
    }

    fn rival(client: &LockClient, name: &str) -> RLock {
        client.rlock(name)
    }

    fn leased(client: &LockClient, name: &str, lease: Duration) -> RLock {
        client.rlock(name).lease(lease)
    }

    fn bounded(client: &LockClient, name: &str, most: Duration) -> RLock {
        client.rlock(name).max_hold(most)
    }

    fn lent(owner: &mut Owner, name: &str) -> impl BaseLock {
        owner.rlock(name)
    }
}
