//! Locking of plain data.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks data that is consistent between any two statements, so that a panic elsewhere can not make it unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
