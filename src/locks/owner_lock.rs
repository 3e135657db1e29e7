//! A handle that belongs to an owner.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::base::{BaseLock, Lock};
use super::fair::FairLock;
use super::fenced::FencedLock;
use super::rlock::RLock;
use super::sides::{ReadLock, WriteLock};
use crate::engine::Handle;
use crate::locks::guard::{FencedGuard, LockGuard};

/// A lock handle that an [`Owner`](crate::Owner) lends. What it acquires belongs to that owner.
///
/// An `OwnerLock` has the methods of the handle. While it exists, the owner lends no other handle, so two branches of a program
/// cannot share the owner. The handle cannot be exchanged for another one:
///
/// ```compile_fail,E0594
/// # async fn demo(locks: lockkeeper::LockClient) {
/// let mut me = locks.owner();
/// let mut lent = me.rlock("lock:ledger");
/// *lent = locks.rlock("lock:another");
/// # }
/// ```
#[must_use = "a handle does nothing until it locks"]
pub struct OwnerLock<'a, L> {
    lock: L,
    _owner: PhantomData<&'a mut ()>,
}

impl<L> OwnerLock<'_, L> {
    pub(crate) const fn new(lock: L) -> Self {
        Self { lock, _owner: PhantomData }
    }
}

impl<L: BaseLock> OwnerLock<'_, L> {
    query_methods!(pub);
    term_methods!(lock);
}

macro_rules! acquire_for {
    ($($lock:ident: $guard:ident)*) => {
        $(
            impl OwnerLock<'_, $lock> {
                acquire_methods!($guard, pub);
            }
        )*
    };
}

acquire_for! {
    FairLock: LockGuard
    FencedLock: FencedGuard
    RLock: LockGuard
    ReadLock: LockGuard
    WriteLock: LockGuard
}

impl<L: BaseLock> BaseLock for OwnerLock<'_, L> {}

impl<L: BaseLock> Lock for OwnerLock<'_, L> {
    fn handle(&self) -> &Handle {
        self.lock.handle()
    }

    fn handle_mut(&mut self) -> &mut Handle {
        self.lock.handle_mut()
    }
}

impl<L> Deref for OwnerLock<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lock
    }
}

impl<L: fmt::Debug> fmt::Debug for OwnerLock<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}
