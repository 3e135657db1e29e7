//! A handle that belongs to an owner.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use super::BaseLock;
use super::sealed::Lock;
use crate::engine::{Handle, Patience};
use crate::error::Result;
use crate::guard::LockGuard;
use crate::owner::Owner;

/// A lock handle that an [`Owner`] lends: what it acquires belongs to that owner.
///
/// It can do all that the handle can. While it exists the owner lends no other, so two branches of a program can not
/// share the owner. Nor can the handle be taken out of it, which is why it has the methods that acquire itself:
///
/// ```compile_fail,E0594
/// # async fn demo(locks: lockkeeper::LockClient) {
/// let mut me = locks.owner();
/// let mut lent = me.rlock("ledger");
/// *lent = locks.rlock("another");
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct Lent<'a, L> {
    lock: L,
    _owner: PhantomData<&'a mut Owner>,
}

impl<L: BaseLock> Lent<'_, L> {
    pub(crate) const fn new(lock: L) -> Self {
        Self { lock, _owner: PhantomData }
    }

    base_lock_methods!(pub);
    terms_methods!(lock);
}

impl<L: BaseLock> BaseLock for Lent<'_, L> {}

impl<L: BaseLock> Lock for Lent<'_, L> {
    fn handle(&self) -> &Handle {
        self.lock.handle()
    }

    fn handle_mut(&mut self) -> &mut Handle {
        self.lock.handle_mut()
    }
}

impl<L> Deref for Lent<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lock
    }
}
