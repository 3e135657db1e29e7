//! The lock types, for tests that are generic over them.

use super::options::{at_least, at_most, fixed};
use std::time::Duration;

use lockkeeper::{
    BaseLock, Claims, Error, FairLock, FencedLock, FencingToken, Lock, LockClient, LockGuard, LockOptions,
    MultiLock, Owner, PermitId, RLock, ReadLock, RedLock, Semaphore, WriteLock, kind,
};

/// What can be acquired: a lock, a permit of a semaphore, a name of a group.
pub trait Acquire: Send + Sync + 'static {
    type Extra: Send + Sync + 'static;

    fn lock(&mut self) -> impl Future<Output = Result<LockGuard<Self::Extra>, Error>> + Send;
    fn try_lock(&mut self) -> impl Future<Output = Result<Option<LockGuard<Self::Extra>>, Error>> + Send;
    fn try_lock_for(
        &mut self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<LockGuard<Self::Extra>>, Error>> + Send;
}

/// What is under test, and its rival.
pub trait Subject: Send + Sync + 'static {
    type Handle: Acquire;
    type Rival: Acquire;

    /// Whether many owners can hold it together.
    const IS_SHARED: bool = false;
    /// The number of commands that acquire it, and of those that release it.
    const COMMANDS: u64 = 1;

    fn with(client: &LockClient, name: &str, options: &LockOptions) -> Self::Handle;
    /// What has the same name and excludes it.
    fn rival(client: &LockClient, name: &str) -> Self::Rival;

    fn lock(client: &LockClient, name: &str) -> Self::Handle {
        Self::with(client, name, &LockOptions::default())
    }

    /// The same with a fixed lease.
    fn leased(client: &LockClient, name: &str, lease: Duration) -> Self::Handle {
        Self::with(client, name, &fixed(lease))
    }

    /// The same with a longest hold.
    fn bounded(client: &LockClient, name: &str, most: Duration) -> Self::Handle {
        Self::with(client, name, &at_most(most))
    }

    /// The same with a least hold.
    fn kept(client: &LockClient, name: &str, least: Duration) -> Self::Handle {
        Self::with(client, name, &at_least(least))
    }
}

/// A lock type under test.
pub trait Fixture:
    Subject<Handle = Lock<'static, Self::Kind>, Rival = Lock<'static, Self::Opponent>>
{
    type Kind: BaseLock;
    type Opponent: BaseLock;

    const IS_READ_WRITE: bool = false;

    /// The scripts that acquire it, show its hold count, renew it and release it.
    const ACQUIRE: &'static str;
    const SHOW: &'static str = "rlock/show.lua";
    const RENEW: &'static str = "rlock/renew.lua";
    const RELEASE: &'static str;
}

/// A lock type that an `Owner` can lend.
pub trait Lending: Fixture {
    /// The lock of an owner.
    fn lent<'a>(owner: &'a mut Owner, name: &str) -> Lock<'a, Self::Kind>;
    /// The same lock with a fixed lease.
    fn lent_leased<'a>(owner: &'a mut Owner, name: &str, lease: Duration) -> Lock<'a, Self::Kind> {
        Self::lent(owner, name).with(&fixed(lease))
    }
}

impl<K: BaseLock> Acquire for Lock<'static, K> {
    type Extra = K::Extra;

    fn lock(&mut self) -> impl Future<Output = Result<LockGuard<K::Extra>, Error>> + Send {
        Lock::lock(self)
    }

    fn try_lock(&mut self) -> impl Future<Output = Result<Option<LockGuard<K::Extra>>, Error>> + Send {
        Lock::try_lock(self)
    }

    fn try_lock_for(
        &mut self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<LockGuard<K::Extra>>, Error>> + Send {
        Lock::try_lock_for(self, wait)
    }
}

/// The only permit of a semaphore.
pub struct Permit(Semaphore);

impl Acquire for Permit {
    type Extra = PermitId;

    fn lock(&mut self) -> impl Future<Output = Result<LockGuard<PermitId>, Error>> + Send {
        self.0.acquire()
    }

    fn try_lock(&mut self) -> impl Future<Output = Result<Option<LockGuard<PermitId>>, Error>> + Send {
        self.0.try_acquire()
    }

    fn try_lock_for(
        &mut self,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<LockGuard<PermitId>>, Error>> + Send {
        self.0.try_acquire_for(wait)
    }
}

pub struct Permits;

impl Subject for Permits {
    type Handle = Permit;
    type Rival = Permit;

    fn with(client: &LockClient, name: &str, options: &LockOptions) -> Permit {
        Permit(client.semaphore(format!("{PERMITS_OF}{name}"), 1).with(options))
    }

    fn rival(client: &LockClient, name: &str) -> Permit {
        Self::lock(client, name)
    }
}

/// The names of these semaphores begin with it. Their number of permits stays on the server.
pub const PERMITS_OF: &str = "permits of ";

/// The only name of a group. Nobody can wait for it.
pub struct Claim(Claims);

impl Acquire for Claim {
    type Extra = FencingToken;

    async fn lock(&mut self) -> Result<LockGuard<FencingToken>, Error> {
        Ok(self.try_lock().await?.expect("the name is free"))
    }

    fn try_lock(&mut self) -> impl Future<Output = Result<Option<LockGuard<FencingToken>>, Error>> + Send {
        self.0.claim(["claim"])
    }

    fn try_lock_for(
        &mut self,
        _: Duration,
    ) -> impl Future<Output = Result<Option<LockGuard<FencingToken>>, Error>> + Send {
        self.try_lock()
    }
}

pub struct ClaimedNames;

/// For others, the name is an `RLock`.
impl Subject for ClaimedNames {
    type Handle = Claim;
    type Rival = RLock<'static>;

    fn with(client: &LockClient, name: &str, options: &LockOptions) -> Claim {
        Claim(client.claims(name).with(options))
    }

    fn rival(client: &LockClient, name: &str) -> RLock<'static> {
        client.rlock(format!("{{{name}}}:claim"))
    }
}

/// A lock type whose rival is the same type.
macro_rules! fixture {
    ($fixture:ident: $kind:ident $lock:ident by $method:ident, acquire in $acquire:literal, release in $release:literal) => {
        pub struct $fixture;

        impl Subject for $fixture {
            type Handle = $lock<'static>;
            type Rival = $lock<'static>;

            fn with(client: &LockClient, name: &str, options: &LockOptions) -> $lock<'static> {
                client.$method(name).with(options)
            }

            fn rival(client: &LockClient, name: &str) -> $lock<'static> {
                client.$method(name)
            }
        }

        impl Fixture for $fixture {
            type Kind = kind::$kind;
            type Opponent = kind::$kind;

            const ACQUIRE: &'static str = concat!($acquire, "/acquire.lua");
            const RELEASE: &'static str = concat!($release, "/release.lua");
        }

        impl Lending for $fixture {
            fn lent<'a>(owner: &'a mut Owner, name: &str) -> Lock<'a, Self::Kind> {
                owner.$method(name)
            }
        }
    };
}

fixture!(FairLocks: Fair FairLock by fair_lock, acquire in "fair", release in "fair");
fixture!(FencedLocks: Fenced FencedLock by fenced_lock, acquire in "fenced", release in "rlock");
fixture!(RLocks: Reentrant RLock by rlock, acquire in "rlock", release in "rlock");

/// One side of a read-write lock. Its rival is the write lock.
macro_rules! read_write_fixture {
    ($fixture:ident: $kind:ident $lock:ident by $into:ident, shared: $shared:literal, scripts in $folder:literal $(, $name:ident = $value:expr)*) => {
        pub struct $fixture;

        impl Subject for $fixture {
            type Handle = $lock<'static>;
            type Rival = WriteLock<'static>;

            const IS_SHARED: bool = $shared;

            fn with(client: &LockClient, name: &str, options: &LockOptions) -> $lock<'static> {
                client.read_write_lock(name).with(options).$into()
            }

            fn rival(client: &LockClient, name: &str) -> WriteLock<'static> {
                client.read_write_lock(name).into_write()
            }
        }

        impl Fixture for $fixture {
            type Kind = kind::$kind;
            type Opponent = kind::Write;

            const IS_READ_WRITE: bool = true;
            const ACQUIRE: &'static str = concat!($folder, "/acquire.lua");
            $(const $name: &'static str = $value;)*
            const RELEASE: &'static str = concat!($folder, "/release.lua");
        }

        impl Lending for $fixture {
            fn lent<'a>(owner: &'a mut Owner, name: &str) -> Lock<'a, Self::Kind> {
                owner.read_write_lock(name).$into()
            }
        }
    };
}

read_write_fixture!(ReadLocks: Read ReadLock by into_read, shared: true, scripts in "read",
    SHOW = "read/show.lua", RENEW = "read/renew.lua");
read_write_fixture!(WriteLocks: Write WriteLock by into_write, shared: false, scripts in "write");

/// Several locks as one. The rival names them in the opposite order.
macro_rules! joined_fixture {
    ($fixture:ident: $kind:ident $lock:ident of $names:expr) => {
        pub struct $fixture;

        impl Subject for $fixture {
            type Handle = $lock;
            type Rival = $lock;

            const COMMANDS: u64 = $names.len() as u64;

            fn with(client: &LockClient, name: &str, options: &LockOptions) -> $lock {
                let members = $names.iter().map(|suffix| client.rlock(format!("{name}{suffix}")));
                $lock::new(members).unwrap().with(options)
            }

            fn rival(client: &LockClient, name: &str) -> $lock {
                $lock::new($names.iter().rev().map(|suffix| client.rlock(format!("{name}{suffix}")))).unwrap()
            }
        }

        impl Fixture for $fixture {
            type Kind = kind::$kind;
            type Opponent = kind::$kind;

            const ACQUIRE: &'static str = "rlock/acquire.lua";
            const RELEASE: &'static str = "rlock/release.lua";
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
