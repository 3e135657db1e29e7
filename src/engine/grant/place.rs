//! The place of a grant in the queue of a fair lock.

use std::sync::Arc;
use std::time::Duration;

use super::Grant;
use super::desired::Desired;
use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::engine::upkeep::heartbeat::Place;
use crate::engine::upkeep::scheduler::Key;
use crate::protocol::Call;
use crate::store::Route;

impl Grant {
    /// Records that the server has a place of this grant. `is_new`: the server had none before.
    pub(crate) fn has_place(self: &Arc<Self>, is_new: bool) {
        let heartbeats = &self.lock.engine.heartbeats;
        let mut desired = lock(&self.desired);
        if is_new && desired.has_place {
            let crate::base::error::LockId { name, key, server, .. } = self.lock.id();
            tracing::warn!(
                lock = name,
                key,
                server,
                "a place in the queue was lost, as nothing was heard of this process in time: queued again at the end"
            );
        }
        if desired.is_wanted() {
            desired.has_place = true;
            if !desired.heartbeat.is_set() {
                let due = heartbeats.duty().due_from(&self.lock.keys.lock, clock::now());
                heartbeats.set(&mut desired.heartbeat, Some(due), || Arc::<Self>::clone(self));
            }
        }
    }

    /// Records that this grant has no place any more, or needs none.
    pub(crate) fn leave_queue(self: &Arc<Self>, desired: &mut Desired) {
        if std::mem::take(&mut desired.has_place) {
            let heartbeats = &self.lock.engine.heartbeats;
            heartbeats.set(&mut desired.heartbeat, None, || Arc::<Self>::clone(self));
        }
    }
}

impl Place for Grant {
    fn begin(self: Arc<Self>, key: Key, period: Duration) -> bool {
        let engine = &self.lock.engine;
        let patience = engine.config.safety_poll() * 2;
        let ignores = engine.wait_queues.ignores_a_wake(&self.wake_channel(), patience);
        let mut desired = lock(&self.desired);
        if !desired.heartbeat.begin(key) {
            return false;
        }
        if ignores {
            desired.heartbeat.end();
            let next = clock::now().plus(period);
            engine.heartbeats.set(&mut desired.heartbeat, Some(next), || Arc::<Self>::clone(&self));
        }
        !ignores
    }

    fn route(&self) -> Route {
        self.lock.route
    }

    fn lock(&self) -> &Arc<str> {
        &self.lock.keys.lock
    }

    fn waiter(&self) -> String {
        self.id.to_string()
    }

    fn heartbeat(&self, waiters: String) -> Call {
        let queue = self.lock.protocol.queue().expect("BUG: only a lock with a queue has places");
        queue.heartbeat(&self.lock.keys, &self.lock.engine.config, waiters)
    }

    fn heard_of(self: Arc<Self>, next: Moment, wakes: bool) {
        let engine = &self.lock.engine;
        {
            let mut desired = lock(&self.desired);
            desired.heartbeat.end();
            let due = desired.has_place.then_some(next);
            engine.heartbeats.set(&mut desired.heartbeat, due, || Arc::<Self>::clone(&self));
        }
        if wakes {
            engine.wait_queues.wake(&self.wake_channel());
        }
    }
}
