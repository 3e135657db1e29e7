//! The types of locks, for tests that are generic over them.

use std::time::Duration;

use lockkeeper::{BaseLock, FairLock, LockClient, Owner, RLock, ReadLock, WriteLock};

/// A type of lock under test.
pub trait Fixture: Send + Sync + 'static {
    type Lock: BaseLock + 'static;
    type Rival: BaseLock + 'static;

    /// Many can hold it together.
    const IS_SHARED: bool = false;
    const IS_READ_WRITE: bool = false;

    /// The scripts that take, keep and release it.
    const ACQUIRE: &'static str;
    const REENTER: &'static str = "rlock/reenter.lua";
    const RENEW: &'static str = "rlock/renew.lua";
    const RELEASE: &'static str;

    fn lock(client: &LockClient, name: &str) -> Self::Lock;
    fn rival(client: &LockClient, name: &str) -> Self::Rival;
    /// With a fixed lease.
    fn leased(client: &LockClient, name: &str, lease: Duration) -> Self::Lock;
    /// With a longest hold.
    fn bounded(client: &LockClient, name: &str, most: Duration) -> Self::Lock;
    /// The lock of an owner, for a moment.
    fn lent(owner: &mut Owner, name: &str) -> impl BaseLock;
}

/// A lock that excludes itself.
macro_rules! fixture {
    ($fixture:ident: $lock:ident by $method:ident, scripts in $folder:literal) => {
        pub struct $fixture;

        impl Fixture for $fixture {
            type Lock = $lock;
            type Rival = $lock;

            const ACQUIRE: &'static str = concat!($folder, "/acquire.lua");
            const RELEASE: &'static str = concat!($folder, "/release.lua");

            fn lock(client: &LockClient, name: &str) -> $lock {
                client.$method(name)
            }

            fn rival(client: &LockClient, name: &str) -> $lock {
                client.$method(name)
            }

            fn leased(client: &LockClient, name: &str, lease: Duration) -> $lock {
                client.$method(name).lease(lease)
            }

            fn bounded(client: &LockClient, name: &str, most: Duration) -> $lock {
                client.$method(name).max_hold(most)
            }

            fn lent(owner: &mut Owner, name: &str) -> impl BaseLock {
                owner.$method(name)
            }
        }
    };
}

fixture!(FairLocks: FairLock by fair_lock, scripts in "fair");
fixture!(RLocks: RLock by rlock, scripts in "rlock");

/// One side of a read-write lock, whose rival is the one that writes.
macro_rules! read_write_fixture {
    ($fixture:ident: $lock:ident by $into:ident, scripts in $folder:literal $(, $name:ident: $type:ty = $value:expr)*) => {
        pub struct $fixture;

        impl Fixture for $fixture {
            type Lock = $lock;
            type Rival = WriteLock;

            const IS_READ_WRITE: bool = true;
            $(const $name: $type = $value;)*

            const ACQUIRE: &'static str = concat!($folder, "/acquire.lua");
            const RELEASE: &'static str = concat!($folder, "/release.lua");

            fn lock(client: &LockClient, name: &str) -> $lock {
                client.read_write_lock(name).$into()
            }

            fn rival(client: &LockClient, name: &str) -> WriteLock {
                client.read_write_lock(name).into_write()
            }

            fn leased(client: &LockClient, name: &str, lease: Duration) -> $lock {
                client.read_write_lock(name).$into().lease(lease)
            }

            fn bounded(client: &LockClient, name: &str, most: Duration) -> $lock {
                client.read_write_lock(name).max_hold(most).$into()
            }

            fn lent(owner: &mut Owner, name: &str) -> impl BaseLock {
                owner.read_write_lock(name).$into()
            }
        }
    };
}

read_write_fixture!(ReadLocks: ReadLock by into_read, scripts in "read",
    IS_SHARED: bool = true, REENTER: &'static str = "read/reenter.lua", RENEW: &'static str = "read/renew.lua");
read_write_fixture!(WriteLocks: WriteLock by into_write, scripts in "write");

/// Makes a test of each function for each type of lock. A new type is one more line here.
macro_rules! for_each_lock {
    ($($test:ident)*) => {
        for_each_lock! { fair: FairLocks; $($test)* }
        for_each_lock! { read: ReadLocks; $($test)* }
        for_each_lock! { rlock: RLocks; $($test)* }
        for_each_lock! { write: WriteLocks; $($test)* }
    };
    ($kind:ident: $fixture:ident; $($test:ident)*) => {
        mod $kind {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$test::<crate::support::fixture::$fixture>().await;
                }
            )*
        }
    };
}

pub(crate) use for_each_lock;
