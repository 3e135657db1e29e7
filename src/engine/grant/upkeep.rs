//! What keeps a grant: the renewals of its lease, the looks at its hold, and the heartbeats of its place in a queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::owed::SHORTEST;
use super::state::State;
use super::{Grant, Shell};
use crate::base::clock::{self, Moment};
use crate::base::error::LockId;
use crate::base::fault::Fault;
use crate::base::sync::nothing_is_locked;
use crate::engine::hold::{self, Hold};
use crate::engine::scheduler::Key;
use crate::protocol::{Call, RenewalReply, Row, millis, parse_renewal};
use crate::store;
use crate::telemetry::Renewed;

impl Grant {
    /// Renews this grant alone, for one hold, with a lease that the user chose.
    pub(crate) async fn extend(self: &Arc<Self>, hold: &Hold, lease: Duration) -> Result<(), Fault> {
        let connection = self.lock.connection().await?;
        let sent = clock::now();
        // Cap the lease at the end of the longest hold. Otherwise the server would keep the lock beyond that.
        let lease = hold.term.ends.map_or(lease, |ends| lease.min(ends.since(sent).max(SHORTEST)));
        let rules = self.rules();
        self.event(sent, |state| {
            // From here on, the server can keep the lock for longer than the holds last, even if the answer is lost.
            (state.lease.outlasts, state.is_moved) = (true, true);
            state.asks_for(lease, rules);
        });
        let call = self.lock.protocol.renewal().call(millis(lease), [self.row(sent)]);
        let reply = self.lock.run(&connection, &call).await?;
        let now = clock::now();
        match &parse_renewal(&reply, 1)?[0] {
            RenewalReply::Renewed => {}
            RenewalReply::Lost => {
                self.event(now, State::finds_nothing);
                return Ok(());
            }
            RenewalReply::Refused(error) => return Err(store::fault_in_script(error)),
        }
        hold.advance(now, hold::lease::deadline(sent, lease));
        self.event(now, |state| {
            state.is_moved = true;
            state.lease.is_kept_for(lease, sent)
        });
        Ok(())
    }

    /// Begins a renewal that is due. Returns the lease to ask for. Zero: the server changes the lease only if another
    /// client shortened it. `None`: there is nothing to renew.
    pub(crate) fn begin_renewal(self: &Arc<Self>, key: Key, now: Moment) -> Option<Duration> {
        let (rules, engine) = (self.rules(), &self.lock.engine);
        let begin = |Shell { state, renewal, renewing, tracked, .. }: &mut Shell| {
            if !renewal.begin(key) {
                return None;
            }
            let tells_changes = engine.store.tells_changes();
            if !tells_changes {
                state.lease.look.due = None;
            }
            state.forgets_ended(now);
            let wanted = state.wanted(now, rules);
            let lease = state.lease.begins(&wanted, key.0, now, rules);
            if lease.is_none() {
                renewal.end();
                return None;
            }
            // Before the command leaves: what the server tells right after its answer can be handled before the answer.
            if tells_changes && tracked.is_none() {
                let key = self.lock.protocol.tracked_key(self.holder());
                engine.tracked.add(Arc::clone(&key), self);
                *tracked = Some(key);
            }
            if let Some(first) = state.first() {
                renewing.begins(&first.metrics, key.0);
            }
            lease
        };
        self.change(now, begin).0
    }

    /// The lease that sets the pace of a look.
    pub(crate) fn paced_by(&self, now: Moment) -> Duration {
        let rules = self.rules();
        self.ask(|state| state.wanted(now, rules).paced_by(rules))
    }

    /// Returns the row of this grant in a batch of renewals.
    pub(crate) fn row(&self, now: Moment) -> Row {
        let left =
            |state: &mut State| if state.lease.look.is_running { Duration::ZERO } else { state.left(now) };
        self.lock.protocol.renewal_row(self.holder(), self.ask(left))
    }

    /// Ends a renewal or a look. A panic of the user's code, which is told of it, must not end the others of the batch.
    fn renewal_ends(self: &Arc<Self>, now: Moment, event: impl FnOnce(&mut Shell) -> Option<Renewed>) {
        let change = |shell: &mut Shell| {
            shell.renewal.end();
            shell.state.is_moved = true;
            event(shell).map(|outcome| (shell.renewing.ends(outcome), outcome))
        };
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let (Some((renewing, outcome)), _) = self.change(now, change) {
                nothing_is_locked();
                renewing.tell(outcome);
            }
        }));
    }

    /// Records that the server told of a change of the key.
    pub(crate) fn key_changed(self: &Arc<Self>, now: Moment) {
        let (rules, is_common) = (self.rules(), self.permits().is_some());
        self.looks(now, |state| state.lease.look.is_told(now, is_common, rules));
    }

    /// Records that perhaps somebody changed the key. The look at the hold is due at `at`.
    pub(crate) fn is_unsure_of_key(self: &Arc<Self>, at: Moment, now: Moment) {
        self.looks(now, |state| state.lease.look.is_due(at));
    }

    fn looks(self: &Arc<Self>, now: Moment, event: impl FnOnce(&mut State)) {
        self.event(now, |state| {
            if state.has_guards() {
                state.is_moved = true;
                event(state);
            }
        });
    }

    /// Records that the renewal sent at `sent` for this lease succeeded. It made the lease longer, even if a hold has ended meanwhile.
    pub(crate) fn renewed(self: &Arc<Self>, sent: Moment, lease: Duration, now: Moment) {
        let rules = self.rules();
        self.renewal_ends(now, |Shell { state, .. }| {
            state.forgets_ended(now);
            let wanted = state.wanted(now, rules);
            let is_renewal = state.lease.found(&wanted, lease, (sent, now), rules);
            if !lease.is_zero() {
                state.keeps_lease(lease, sent, now);
            }
            is_renewal.then_some(Renewed::Ok)
        });
    }

    /// Records that the renewal found no hold on the server.
    pub(crate) fn renewal_found_nothing(self: &Arc<Self>, now: Moment) {
        self.renewal_ends(now, |Shell { state, .. }| {
            let is_look = std::mem::take(&mut state.lease.look.is_running);
            let had_guards = state.has_guards();
            (state.finds_nothing() && had_guards && !is_look).then_some(Renewed::Gone)
        });
    }

    /// Records that the renewal failed. The next try is due at `next`.
    pub(crate) fn renewal_failed(self: &Arc<Self>, next: Moment, now: Moment) {
        self.renewal_ends(now, |Shell { state, .. }| state.lease.failed(next).then_some(Renewed::Failed));
    }

    /// Records that the server has a place of this grant. `is_new`: the server had none before.
    pub(super) fn gets_place(self: &Arc<Self>, is_new: bool, now: Moment) {
        let had_place = self.event(now, |state| {
            let had_place = state.has_place;
            state.has_place |= state.is_wanted();
            had_place
        });
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

    /// Begins a heartbeat that is due. False: there is no place to keep.
    pub(crate) fn begin_heartbeat(self: &Arc<Self>, key: Key, now: Moment) -> bool {
        self.change(now, |shell| shell.heartbeat.begin(key)).0
    }

    /// Returns the id of the waiter, as the server knows it.
    pub(crate) fn waiter(&self) -> String {
        self.id.to_string()
    }

    /// Returns the heartbeat command for these waiters of the lock.
    pub(crate) fn heartbeat(&self, waiters: String) -> Call {
        let queue = self.lock.protocol.queue().expect("BUG: only a lock with a queue has places");
        queue.heartbeat(&self.lock.keys, &self.lock.engine.config, waiters)
    }

    /// Ends a heartbeat. The next one is due at `next`. `wakes`: the waiter has to attempt now.
    pub(crate) fn heard_of(self: &Arc<Self>, next: Moment, wakes: bool, now: Moment) {
        self.change(now, |Shell { state, heartbeat, .. }| {
            heartbeat.end();
            self.lock.engine.heartbeats.set(heartbeat, state.has_place.then_some(next), || Arc::clone(self));
        });
        if wakes {
            self.lock.engine.lines.wake(&self.wake_channel());
        }
    }
}
