//! The place of a grant in the queue of a fair lock, and its heartbeat.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::Grant;
use super::desired::Desired;
use crate::base::clock::Moment;
use crate::base::error::LockId;
use crate::engine::scheduler::Key;
use crate::protocol::Call;

impl Grant {
    /// Records that the server has a place of this grant. `is_new`: the server had none before.
    pub(super) fn has_place(self: &Arc<Self>, is_new: bool, now: Moment) {
        let heartbeats = &self.lock.engine.heartbeats;
        let mut desired = self.desired();
        let was_removed = is_new && desired.place.is_kept;
        if desired.is_wanted() {
            desired.place.is_kept = true;
            if !desired.place.heartbeat.is_set() {
                let period = self.lock.engine.periods.heartbeat();
                let due = due_after(period, &self.lock.keys.lock, now);
                heartbeats.set(&mut desired.place.heartbeat, Some(due), || Arc::clone(self));
            }
        }
        drop(desired);
        if was_removed {
            let LockId { name, key, server, .. } = self.lock.id();
            tracing::warn!(
                lock = name,
                key,
                server,
                "a waiter for a fair lock was removed, as no heartbeat came in time: it queues again at the end"
            );
        }
    }

    /// Records that this grant has no place any more, or needs none.
    pub(super) fn leave_queue(self: &Arc<Self>, desired: &mut Desired) {
        if std::mem::take(&mut desired.place.is_kept) {
            let heartbeats = &self.lock.engine.heartbeats;
            heartbeats.set(&mut desired.place.heartbeat, None, || Arc::clone(self));
        }
    }

    /// Begins a heartbeat that is due. False: there is no place to keep, or its waiter was woken and does not attempt.
    pub(crate) fn begin_heartbeat(self: &Arc<Self>, key: Key, now: Moment) -> bool {
        let engine = &self.lock.engine;
        let patience = engine.config.safety_poll() * 2;
        let ignores = engine.wait_queues.stalled_since_wake(&self.wake_channel(), patience);
        let mut desired = self.desired();
        if !desired.place.heartbeat.begin(key) {
            return false;
        }
        if ignores {
            desired.place.heartbeat.end();
            let next = now.plus(engine.periods.heartbeat());
            engine.heartbeats.set(&mut desired.place.heartbeat, Some(next), || Arc::clone(self));
        }
        !ignores
    }

    /// The waiter, as the server knows it.
    pub(crate) fn waiter(&self) -> String {
        self.id.to_string()
    }

    /// Asks for the place of this waiter, if the lock has a queue.
    pub(crate) fn place(&self) -> Option<Call> {
        self.lock.protocol.queue().map(|queue| queue.place(&self.lock.keys, &self.id))
    }

    /// The heartbeat of these waiters of the lock.
    pub(crate) fn heartbeat(&self, waiters: String) -> Call {
        let queue = self.lock.protocol.queue().expect("BUG: only a lock with a queue has places");
        queue.heartbeat(&self.lock.keys, &self.lock.engine.config, waiters)
    }

    /// The heartbeat has ended. The next one is due at `next`. `wakes`: the waiter has to attempt now.
    pub(crate) fn heard_of(self: &Arc<Self>, next: Moment, wakes: bool) {
        let engine = &self.lock.engine;
        {
            let mut desired = self.desired();
            desired.place.heartbeat.end();
            let due = desired.place.is_kept.then_some(next);
            engine.heartbeats.set(&mut desired.place.heartbeat, due, || Arc::clone(self));
        }
        if wakes {
            engine.wait_queues.wake(&self.wake_channel());
        }
    }
}

/// Returns the next time at which the places of this lock are due. It comes within a period.
pub(crate) fn due_after(period: Duration, lock: &str, time: Moment) -> Moment {
    let mut hasher = DefaultHasher::new();
    lock.hash(&mut hasher);
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
    let phase = hasher.finish() % period;
    let since = (time.as_nanos() + period - phase) % period;
    time.plus(Duration::from_nanos(period - since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_lock_are_due_together_and_once_in_each_period() {
        let (period, start) = (Duration::from_secs(2), Moment::from_nanos(1_000_000_000_000));
        for lock in ["a", "b", "c"] {
            let first = due_after(period, lock, start);
            assert_eq!(due_after(period, lock, first), first.plus(period));
            // A place that was kept early is due at the same time.
            for early in [1, 500, 1_999].map(Duration::from_millis) {
                assert_eq!(due_after(period, lock, first.plus(period).minus(early)), first.plus(period));
            }
        }
    }
}
