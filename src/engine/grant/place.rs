//! The place of a grant in the queue of a fair lock, and its heartbeat.

use std::sync::Arc;

use super::{Grant, State};
use crate::base::clock::Moment;
use crate::base::error::LockId;
use crate::engine::scheduler::Key;
use crate::protocol::Call;

impl Grant {
    /// Records that the server has a place of this grant. `is_new`: the server had none before.
    pub(super) fn gets_place(self: &Arc<Self>, is_new: bool, now: Moment) {
        let had_place = self.event(now, |machine, _| machine.gets_place());
        if is_new && had_place {
            let LockId { name, key, server, .. } = self.lock.id();
            tracing::warn!(
                lock = name,
                key,
                server,
                "a waiter for a fair lock was removed, as no heartbeat came in time: it queues again at the end"
            );
        }
    }

    /// Begins a heartbeat that is due. False: there is no place to keep, or the waiter was woken long ago and has not
    /// attempted.
    pub(crate) fn begin_heartbeat(self: &Arc<Self>, key: Key, now: Moment) -> bool {
        let engine = &self.lock.engine;
        let patience = engine.config.safety_poll() * 2;
        let ignores = engine.wait_queues.stalled_since_wake(&self.wake_channel(), patience);
        self.change(now, |state, _| {
            let begins = state.heartbeat.begin(key);
            if begins && ignores {
                self.next_heartbeat(state, now.plus(engine.periods.heartbeat()));
            }
            begins && !ignores
        })
    }

    /// Ends a heartbeat, and schedules the next one at `next`, if the server still has a place of this grant.
    fn next_heartbeat(self: &Arc<Self>, state: &mut State, next: Moment) {
        state.heartbeat.end();
        let due = state.machine.has_place.then_some(next);
        self.lock.engine.heartbeats.set(&mut state.heartbeat, due, || Arc::clone(self));
    }

    /// Returns the id of the waiter, as the server knows it.
    pub(crate) fn waiter(&self) -> String {
        self.id.to_string()
    }

    /// Returns the command that asks for the place of this waiter, if the lock has a queue.
    pub(crate) fn place(&self) -> Option<Call> {
        self.lock.protocol.queue().map(|queue| queue.place(&self.lock.keys, &self.id))
    }

    /// Returns the heartbeat command for these waiters of the lock.
    pub(crate) fn heartbeat(&self, waiters: String) -> Call {
        let queue = self.lock.protocol.queue().expect("BUG: only a lock with a queue has places");
        queue.heartbeat(&self.lock.keys, &self.lock.engine.config, waiters)
    }

    /// Ends a heartbeat. The next one is due at `next`. `wakes`: the waiter has to attempt now.
    pub(crate) fn heard_of(self: &Arc<Self>, next: Moment, wakes: bool, now: Moment) {
        self.change(now, |state, _| self.next_heartbeat(state, next));
        if wakes {
            self.lock.engine.wait_queues.wake(&self.wake_channel());
        }
    }
}
