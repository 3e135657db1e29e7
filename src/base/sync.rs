//! Locking and watching of plain data.

use std::sync::Mutex;
#[cfg(not(feature = "__simulation"))]
pub(crate) use std::sync::MutexGuard;

use tokio::sync::Notify;

#[cfg(feature = "__simulation")]
pub(crate) use crate::base::pauses::{MutexGuard, lock};

/// Locks data that is consistent after every statement. So a panic of another thread cannot make it unusable.
#[cfg(not(feature = "__simulation"))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What comes next can run code of the user: a waker, a `tracing` layer, a metrics recorder, the drop of a span. That code can call anything
/// in this crate, so this thread must have no mutex locked. Tests check it.
pub(crate) fn nothing_is_locked() {
    #[cfg(feature = "__simulation")]
    assert_eq!(
        crate::base::pauses::locked_mutexes(),
        0,
        "code of the user would run while a mutex is locked"
    );
}

/// A value whose changes wake those who wait for them, in the order in which they began to wait. Tokio's `watch` wakes them in a
/// random order, which no simulation can repeat.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Watched<T> {
    pub(crate) fn get(&self) -> T {
        *lock(&self.value)
    }

    pub(crate) fn modify(&self, change: impl FnOnce(&mut T)) {
        change(&mut lock(&self.value));
        nothing_is_locked();
        self.changed.notify_waiters();
    }

    /// Waits until the value is such.
    pub(crate) async fn until(&self, is: impl Fn(&T) -> bool) {
        loop {
            // Made before the look, so that a change in between is not missed: `notify_waiters` also reaches futures that nobody polled.
            let changed = self.changed.notified();
            if is(&self.get()) {
                return;
            }
            changed.await;
        }
    }
}
