//! Where everything starts.

use std::sync::Arc;
use std::time::Duration;

use crate::config::LockConfig;
use crate::engine::{Engine, inspect};
use crate::error::Result;
use crate::locks::{FairLock, FencedLock, RLock, ReadWriteLock};
use crate::owner::Owner;
use crate::store::Source;

/// A connection to one Redis or Valkey, from which locks are made.
///
/// It is cheap to clone, and all clones share their connections, subscription and watchdog. Share the *client*
/// wherever locks are needed, and make a handle where it is used: a handle is an owner, so sharing one would let all
/// who share it in at once.
///
/// Its tasks run on the runtime on which it was made, and end when the client, its handles and its guards are gone.
#[derive(Clone, Debug)]
pub struct LockClient(Arc<Engine>);

impl LockClient {
    /// Connects to a server, such as `redis://127.0.0.1/`, with the default settings.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    ///
    /// # Cancel safety
    ///
    /// Nothing is left when the future is dropped.
    pub async fn connect(url: impl Into<Source>) -> Result<Self> {
        Self::new(url, LockConfig::default()).await
    }

    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a setting or an address that is no good;
    /// [`Error::UnsupportedServer`](crate::Error::UnsupportedServer) if it is older than Redis 7.0 or Valkey 7.2; or
    /// what kept it from connecting, which is not tried again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left when the future is dropped.
    pub async fn new(source: impl Into<Source>, config: LockConfig) -> Result<Self> {
        Engine::start(source.into(), config).await.map(Self)
    }

    /// A handle on the reentrant lock of this name, with an owner of its own.
    pub fn rlock(&self, name: impl AsRef<str>) -> RLock {
        RLock::new(&self.0, name.as_ref(), Arc::default())
    }

    /// A handle on the fair lock of this name, with an owner of its own.
    pub fn fair_lock(&self, name: impl AsRef<str>) -> FairLock {
        FairLock::new(&self.0, name.as_ref(), Arc::default())
    }

    /// A handle on the fenced lock of this name, with an owner of its own.
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> FencedLock {
        FencedLock::new(&self.0, name.as_ref(), Arc::default())
    }

    /// A handle on the read-write lock of this name, with an owner of its own.
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock::new(&self.0, name.as_ref(), Arc::default())
    }

    /// An owner, for nested sections that only know the name of a lock.
    pub fn owner(&self) -> Owner {
        Owner::new(self.clone())
    }

    /// Who holds the lock of this name, of whatever type it is. `None`: it is free. Asks the server.
    ///
    /// # Errors
    ///
    /// An unusable name or key; or a fault of server or network that lasted for `retry_timeout`.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing, so it can be dropped at any time.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<Inspection>> {
        let found = inspect(&self.0, name.as_ref()).await?;
        Ok(found.map(|found| Inspection {
            remaining_lease: found.left().unwrap_or_default(),
            is_read_write: found.is_read_write,
            holders: found
                .owners
                .into_iter()
                .filter(|holding| holding.left.is_some())
                .map(|holding| Holder { owner: holding.owner, holds: holding.holds })
                .collect(),
        }))
    }

    /// Ends the client and all its clones: nothing can be acquired any more, who waits gets
    /// [`Error::Closed`](crate::Error::Closed), and what was dropped before is released.
    ///
    /// Guards that still exist are not released by this: somebody is at work with them. They can be, until they are
    /// lost when their lease ends, which nothing renews any more. A process that exits without this leaves the locks
    /// it dropped last to their lease.
    ///
    /// # Errors
    ///
    /// A fault that kept a release from being done, or not all were done within `retry_timeout`: they go on in the
    /// background as long as the runtime lives. What is not released ends with its lease.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client may be closed or not; it can be called again.
    pub async fn shutdown(&self) -> Result<()> {
        self.0.shutdown().await
    }

    pub(crate) const fn engine(&self) -> &Arc<Engine> {
        &self.0
    }
}

/// What the server knows of a lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Who holds it: one owner, but for a read-write lock. Of readers, those that are alive.
    pub holders: Vec<Holder>,
    /// How long the lease still lasts if nobody renews it. [`Duration::MAX`]: it does not end.
    pub remaining_lease: Duration,
    /// Whether it is a read-write lock.
    pub is_read_write: bool,
}

/// One owner of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The id of the client, a colon, and a number: of the owner, or in Java of the thread. For the write lock `:write`
    /// stands behind that.
    pub owner: String,
    /// How often it holds the lock.
    pub holds: u64,
}
