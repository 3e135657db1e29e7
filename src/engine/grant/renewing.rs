//! How the watchdog serves a grant.

use std::sync::Arc;
use std::time::Duration;

use super::Grant;
use super::desired::Desired;
use crate::base::clock::{self, Moment};
use crate::base::fault::Fault;
use crate::base::jitter;
use crate::base::sync::lock;
use crate::engine::hold::Hold;
use crate::engine::hold::lease;
use crate::engine::upkeep::renewal::Renewable;
use crate::engine::upkeep::scheduler::Key;
use crate::metrics::Renewed;
use crate::protocol::{Batch, Row, millis, parse_renewal};
use crate::store::Route;

/// The shortest time that Redis can count.
const SHORTEST: Duration = Duration::from_millis(1);

impl Grant {
    /// Sets when the watchdog has to do something next. Must be called after every change of the holds.
    ///
    /// A renewal is due while there is a hold that the watchdog renews, or a hold whose lease can change without this client. The
    /// end of a hold is due if the server can keep the hold for longer.
    pub(crate) fn schedule_renewal(self: &Arc<Self>, desired: &mut Desired, now: Moment) {
        let renewals = &self.lock.engine.renewals;
        let (is_shared, is_checked) = (self.is_shared(), self.is_checked());
        if desired.holds.iter().any(|(hold, _)| hold.is_watched() || is_checked) {
            let first = || now.plus(jitter::within(renewals.duty().period(is_shared)));
            desired.renew_at.get_or_insert_with(first);
        } else {
            desired.renew_at = None;
        }
        let due = desired.renew_at.into_iter().chain(desired.next_end()).min();
        renewals.set(&mut desired.renewal, due, || Arc::<Self>::clone(self));
    }

    /// Whether a fixed lease is looked after, too: another client can shorten it, or another master can lack the hold.
    fn is_checked(&self) -> bool {
        self.is_shared() || self.lock.engine.store.can_switch()
    }

    fn lease_to_renew(&self, desired: &Desired) -> Duration {
        if desired.lengthens { self.lock.engine.config.watchdog_lease() } else { Duration::ZERO }
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
        self.is_outlasted();
        let call = self.script().call(millis(lease), [self.row()]);
        let reply = self.lock.run(&connection, &call).await?;
        if !parse_renewal(&reply, 1)?[0] {
            self.lose_holds();
            return Ok(());
        }
        let now = clock::now();
        hold.advance(member, now, lease::deadline(sent, lease, self.lock.engine.config.margin()));
        self.schedule_renewal(&mut lock(&self.desired), now);
        Ok(())
    }

    /// The server has nothing of this grant. If the grant has no holds, that is no loss: they were given back, and the release
    /// was faster than the renewal.
    fn lose_holds(self: &Arc<Self>) {
        let mut desired = lock(&self.desired);
        if desired.holds.is_empty() {
            self.schedule_renewal(&mut desired, clock::now());
        } else {
            self.lose(desired);
        }
    }
}

impl Renewable for Grant {
    fn begin(self: Arc<Self>, key: Key, now: Moment) -> Option<Duration> {
        let mut desired = lock(&self.desired);
        if !desired.renewal.begin(key) {
            return None;
        }
        desired.forget_ended(now);
        desired.lengthens = desired.holds.iter().any(|(hold, _)| hold.is_watched());
        if desired.lengthens || (self.is_checked() && !desired.holds.is_empty()) {
            desired.renewal_begins(key);
            return Some(self.lease_to_renew(&desired));
        }
        desired.renewal.end();
        self.schedule_renewal(&mut desired, now);
        drop(desired);
        // Waiters need not wait for the rest of the lease on the server.
        self.reconcile_later();
        None
    }

    fn route(&self) -> Route {
        self.lock.route
    }

    fn script(&self) -> &'static Batch {
        self.lock.protocol.renewal()
    }

    fn row(&self) -> Row {
        let now = clock::now();
        let left = lock(&self.desired).holds.iter().map(|(hold, member)| hold.left(*member, now)).max();
        self.lock.protocol.renewal_row(self.holder(), left.unwrap_or_default())
    }

    fn is_shared(&self) -> bool {
        self.lock.protocol.is_shared()
    }

    fn renewed(self: Arc<Self>, sent: Moment, next: Moment) {
        let config = &self.lock.engine.config;
        let deadline = lease::deadline(sent, config.watchdog_lease(), config.margin());
        let mut desired = lock(&self.desired);
        let (now, lengthened) = (clock::now(), desired.lengthens);
        desired.renewal.end();
        desired.renewing.ends(Renewed::Ok);
        for (hold, member) in desired.holds.iter().filter(|(hold, _)| lengthened && hold.is_watched()) {
            hold.advance(*member, now, deadline);
        }
        // A hold that ended during the renewal has to be released again: the renewal made the server's lease longer.
        let has_ended = desired.holds.iter().any(|(hold, member)| !hold.relies_on(*member, now));
        desired.renew_at = Some(if has_ended { now } else { next });
        self.schedule_renewal(&mut desired, now);
    }

    fn gone(self: Arc<Self>) {
        lock(&self.desired).renewal_finds_nothing();
        lock(&self.desired).renewal.end();
        self.lose_holds();
    }

    fn failed(self: Arc<Self>, next: Moment) {
        let mut desired = lock(&self.desired);
        desired.renewal.end();
        desired.renewing.ends(Renewed::Failed);
        desired.renew_at = Some(next);
        self.schedule_renewal(&mut desired, next);
    }

    fn holder_of(&self, name: &str) -> Option<String> {
        let is_holder = *self.lock.keys.lock == *name && self.live(clock::now()) > 0;
        is_holder.then(|| format!("{}, acquired at {}", self.field(), self.caller))
    }
}
