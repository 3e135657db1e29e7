//! What keeps a grant alive on the server: renewals for holds, heartbeats for places in a queue.

use std::sync::Arc;
use std::time::Duration;

use super::Grant;
use crate::clock::{self, Moment};
use crate::engine::hold::Hold;
use crate::engine::{lease, watchdog};
use crate::script::{Reply, Row};
use crate::store::Fault;
use crate::sync::lock;

/// The shortest time that Redis counts in.
const SHORTEST: Duration = Duration::from_millis(1);

impl Grant {
    /// Renews this grant alone, for the sake of one hold.
    pub(crate) async fn extend(&self, hold: &Hold, member: usize, lease: Duration) -> Result<(), Fault> {
        let route = self.route().await?;
        let sent = clock::now();
        // Nor shall the server keep it longer than that.
        let lease = hold.ends().map_or(lease, |ends| lease.min(ends.since(sent).max(SHORTEST)));
        self.asks_for(lease);
        let call = self.target.kind.renewal().call(lease::millis(lease), [self.keep_alive()]);
        match self.run(&route, &call).await? {
            Reply::List(reply) if reply == [Reply::Int(1)] => {
                let deadline = lease::deadline(sent, lease, self.target.engine.config.margin);
                hold.advance(member, clock::now(), deadline);
                Ok(())
            }
            Reply::List(reply) if reply == [Reply::Int(0)] => {
                self.lose_holds();
                Ok(())
            }
            reply => Err(Fault::unexpected(&reply)),
        }
    }

    /// What this grant adds to a renewal of many.
    pub(crate) fn keep_alive(&self) -> Row {
        let now = clock::now();
        let left = lock(&self.books).holds.iter().map(|(hold, member)| hold.left(*member, now)).max();
        self.target.kind.keep_alive(self.whose(), left.unwrap_or_default())
    }

    /// The watchdog took it off its list, where it stood under this key, to renew it. False: there is nothing to renew.
    pub(crate) fn begin_renewal(self: &Arc<Self>, key: watchdog::Key, now: Moment) -> bool {
        let mut books = lock(&self.books);
        if !books.watch.begin(key) {
            return false;
        }
        let watched = || books.holds.iter().filter(|(hold, _)| hold.is_watched());
        let lengthens = watched().any(|(hold, member)| hold.relies_on(*member, now));
        let is_live =
            |(hold, member): &(Arc<Hold>, usize)| self.needs_watch(hold) && hold.relies_on(*member, now);
        if lengthens || books.holds.iter().any(is_live) {
            books.lengthens = lengthens;
            return true;
        }
        if watched().any(|(hold, _)| !hold.is_over(now)) {
            tracing::warn!(name = %self.name(), "a lock was lost: its lease could not be renewed in time");
        }
        books.watch.end();
        self.target.engine.watchdog.unwatch(&mut books.watch);
        drop(books);
        // Whoever waits need not wait for the rest of the lease that the server may know of.
        self.settle_later();
        false
    }

    /// The lease that the renewal under way asks for; zero if it only keeps what there is.
    pub(crate) fn renewed_lease(&self) -> Duration {
        if lock(&self.books).lengthens { self.target.engine.config.watchdog_lease } else { Duration::ZERO }
    }

    /// A renewal that was sent then was acknowledged.
    pub(crate) fn renewed(self: &Arc<Self>, sent: Moment, next: Moment) {
        let config = &self.target.engine.config;
        let deadline = lease::deadline(sent, config.watchdog_lease, config.margin);
        let mut books = lock(&self.books);
        let (now, mut next) = (clock::now(), next);
        let lengthened = books.lengthens;
        for (hold, member) in books.holds.iter().filter(|(hold, _)| lengthened && hold.is_watched()) {
            hold.advance(*member, now, deadline);
            let ends = hold.ends().filter(|&ends| ends > now);
            next = ends.map_or(next, |ends| ends.min(next));
        }
        if !books.holds.iter().any(|(hold, member)| self.needs_watch(hold) && hold.relies_on(*member, now)) {
            next = now; // they ended while this was under way, and it made the lease longer once more
        }
        self.target.engine.watchdog.again(&mut books.watch, self, next);
    }

    /// A renewal found that the server knows nothing of it. True: there were holds that were not known to be lost.
    pub(crate) fn not_there(&self) -> bool {
        lock(&self.books).watch.end();
        self.lose_holds()
    }

    /// Without holds this says nothing: they were given back, and the release was faster than the renewal.
    fn lose_holds(&self) -> bool {
        let mut books = lock(&self.books);
        !books.holds.is_empty() && self.lose(&mut books)
    }

    /// A renewal failed; it is tried again.
    pub(crate) fn not_renewed(self: &Arc<Self>, next: Moment) {
        self.target.engine.watchdog.again(&mut lock(&self.books).watch, self, next);
    }

    /// It has a place from now on, or still.
    pub(super) fn keep_place(self: &Arc<Self>, is_new: bool) {
        let mut books = lock(&self.books);
        if is_new && books.beat.is_wanted() {
            tracing::warn!(
                name = %self.name(),
                "a place in the queue was lost, as nothing was heard of this process in time: queued again at the end"
            );
        }
        if books.claims > 0 {
            self.target.engine.heart.watch(&mut books.beat, self, clock::now());
        }
    }

    /// The heart took it off its list, where it stood under this key, to keep its place. False: there is none to keep,
    /// or whoever has it does not do anything with it.
    pub(crate) fn begin_beat(self: &Arc<Self>, key: watchdog::Key, period: Duration) -> bool {
        let engine = &self.target.engine;
        let ignores = engine.lines.ignores_a_wake(&self.wake_channel(), engine.config.safety_poll * 2);
        let mut books = lock(&self.books);
        if !books.beat.begin(key) {
            return false;
        }
        if ignores {
            engine.heart.again(&mut books.beat, self, clock::now().plus(period));
        }
        !ignores
    }

    /// The server was told. If it is this one's turn, or if its place is gone, it attempts; that queues it again.
    pub(crate) fn beaten(self: &Arc<Self>, next: Moment, calls: bool) {
        let engine = &self.target.engine;
        engine.heart.again(&mut lock(&self.books).beat, self, next);
        if calls {
            engine.lines.wake_up(&self.wake_channel());
        }
    }
}
