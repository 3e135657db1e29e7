//! The renewal of a grant.

use std::sync::Arc;
use std::time::Duration;

use super::lingering::Confirmation;
use super::{Effects, Grant, Machine, State};
use crate::base::clock::{self, Moment};
use crate::base::fault::Fault;
use crate::engine::hold::{self, Hold};
use crate::engine::lock_ref::LockRef;
use crate::engine::scheduler::Key;
use crate::protocol::{Batch, ConfirmReply, Read, RenewalReply, Row, millis, parse_renewal};
use crate::store;

/// The shortest time that Redis can count.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

impl Grant {
    /// Renews this grant alone, for one hold, with a lease that the user chose.
    pub(crate) async fn extend(self: &Arc<Self>, hold: &Hold, lease: Duration) -> Result<(), Fault> {
        let connection = self.lock.connection().await?;
        let sent = clock::now();
        // Cap the lease at the end of the longest hold. Otherwise the server would keep the lock beyond that.
        let lease = hold.ends().map_or(lease, |ends| lease.min(ends.since(sent).max(SHORTEST)));
        let rules = self.rules();
        self.event(sent, |machine, _| machine.extends(lease, rules));
        let call = self.script().call(millis(lease), [self.row(sent)]);
        let reply = self.lock.run(&connection, &call).await?;
        let now = clock::now();
        match &parse_renewal(&reply, 1)?[0] {
            RenewalReply::Renewed => {}
            RenewalReply::Lost => {
                self.event(now, |machine, effects| machine.found_nothing(effects));
                return Ok(());
            }
            RenewalReply::Refused(error) => return Err(store::fault_in_script(error)),
        }
        let deadline = hold::lease::deadline(sent, lease);
        hold.advance(now, deadline);
        self.event(now, |machine, _| machine.lease.until = machine.lease.until.max(deadline));
        Ok(())
    }

    /// Begins a renewal that is due. Returns the lease to ask for. Zero: the server changes the lease only if another
    /// client shortened it. `None`: there is nothing to renew.
    pub(crate) fn begin_renewal(self: &Arc<Self>, key: Key, now: Moment) -> Option<Duration> {
        let rules = self.rules();
        let mut is_taken_back = false;
        let lease = self.change(now, |state, effects| {
            if !state.renewal.begin(key) {
                return None;
            }
            let was_offered = state.machine.is_offered();
            if !self.lock.engine.store.tells_changes() {
                state.machine.looks_at_nothing();
            }
            let lease = state.machine.begins_renewal(key.0, now, rules, effects);
            is_taken_back = was_offered && !state.machine.is_offered();
            if lease.is_none() {
                state.renewal.end();
            } else if let Some(first) = state.machine.all_holds().next() {
                state.renewing.begins(first.metrics(), key.0);
            }
            lease
        });
        if is_taken_back {
            self.take_back(now);
        }
        lease
    }

    /// The lease that sets the pace of a look.
    pub(crate) fn paced_by(&self) -> Duration {
        self.ask(|machine| machine.paced_by(self.rules()))
    }

    /// Takes back an offer that no waiter took in time.
    fn take_back(&self, now: Moment) {
        let LockRef { engine, keys, .. } = &*self.lock;
        if let Some(queue) = engine.wait_queues.queue_of(keys, self.is_shared()) {
            queue.take_back(now);
        }
    }

    /// The script that renews this type of lock.
    pub(crate) fn script(&self) -> &'static Batch {
        self.lock.protocol.renewal()
    }

    /// Returns the row of this grant in a batch of renewals.
    pub(crate) fn row(&self, now: Moment) -> Row {
        let left = self.ask(|machine| if machine.looks() { Duration::ZERO } else { machine.left(now) });
        self.lock.protocol.renewal_row(self.holder(), left)
    }

    /// Ends a renewal, and tells the machine how.
    fn renewal_ends(self: &Arc<Self>, now: Moment, event: impl FnOnce(&mut Machine, &mut Effects)) {
        self.change(now, |state, effects| {
            state.renewal.end();
            event(&mut state.machine, effects);
        });
    }

    /// The key of which the server tells changes, once a renewal has read it.
    pub(super) fn tracked_key(&self) -> Arc<str> {
        self.lock.protocol.tracked_key(self.holder())
    }

    /// Records that the server told of a change of the key.
    pub(crate) fn key_changed(self: &Arc<Self>, now: Moment) {
        let (rules, is_common) = (self.rules(), self.permits().is_some());
        self.event(now, |machine, _| machine.key_changed(now, is_common, rules));
    }

    /// Records that perhaps somebody changed the key. The look at the hold is due at `at`.
    pub(crate) fn is_unsure_of_key(self: &Arc<Self>, at: Moment, now: Moment) {
        self.event(now, |machine, _| machine.is_unsure_of_key(at));
    }

    /// Records that the renewal sent at `sent` succeeded. The next one is due at `next`.
    pub(crate) fn renewed(self: &Arc<Self>, sent: Moment, next: Moment, now: Moment) {
        let rules = self.rules();
        let engine = &self.lock.engine;
        self.change(now, |state, effects| {
            state.renewal.end();
            state.machine.renewed(sent, next, now, rules, effects);
            if state.tracked.is_none() && engine.store.tells_changes() {
                let key = self.tracked_key();
                engine.tracked.add(Arc::clone(&key), self);
                state.tracked = Some(key);
            }
        });
    }

    /// Begins to confirm a hold that lingers. `None`: the confirmation is not due, or the lingering ends instead.
    pub(crate) fn begin_confirmation(self: &Arc<Self>, key: Key, now: Moment) -> Option<Confirmation> {
        let (epoch, is_closing) = (self.epoch(), self.lock.engine.is_closing());
        self.change(now, |state, _| {
            if !state.confirmation.begin(key) {
                return None;
            }
            let asks = state.machine.begins_confirmation(epoch, is_closing, now);
            if asks.is_none() {
                state.confirmation.end();
            }
            asks
        })
    }

    /// Confirms a hold that lingers.
    pub(crate) async fn confirm(self: &Arc<Self>, asked: Confirmation) {
        let call = Read::confirm(self.holder(), asked.linger, asked.makes_gap);
        let ask = async {
            let connection = self.lock.connection().await?;
            let sent = clock::now();
            let reply = self.lock.run(&connection, &call).await?;
            Ok::<_, Fault>((sent, ConfirmReply::parse(&reply)?))
        };
        let answer = ask.await;
        let (epoch, rules, now) = (self.epoch(), self.rules(), clock::now());
        self.change(now, |State { confirmation, machine, .. }, effects| {
            confirmation.end();
            match answer {
                Ok((_, ConfirmReply::Lost)) => machine.confirmed_nothing(effects),
                Ok((sent, reply)) => {
                    machine.confirmed(asked, sent, reply == ConfirmReply::Wanted, (epoch, now), rules)
                }
                Err(_) => machine.closes_to_readers(),
            }
        });
    }

    /// Ends a confirmation that was not answered: the hold ends with its readers.
    pub(crate) fn is_not_confirmed(self: &Arc<Self>, now: Moment) {
        self.change(now, |State { confirmation, machine, .. }, _| {
            confirmation.end();
            machine.closes_to_readers();
        });
    }

    /// Records that the renewal found no hold on the server.
    pub(crate) fn renewal_found_nothing(self: &Arc<Self>, now: Moment) {
        self.renewal_ends(now, |machine, effects| machine.renewed_nothing(effects));
    }

    /// Records that the renewal failed. The next try is due at `next`.
    pub(crate) fn renewal_failed(self: &Arc<Self>, next: Moment, now: Moment) {
        self.renewal_ends(now, |machine, effects| machine.not_renewed(next, effects));
    }
}
