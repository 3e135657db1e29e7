//! Pauses threads where they lock data, so that tests meet orders of events that are rare otherwise. Also counts how
//! many mutexes a thread has locked.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{self, Mutex, PoisonError, TryLockError};
use std::thread;

thread_local! {
    static LOCKED: Cell<u32> = const { Cell::new(0) };
    static PAUSE: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// From now on, this thread calls a function before and after it locks data, after it unlocks data, and as long as another thread has the
/// data. For lockkeeper's own tests.
///
/// ```
/// lockkeeper::pause_by(std::thread::yield_now);
/// ```
pub fn pause_by(pause: fn()) {
    PAUSE.set(Some(pause));
}

/// Counts the mutexes that this thread has locked. For lockkeeper's own tests.
///
/// ```
/// assert_eq!(lockkeeper::locked_mutexes(), 0);
/// ```
pub fn locked_mutexes() -> u32 {
    LOCKED.get()
}

/// Data that is locked until this is dropped.
pub(crate) struct MutexGuard<'a, T> {
    /// `None` while it is dropped.
    data: Option<sync::MutexGuard<'a, T>>,
    pause: Option<fn()>,
}

/// Locks data. The function that pauses perhaps lets other threads of a simulation run, so nothing may block here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let Some(pause) = PAUSE.get() else {
        let data = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        LOCKED.set(LOCKED.get() + 1);
        return MutexGuard { data: Some(data), pause: None };
    };
    paused(pause);
    let data = loop {
        match mutex.try_lock() {
            Ok(data) => break data,
            Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => paused(pause),
        }
    };
    paused(pause);
    LOCKED.set(LOCKED.get() + 1);
    MutexGuard { data: Some(data), pause: Some(pause) }
}

/// Calls `pause`. All threads of a simulation can be one thread of the system, so each takes its count of locked
/// mutexes along.
fn paused(pause: fn()) {
    let locked = LOCKED.replace(0);
    pause();
    LOCKED.set(locked);
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.data.as_ref().expect("BUG: used after the drop")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.data.as_mut().expect("BUG: used after the drop")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.data = None;
        LOCKED.set(LOCKED.get() - 1);
        if let Some(pause) = self.pause.filter(|_| !thread::panicking()) {
            paused(pause);
        }
    }
}
