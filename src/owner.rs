//! Who holds.

use std::collections::HashMap;
use std::sync::Arc;

use crate::client::LockClient;
use crate::engine::Holds;
use crate::locks::{FairLock, FencedLock, Lent, RLock, ReadLock, ReadWriteLock, WriteLock};

/// One flow of execution, as far as locks are concerned: what it holds, it may acquire again, by name.
///
/// A handle made by a [`LockClient`] is an owner by itself. Where nested sections only know the *name* of a lock, give
/// them the owner instead, and they re-enter what a caller holds. It takes the place of Java's thread:
///
/// ```no_run
/// # use lockkeeper::{LockClient, Owner, Result};
/// async fn transfer(me: &mut Owner) -> Result<()> {
///     let guard = me.rlock("ledger").lock().await?;
///     write_entry(me).await?;
///     guard.unlock().await
/// }
///
/// async fn write_entry(me: &mut Owner) -> Result<()> {
///     let guard = me.rlock("ledger").lock().await?; // held by the caller: re-entered
///     guard.unlock().await
/// }
/// # async fn demo(locks: LockClient) -> Result<()> {
/// transfer(&mut locks.owner()).await
/// # }
/// ```
///
/// A task would not do as the owner, as every branch of `join!` runs in the same one. An owner is lent by `&mut`, so
/// branches can not share it:
///
/// ```compile_fail,E0499
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let mut me = locks.owner();
/// let (mut a, mut b) = (me.rlock("ledger"), me.rlock("ledger"));
/// let _both = tokio::join!(a.lock(), b.lock()); // they would both get in
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Owner {
    client: LockClient,
    /// What it holds on each name.
    holds: HashMap<Box<str>, Arc<Holds>>,
    /// At this many names, those it has nothing to do with any more are forgotten.
    tidy_at: usize,
}

/// Fewer names are not worth tidying.
const TIDY: usize = 32;

impl Owner {
    pub(crate) fn new(client: LockClient) -> Self {
        Self { client, holds: HashMap::new(), tidy_at: TIDY }
    }

    /// A handle on the reentrant lock of this name. If this owner holds it, the handle re-enters.
    pub fn rlock(&mut self, name: impl AsRef<str>) -> Lent<'_, RLock> {
        let name = name.as_ref();
        let holds = self.holds(name);
        Lent::new(RLock::new(self.client.engine(), name, holds))
    }

    /// A handle on the fair lock of this name. If this owner holds it, the handle re-enters.
    pub fn fair_lock(&mut self, name: impl AsRef<str>) -> Lent<'_, FairLock> {
        let name = name.as_ref();
        let holds = self.holds(name);
        Lent::new(FairLock::new(self.client.engine(), name, holds))
    }

    /// A handle on the fenced lock of this name. If this owner holds it, the handle re-enters.
    pub fn fenced_lock(&mut self, name: impl AsRef<str>) -> Lent<'_, FencedLock> {
        let name = name.as_ref();
        let holds = self.holds(name);
        Lent::new(FencedLock::new(self.client.engine(), name, holds))
    }

    /// A handle on the read-write lock of this name. What this owner holds of it, the handle re-enters.
    pub fn read_write_lock(
        &mut self,
        name: impl AsRef<str>,
    ) -> ReadWriteLock<Lent<'_, ReadLock>, Lent<'_, WriteLock>> {
        let name = name.as_ref();
        let holds = self.holds(name);
        ReadWriteLock::new(self.client.engine(), name, holds).lent()
    }

    fn holds(&mut self, name: &str) -> Arc<Holds> {
        if let Some(holds) = self.holds.get(name) {
            return Arc::clone(holds);
        }
        if self.holds.len() >= self.tidy_at {
            self.holds.retain(|_, holds| !holds.is_idle());
            self.tidy_at = TIDY.max(2 * self.holds.len());
        }
        Arc::clone(self.holds.entry(name.into()).or_default())
    }
}
