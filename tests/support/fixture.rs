//! The lock types, for tests that are generic over them.

use super::options::{at_least, at_most, fixed};
use std::time::Duration;

use lockkeeper::{
    BaseLock, FairLock, FencedLock, Lock, LockClient, MultiLock, Owner, RLock, ReadLock, RedLock, WriteLock,
    kind,
};

/// A lock type under test.
pub trait Fixture: Send + Sync + 'static {
    type Kind: BaseLock;
    type Rival: BaseLock;

    /// Whether many owners can hold it together.
    const IS_SHARED: bool = false;
    const IS_READ_WRITE: bool = false;

    /// The scripts that acquire it, show its hold count, renew it and release it.
    const ACQUIRE: &'static str;
    const SHOW: &'static str = "rlock/show.lua";
    const RENEW: &'static str = "rlock/renew.lua";
    const RELEASE: &'static str;

    fn lock(client: &LockClient, name: &str) -> Lock<'static, Self::Kind>;
    /// A lock of the same name that excludes it.
    fn rival(client: &LockClient, name: &str) -> Lock<'static, Self::Rival>;
    /// The same lock with a fixed lease.
    fn leased(client: &LockClient, name: &str, lease: Duration) -> Lock<'static, Self::Kind>;
    /// The same lock with a longest hold.
    fn bounded(client: &LockClient, name: &str, most: Duration) -> Lock<'static, Self::Kind>;
    /// The same lock with a least hold.
    fn kept(client: &LockClient, name: &str, least: Duration) -> Lock<'static, Self::Kind>;
}

/// A lock type that an `Owner` can lend.
pub trait Lending: Fixture {
    /// The lock of an owner.
    fn lent<'a>(owner: &'a mut Owner, name: &str) -> Lock<'a, Self::Kind>;
    /// The same lock with a fixed lease.
    fn lent_leased<'a>(owner: &'a mut Owner, name: &str, lease: Duration) -> Lock<'a, Self::Kind>;
}

/// A lock type whose rival is the same type.
macro_rules! fixture {
    ($fixture:ident: $kind:ident $lock:ident by $method:ident, acquire in $acquire:literal, release in $release:literal) => {
        pub struct $fixture;

        impl Fixture for $fixture {
            type Kind = kind::$kind;
            type Rival = kind::$kind;

            const ACQUIRE: &'static str = concat!($acquire, "/acquire.lua");
            const RELEASE: &'static str = concat!($release, "/release.lua");

            fn lock(client: &LockClient, name: &str) -> $lock<'static> {
                client.$method(name)
            }

            fn rival(client: &LockClient, name: &str) -> $lock<'static> {
                client.$method(name)
            }

            fn leased(client: &LockClient, name: &str, lease: Duration) -> $lock<'static> {
                client.$method(name).with(&fixed(lease))
            }

            fn bounded(client: &LockClient, name: &str, most: Duration) -> $lock<'static> {
                client.$method(name).with(&at_most(most))
            }

            fn kept(client: &LockClient, name: &str, least: Duration) -> $lock<'static> {
                client.$method(name).with(&at_least(least))
            }
        }

        impl Lending for $fixture {
            fn lent<'a>(owner: &'a mut Owner, name: &str) -> Lock<'a, Self::Kind> {
                owner.$method(name)
            }

            fn lent_leased<'a>(owner: &'a mut Owner, name: &str, lease: Duration) -> Lock<'a, Self::Kind> {
                owner.$method(name).with(&fixed(lease))
            }
        }
    };
}

fixture!(FairLocks: Fair FairLock by fair_lock, acquire in "fair", release in "fair");
fixture!(FencedLocks: Fenced FencedLock by fenced_lock, acquire in "fenced", release in "rlock");
fixture!(RLocks: Reentrant RLock by rlock, acquire in "rlock", release in "rlock");

/// One side of a read-write lock. Its rival is the write lock.
macro_rules! read_write_fixture {
    ($fixture:ident: $kind:ident $lock:ident by $into:ident, scripts in $folder:literal $(, $name:ident: $type:ty = $value:expr)*) => {
        pub struct $fixture;

        impl Fixture for $fixture {
            type Kind = kind::$kind;
            type Rival = kind::Write;

            const IS_READ_WRITE: bool = true;
            $(const $name: $type = $value;)*

            const ACQUIRE: &'static str = concat!($folder, "/acquire.lua");
            const RELEASE: &'static str = concat!($folder, "/release.lua");

            fn lock(client: &LockClient, name: &str) -> $lock<'static> {
                client.read_write_lock(name).$into()
            }

            fn rival(client: &LockClient, name: &str) -> WriteLock<'static> {
                client.read_write_lock(name).into_write()
            }

            fn leased(client: &LockClient, name: &str, lease: Duration) -> $lock<'static> {
                client.read_write_lock(name).$into().with(&fixed(lease))
            }

            fn bounded(client: &LockClient, name: &str, most: Duration) -> $lock<'static> {
                client.read_write_lock(name).with(&at_most(most)).$into()
            }

            fn kept(client: &LockClient, name: &str, least: Duration) -> $lock<'static> {
                client.read_write_lock(name).with(&at_least(least)).$into()
            }
        }

        impl Lending for $fixture {
            fn lent<'a>(owner: &'a mut Owner, name: &str) -> Lock<'a, Self::Kind> {
                owner.read_write_lock(name).$into()
            }

            fn lent_leased<'a>(owner: &'a mut Owner, name: &str, lease: Duration) -> Lock<'a, Self::Kind> {
                owner.read_write_lock(name).with(&fixed(lease)).$into()
            }
        }
    };
}

read_write_fixture!(ReadLocks: Read ReadLock by into_read, scripts in "read",
    IS_SHARED: bool = true, SHOW: &'static str = "read/show.lua", RENEW: &'static str = "read/renew.lua");
read_write_fixture!(WriteLocks: Write WriteLock by into_write, scripts in "write");

/// Several locks as one. The rival names them in the opposite order.
macro_rules! joined_fixture {
    ($fixture:ident: $kind:ident $lock:ident of $names:expr) => {
        pub struct $fixture;

        impl Fixture for $fixture {
            type Kind = kind::$kind;
            type Rival = kind::$kind;

            const ACQUIRE: &'static str = "rlock/acquire.lua";
            const RELEASE: &'static str = "rlock/release.lua";

            fn lock(client: &LockClient, name: &str) -> $lock {
                $lock::new($names.iter().map(|suffix| client.rlock(format!("{name}{suffix}")))).unwrap()
            }

            fn rival(client: &LockClient, name: &str) -> $lock {
                $lock::new($names.iter().rev().map(|suffix| client.rlock(format!("{name}{suffix}")))).unwrap()
            }

            fn leased(client: &LockClient, name: &str, lease: Duration) -> $lock {
                Self::lock(client, name).with(&fixed(lease))
            }

            fn bounded(client: &LockClient, name: &str, most: Duration) -> $lock {
                Self::lock(client, name).with(&at_most(most))
            }

            fn kept(client: &LockClient, name: &str, least: Duration) -> $lock {
                Self::lock(client, name).with(&at_least(least))
            }
        }
    };
}

joined_fixture!(MultiLocks: Multi MultiLock of ["", " beside"]);
joined_fixture!(SingleMultiLocks: Multi MultiLock of [""]);
joined_fixture!(SingleRedLocks: Red RedLock of [""]);

/// Makes each function a test for each lock type, or for those that stand before `=>`. A new lock type needs one more
/// line here.
macro_rules! for_each_lock {
    ($($kind:ident: $fixture:ident),+ => $tests:tt) => {
        $( for_each_lock! { @ $kind: $fixture $tests } )+
    };
    (@ $kind:ident: $fixture:ident { $($test:ident)* }) => {
        mod $kind {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test::<crate::support::fixture::$fixture>().await;
                }
            )*
        }
    };
    ($($test:ident)*) => {
        for_each_lock! {
            fair: FairLocks, fenced: FencedLocks, read: ReadLocks, red: SingleRedLocks, rlock: RLocks,
            single: SingleMultiLocks, write: WriteLocks => { $($test)* }
        }
    };
}

pub(crate) use for_each_lock;
