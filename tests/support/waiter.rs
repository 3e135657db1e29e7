//! Tasks that wait for a lock.

use lockkeeper::{BaseLock, Lock, LockGuard};
use tokio::task::JoinHandle;

use super::{SECOND, timed};

/// Starts a task that acquires a lock.
pub fn waiter<K: BaseLock>(mut lock: Lock<'static, K>) -> JoinHandle<LockGuard<K::Extra>> {
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// Waits until a message wakes the waiter, and returns its guard.
pub async fn woken_by_message<T>(waiter: JoinHandle<LockGuard<T>>) -> LockGuard<T> {
    let (guard, waited) = timed(waiter).await;
    // A safety poll would come after three seconds.
    assert!(waited < 2 * SECOND, "{waited:?}");
    guard.unwrap()
}
