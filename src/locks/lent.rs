//! A handle that belongs to an owner.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::BaseLock;
use crate::owner::Owner;

/// A lock handle that an [`Owner`] lends: what it acquires belongs to that owner.
///
/// It can do all that the handle can. While it exists the owner lends no other, so two branches of a program can not
/// share the owner.
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

    terms_methods!(lock);
}

impl<L> Deref for Lent<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lock
    }
}

impl<L> DerefMut for Lent<'_, L> {
    fn deref_mut(&mut self) -> &mut L {
        &mut self.lock
    }
}
