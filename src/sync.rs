//! Locking of plain data.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks data that is consistent after every statement. So a panic of another thread cannot make it unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
