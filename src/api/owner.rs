//! Owners.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::base::clock;
use crate::engine::{Engine, OwnerGrants, OwnerNames};
use crate::locks::{BaseLock, FairLock, FencedLock, Lock, RLock, ReadWriteLock};
use crate::protocol::{self, Protocol};

/// One flow of execution, as far as locks are concerned. It can acquire again, by name, what it already holds.
///
/// A handle that a [`LockClient`](crate::LockClient) makes is an owner by itself. If nested sections only know the *name* of a
/// lock, pass them an `Owner`: then they re-enter what their caller holds. An `Owner` is what a thread is in Java.
///
/// ```no_run
/// # use lockkeeper::{LockClient, Owner, Result};
/// async fn transfer(me: &mut Owner) -> Result<()> {
///     let guard = me.rlock("lock:ledger").lock().await?;
///     write_entry(me).await?;
///     guard.unlock().await
/// }
///
/// async fn write_entry(me: &mut Owner) -> Result<()> {
///     let guard = me.rlock("lock:ledger").lock().await?; // re-enters the caller's hold
///     guard.unlock().await
/// }
/// # async fn demo(locks: LockClient) -> Result<()> {
/// transfer(&mut locks.owner()).await
/// # }
/// ```
///
/// If the caller's hold was lost, the inner call acquires the lock anew and does not fail. Run inner sections with
/// [`LockGuard::run`](crate::LockGuard::run), which stops them when the hold is lost.
///
/// On the server, an owner has another id for each name, and a new id after each full release.
///
/// A task cannot be the owner: every branch of a `join!` runs in the same task. An owner is lent by `&mut`, so branches cannot share
/// it:
///
/// ```compile_fail,E0499
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut me = locks.owner();
/// let (mut a, mut b) = (me.rlock("lock:ledger"), me.rlock("lock:ledger"));
/// let _both = tokio::join!(a.lock(), b.lock()); // both would enter
/// # Ok(()) }
/// ```
pub struct Owner {
    engine: Arc<Engine>,
    /// What it holds on each name.
    grants: HashMap<Box<str>, Arc<OwnerGrants>>,
    /// When there are this many names, those on which nothing is held are removed.
    tidy_at: usize,
    names: Arc<OwnerNames>,
}

/// Fewer names are not worth tidying.
const TIDY: usize = 32;

impl Owner {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, grants: HashMap::new(), tidy_at: TIDY, names: Arc::default() }
    }

    /// Lends a handle for the reentrant lock with this name. If this owner holds it, the handle re-enters. No network call.
    ///
    /// ```no_run
    /// # async fn demo(me: &mut lockkeeper::Owner) -> lockkeeper::Result<()> {
    /// let guard = me.rlock("lock:ledger").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn rlock(&mut self, name: impl AsRef<str>) -> RLock<'_> {
        self.lend(&protocol::Reentrant, name.as_ref())
    }

    /// Lends a handle for the fair lock with this name. If this owner holds it, the handle re-enters. No network call.
    ///
    /// ```no_run
    /// # async fn demo(me: &mut lockkeeper::Owner) -> lockkeeper::Result<()> {
    /// let guard = me.fair_lock("lock:jobs").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn fair_lock(&mut self, name: impl AsRef<str>) -> FairLock<'_> {
        self.lend(&protocol::Fair, name.as_ref())
    }

    /// Lends a handle for the fenced lock with this name. If this owner holds it, the handle re-enters. No network call.
    ///
    /// ```no_run
    /// # async fn demo(me: &mut lockkeeper::Owner) -> lockkeeper::Result<()> {
    /// let guard = me.fenced_lock("lock:orders:42").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn fenced_lock(&mut self, name: impl AsRef<str>) -> FencedLock<'_> {
        self.lend(&protocol::Fenced, name.as_ref())
    }

    /// Lends a handle for the read-write lock with this name. If this owner holds a side, the handle re-enters it. No network call.
    ///
    /// ```no_run
    /// # async fn demo(me: &mut lockkeeper::Owner) -> lockkeeper::Result<()> {
    /// let guard = me.read_write_lock("lock:cache").read().lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn read_write_lock(&mut self, name: impl AsRef<str>) -> ReadWriteLock<'_> {
        let name = name.as_ref();
        let grants = self.grants(name);
        ReadWriteLock::new(&self.engine, name, grants)
    }

    fn lend<K: BaseLock + Protocol>(&mut self, kind: &'static K, name: &str) -> Lock<'_, K> {
        let grants = self.grants(name);
        Lock::single(kind, &self.engine, name, grants)
    }

    fn grants(&mut self, name: &str) -> Arc<OwnerGrants> {
        if let Some(grants) = self.grants.get(name) {
            return Arc::clone(grants);
        }
        if self.grants.len() >= self.tidy_at {
            let now = clock::now();
            self.grants.retain(|_, grants| !grants.is_idle(now));
            self.tidy_at = TIDY.max(2 * self.grants.len());
        }
        Arc::clone(self.grants.entry(name.into()).or_insert_with(|| self.names.add()))
    }
}

/// Takes no mutex.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("client", &self.engine.id()).field("names", &self.grants.len()).finish()
    }
}
