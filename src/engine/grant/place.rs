//! The place of a grant in the queue of a fair lock, and its heartbeat.

use std::sync::Arc;
use std::time::Duration;

use super::Grant;
use super::desired::Desired;
use crate::base::clock::{self, Moment};
use crate::base::error::LockId;
use crate::engine::upkeep::scheduler::{Key, Slot};
use crate::protocol::Call;

/// The place of a grant in the queue of a fair lock.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) is_kept: bool,
    pub(crate) heartbeat: Slot,
}

impl Grant {
    /// Records that the server has a place of this grant. `is_new`: the server had none before.
    pub(super) fn has_place(self: &Arc<Self>, is_new: bool) {
        let heartbeats = &self.lock.engine.heartbeats;
        let mut desired = self.desired();
        let was_removed = is_new && desired.place.is_kept;
        if desired.is_wanted() {
            desired.place.is_kept = true;
            if !desired.place.heartbeat.is_set() {
                let due = heartbeats.duty().due_after(&self.lock.keys.lock, clock::now());
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
    pub(crate) fn begin_heartbeat(self: &Arc<Self>, key: Key, period: Duration) -> bool {
        let engine = &self.lock.engine;
        let patience = engine.config.safety_poll() * 2;
        let ignores = engine.wait_queues.stalled_since_wake(&self.wake_channel(), patience);
        let mut desired = self.desired();
        if !desired.place.heartbeat.begin(key) {
            return false;
        }
        if ignores {
            desired.place.heartbeat.end();
            let next = clock::now().plus(period);
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
