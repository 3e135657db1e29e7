//! Locking and watching of plain data.

use std::sync::Mutex;
#[cfg(not(feature = "unstable-simulation"))]
pub(crate) use std::sync::MutexGuard;

use tokio::sync::Notify;

#[cfg(feature = "unstable-simulation")]
pub(crate) use crate::base::pauses::{MutexGuard, lock};

/// Locks data that is consistent after every statement. So a panic of another thread cannot make it unusable.
#[cfg(not(feature = "unstable-simulation"))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Checks in tests that this thread has no mutex locked. Call it before code that can run code of the user: a waker, a
/// `tracing` layer, a metrics recorder, the drop of a span. Such code can call anything in this crate, and would wait
/// for ever for a mutex of its own thread.
pub(crate) fn nothing_is_locked() {
    #[cfg(feature = "unstable-simulation")]
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

    /// Waits until `is` returns true for the value.
    pub(crate) async fn until(&self, is: impl Fn(&T) -> bool) {
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
