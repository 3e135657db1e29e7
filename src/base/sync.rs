//! Locking and watching of plain data.

#[cfg(not(feature = "unstable-simulation"))]
pub(crate) use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

#[cfg(feature = "unstable-simulation")]
pub(crate) use crate::base::pauses::{MutexGuard, lock};

/// Locks data that is consistent after every statement. So a panic of another thread cannot make it unusable.
#[cfg(not(feature = "unstable-simulation"))]
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
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

/// A number whose changes wake those who wait for them, in the order in which they began to wait. Tokio's `watch` wakes them in a
/// random order, which no simulation can repeat.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    value: AtomicU64,
    changed: Notify,
}

impl Watched {
    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    pub(crate) fn modify(&self, change: impl Fn(u64) -> u64) {
        let _ = self.value.fetch_update(Ordering::AcqRel, Ordering::Acquire, |value| Some(change(value)));
        nothing_is_locked();
        self.changed.notify_waiters();
    }

    /// Waits until `is` returns true for the number.
    pub(crate) async fn until(&self, is: impl Fn(u64) -> bool + Send + Sync) {
        until(&self.changed, || is(self.get())).await;
    }

    /// Waits until the number is greater than what was seen last.
    pub(crate) async fn next(&self, seen: &mut u64) {
        self.until(|value| value > *seen).await;
        *seen = self.get();
    }
}

/// Waits until `is` returns true. The code that makes it true calls `notify_waiters` afterwards.
pub(crate) async fn until(changed: &Notify, is: impl Fn() -> bool) {
    loop {
        // `notified` comes before `is`, so a change between the two calls is not missed: `notify_waiters` also
        // wakes a future that was never polled.
        let changed = changed.notified();
        if is() {
            return;
        }
        changed.await;
    }
}
