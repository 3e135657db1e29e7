//! Locking and watching of plain data.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Locks data that is consistent after every statement. So a panic of another thread cannot make it unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value whose changes wake those who wait for them, in the order in which they began to wait. Tokio's `watch` wakes them in a
/// random order, which no simulation can repeat.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Watched<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::const_new() }
    }

    pub(crate) fn get(&self) -> T {
        *lock(&self.value)
    }

    pub(crate) fn modify(&self, change: impl FnOnce(&mut T)) {
        change(&mut lock(&self.value));
        self.changed.notify_waiters();
    }

    /// Waits until the value is such.
    pub(crate) async fn until(&self, is: impl Fn(&T) -> bool) {
        // A value that is already such needs no enlisting, which has a cost.
        if is(&self.get()) {
            return;
        }
        loop {
            // `notified` comes before `is`, so a change between the two calls is not missed: `notify_waiters` also
            // wakes a future that was never polled.
            let changed = self.changed.notified();
            if is(&self.get()) {
                return;
            }
            changed.await;
        }
    }
}
