//! The renewal of a grant.

use std::sync::Arc;
use std::time::Duration;

use super::Grant;
use super::desired::Desired;
use crate::base::clock::{self, Moment};
use crate::base::fault::Fault;
use crate::base::jitter;
use crate::engine::hold::{self, Hold};
use crate::engine::lock_ref::LockRef;
use crate::engine::observer::Lasting;
use crate::engine::scheduler::Key;
use crate::protocol::{Batch, RenewalReply, Row, millis, parse_renewal};
use crate::store;
use crate::telemetry::Renewed;

/// The shortest time that Redis can count.
const SHORTEST: Duration = Duration::from_millis(1);

impl Grant {
    /// Renews a new hold a period after its lease was asked for, at the latest. The reply perhaps took long, or the next renewal is that of
    /// a longer lease.
    pub(super) fn renew_in_time(&self, desired: &mut Desired, hold: &Hold, until: Moment, now: Moment) {
        let LockRef { engine, .. } = &*self.lock;
        let Some(lease) = hold.renewed_lease(engine.config.watchdog_lease()) else { return };
        let period = engine.periods.renewal(lease, self.is_shared());
        let next = desired.lease.renew_at.unwrap_or_else(|| now.plus(jitter::within(period)));
        desired.lease.renew_at = Some(next.min(until.minus(lease).plus(period)));
    }

    /// Sets when the watchdog has to do something next. Must be called after every change of the holds.
    ///
    /// A renewal is due while there is a hold that the watchdog renews, or one that is offered, or one whose lease can change without
    /// this client. The end of a hold is due if the server can keep the hold for longer.
    pub(super) fn schedule_renewal(self: &Arc<Self>, desired: &mut Desired, now: Moment) {
        let engine = &self.lock.engine;
        let (is_shared, is_checked) = (self.is_shared(), self.is_checked());
        let lease = self.renewed_lease(desired);
        if lease.is_some() || (is_checked && desired.holds().next().is_some()) {
            let first =
                || now.plus(jitter::within(engine.periods.renewal(lease.unwrap_or_default(), is_shared)));
            desired.lease.renew_at.get_or_insert_with(first);
        } else {
            desired.lease.renew_at = None;
        }
        let due = desired.lease.renew_at.into_iter().chain(desired.next_end()).min();
        engine.renewals.set(&mut desired.lease.slot, due, || Arc::clone(self));
    }

    /// Whether a fixed lease is looked after, too: another client can shorten it, or another master can lack the hold.
    pub(super) fn is_checked(&self) -> bool {
        self.is_shared() || self.lock.engine.store.can_switch()
    }

    /// The lease that the watchdog renews: the longest of what the holds want, as a renewal shortens nothing.
    pub(super) fn renewed_lease(&self, desired: &Desired) -> Option<Duration> {
        let usual = self.lock.engine.config.watchdog_lease();
        let offered = (desired.offers > 0).then_some(usual);
        desired.holds().filter_map(|(hold, _)| hold.renewed_lease(usual)).chain(offered).max()
    }

    /// Renews this grant alone, for one hold, with a lease that the user chose.
    pub(crate) async fn extend(
        self: &Arc<Self>,
        hold: &Hold,
        member: usize,
        lease: Duration,
    ) -> Result<(), Fault> {
        let connection = self.lock.connection().await?;
        let sent = clock::now();
        // The server must not keep the lock beyond the longest hold.
        let lease = hold.ends().map_or(lease, |ends| lease.min(ends.since(sent).max(SHORTEST)));
        self.asks_for(lease);
        // Before the command is sent: if the future is dropped, the server can keep the lock for longer than the hold lasts.
        self.is_outlasted(sent);
        let call = self.script().call(millis(lease), [self.row(sent)]);
        let reply = self.lock.run(&connection, &call).await?;
        let now = clock::now();
        match &parse_renewal(&reply, 1)?[0] {
            RenewalReply::Renewed => {}
            RenewalReply::Lost => {
                self.lose_holds(now);
                return Ok(());
            }
            RenewalReply::Refused(error) => return Err(store::fault_in_script(error)),
        }
        let deadline = hold::lease::deadline(sent, lease);
        hold.advance(member, now, deadline);
        let mut desired = self.desired();
        desired.lease.until = desired.lease.until.max(deadline);
        self.schedule_renewal(&mut desired, now);
        Ok(())
    }

    /// The server has nothing of this grant. If the grant has no holds, that is no loss: they were given back, and the release
    /// was faster than the renewal.
    pub(super) fn lose_holds(self: &Arc<Self>, now: Moment) {
        let mut desired = self.desired();
        if desired.holds().next().is_none() && desired.offers == 0 {
            self.schedule_renewal(&mut desired, now);
        } else {
            self.lose(desired, now);
            if self.lock.permits.count() > 1 {
                // Perhaps only one of the permits is gone. The others need not wait until the guard is dropped.
                self.reconcile_later(now);
            }
        }
    }

    /// Begins what is due. Returns the lease to ask for; zero changes the lease only if somebody shortened it. `None`: there is
    /// nothing to renew.
    pub(crate) fn begin_renewal(self: &Arc<Self>, key: Key, now: Moment) -> Option<Duration> {
        let mut desired = self.desired();
        if !desired.lease.slot.begin(key) {
            return None;
        }
        let (state, effects) = desired.with_effects();
        state.forget_ended(now, effects);
        let lease = self.renewed_lease(&desired);
        desired.lease.asked = lease;
        if lease.is_some() || (self.is_checked() && desired.holds().next().is_some()) {
            let first = desired.holds().next().map(|(hold, _)| Arc::clone(hold));
            if let Some(hold) = first {
                desired.lease.renewing.begins(hold.metrics(), key.0);
            }
            return Some(lease.unwrap_or_default());
        }
        desired.lease.slot.end();
        self.schedule_renewal(&mut desired, now);
        drop(desired);
        // Waiters need not wait for the rest of the lease on the server.
        self.reconcile_later(now);
        None
    }

    /// The script that renews it.
    pub(crate) fn script(&self) -> &'static Batch {
        self.lock.protocol.renewal()
    }

    /// Its row in a batch of renewals.
    pub(crate) fn row(&self, now: Moment) -> Row {
        let desired = self.desired();
        let offered = (desired.offers > 0).then(|| desired.lease.until.since(now));
        let left = desired.holds().map(|(hold, member)| hold.left(*member, now)).chain(offered).max();
        drop(desired);
        self.lock.protocol.renewal_row(self.holder(), left.unwrap_or_default())
    }

    /// The renewal that was sent at `sent` has succeeded. The next one is due at `next`.
    pub(crate) fn renewed(self: &Arc<Self>, sent: Moment, next: Moment, now: Moment) {
        let mut desired = self.desired();
        let asked = desired.lease.asked;
        desired.lease.slot.end();
        desired.renewal_ends(Renewed::Ok);
        if let Some(lease) = asked {
            let deadline = hold::lease::deadline(sent, lease);
            desired.lease.until = desired.lease.until.max(deadline);
            for (hold, member) in desired.holds().filter(|(hold, _)| hold.is_watched()) {
                hold.advance(*member, now, deadline);
            }
        }
        // A hold that ended during the renewal has to be released again: the renewal made the server's lease longer.
        let has_ended = desired.holds().any(|(hold, member)| !hold.relies_on(*member, now));
        desired.lease.renew_at = Some(if has_ended { now } else { next });
        self.schedule_renewal(&mut desired, now);
        let is_untold = desired.lease.lasting.is_none() && desired.was_held() && desired.is_in_use(now);
        let since = desired.lease.granted_at;
        drop(desired);
        if is_untold {
            self.lasts(since, now);
        }
    }

    /// Tells the observer that the hold lasts.
    fn lasts(&self, since: Moment, now: Moment) {
        let LockRef { engine, keys, .. } = &*self.lock;
        let Some(observer) = &engine.observer else { return };
        let Some(owner) = self.short_owner() else { return }; // permits have none
        let lasting = Box::new(Lasting::begin(observer, owner, &keys.lock, since));
        let mut desired = self.desired();
        // If the hold ended meanwhile, that is told now.
        if desired.is_in_use(now) && !desired.is_gone && desired.lease.lasting.is_none() {
            desired.lease.lasting = Some(lasting);
        }
    }

    /// The renewal found that the server does not have it any more.
    pub(crate) fn renewal_found_nothing(self: &Arc<Self>, now: Moment) {
        {
            let mut desired = self.desired();
            desired.lease.slot.end();
            // If the holds were given back meanwhile, the release was faster.
            if desired.holds().next().is_some() {
                desired.renewal_ends(Renewed::Gone);
            }
        }
        self.lose_holds(now);
    }

    /// The renewal failed. It is due again at `next`.
    pub(crate) fn renewal_failed(self: &Arc<Self>, next: Moment, now: Moment) {
        let mut desired = self.desired();
        desired.lease.slot.end();
        desired.renewal_ends(Renewed::Failed);
        desired.lease.renew_at = Some(next);
        self.schedule_renewal(&mut desired, now);
    }
}
