//! A grant: what one owner id holds, or may hold, on one lock of one server.
//!
//! An owner that holds nothing on a name gets a new grant with a new id when it begins to acquire. Re-entries raise
//! the grant's count, releases lower it, and at none it is over: its id is never used again. That is what makes it
//! safe to send a command twice, or to have an old copy of it run late. A copy names an id and a target count, so it
//! finds either nothing or what it was meant for. The one copy that can do harm is a first acquire, which creates;
//! [`Grant::settle`] is repeated until none can come any more.
//!
//! There are two sides. The *books* say what this process wants to hold; they change at once, also in a `drop`. The
//! *ledger* says what the server may have; it changes with replies, and whoever sends a command holds it. Settling
//! brings the second down to the first.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::task;

use super::Engine;
use super::hold::Hold;
use super::kind::{Answer, Ask, Kind, Settled};
use super::{lease, watchdog};
use crate::clock::{self, Moment};
use crate::script::{Call, Reply, Row};
use crate::store::{Fault, Route, Sent};
use crate::sync::lock;

/// One lock on one server.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) engine: Arc<Engine>,
    pub(crate) kind: &'static dyn Kind,
    pub(crate) name: Arc<str>,
}

pub(crate) struct Grant {
    pub(crate) target: Target,
    id: Arc<str>,
    /// Where the first hold was acquired. Another task that re-enters shares a handle that it should not share.
    task: Option<task::Id>,
    books: Mutex<Books>,
    /// Locked while a command about this grant is under way, so that they run in the order of the calls.
    ledger: AsyncMutex<Ledger>,
}

#[derive(Default)]
struct Books {
    /// Holds that were granted and not given back.
    count: u32,
    /// The holds that are still looked after, and which of their members this grant is.
    holds: Vec<(Arc<Hold>, usize)>,
    watch: watchdog::Watch,
}

struct Ledger {
    /// The server has at most this count.
    at_most: u32,
    /// A full release was sent and not answered. If the next finds nothing, that one did it.
    was_released: bool,
    /// The lease to ask for when holds are left.
    lease: Duration,
    /// Connections on which a first acquire was sent and no later command was answered. A copy of it may run yet.
    unanswered: Vec<u64>,
}

impl Grant {
    pub(crate) fn new(target: Target) -> Self {
        let id = target.engine.new_owner();
        let ledger =
            Ledger { at_most: 0, was_released: false, lease: Duration::ZERO, unanswered: Vec::new() };
        Self { target, id, task: task::try_id(), books: Mutex::default(), ledger: AsyncMutex::new(ledger) }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.target.name
    }

    pub(crate) fn count(&self) -> u32 {
        lock(&self.books).count
    }

    /// Holds that can be relied on now.
    pub(crate) fn live(&self, now: Moment) -> u32 {
        let live = lock(&self.books).holds.iter().filter(|(hold, member)| hold.is_live(*member, now)).count();
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    /// Whether somebody else's task acquired the first hold.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!((self.task, task::try_id()), (Some(first), Some(this)) if first != this)
    }

    /// One more hold was granted.
    pub(crate) fn add(self: &Arc<Self>, hold: &Arc<Hold>, member: usize) {
        let mut books = lock(&self.books);
        books.count += 1;
        books.holds.push((Arc::clone(hold), member));
        if hold.is_watched() {
            self.target.engine.watchdog.watch(&mut books.watch, self);
        }
    }

    /// A hold is given back: from here on nothing renews the lease for its sake.
    pub(crate) fn strike(&self, hold: &Arc<Hold>) {
        let mut books = lock(&self.books);
        if books.forget(hold) {
            books.count -= 1;
        }
        self.unwatch_if_unneeded(&mut books);
    }

    /// A hold stays until its lease ends by itself.
    pub(crate) fn leak(&self, hold: &Hold) {
        let mut books = lock(&self.books);
        hold.unwatch();
        self.unwatch_if_unneeded(&mut books);
    }

    /// All its holds are lost, or to be treated so.
    pub(crate) fn write_off(&self) {
        let mut books = lock(&self.books);
        books.count = 0;
        for (hold, member) in books.holds.drain(..) {
            hold.lose(member);
        }
        self.unwatch_if_unneeded(&mut books);
    }

    fn unwatch_if_unneeded(&self, books: &mut Books) {
        if !books.holds.iter().any(|(hold, _)| hold.is_watched()) {
            self.target.engine.watchdog.unwatch(&mut books.watch);
        }
    }

    /// Sends one attempt to hold `want` times. Returns the deadline of what was granted.
    ///
    /// When the future is dropped the outcome is unknown, and the ledger says so.
    pub(crate) async fn attempt(&self, want: u32, lease: Duration) -> Result<(Answer, Moment), Fault> {
        let mut ledger = self.ledger.lock().await;
        let route = self.route().await?;
        // Before anything is sent: the server counts the lease from later than this.
        let sent = clock::now();
        let before = ledger.at_most;
        ledger.at_most = before.max(want);
        ledger.lease = lease;
        if want == 1 {
            ledger.unanswered.push(route.number());
        }
        let call = self.target.kind.attempt(&self.ask(want, lease));
        let result = self.run(&route, &call).await.and_then(|reply| Answer::read(&reply));
        match &result {
            Ok(Answer::Granted) => ledger.answered(&route, want),
            Ok(_) => ledger.answered(&route, 0),
            Err(fault) if fault.sent == Sent::No => ledger.answered(&route, before),
            Err(_) => {}
        }
        let margin = self.target.engine.config.margin;
        result.map(|answer| (answer, lease::deadline(sent, lease, margin)))
    }

    /// Brings the server down to the books, if it may have more. `None`: there was nothing to do.
    pub(crate) async fn settle(&self) -> Result<Option<Settled>, Fault> {
        let mut ledger = self.ledger.lock().await;
        let keep = self.count();
        if ledger.at_most <= keep {
            return Ok(None);
        }
        let route = self.route().await?;
        let call = self.target.kind.release(&self.ask(keep, ledger.lease), keep);
        let was_released = std::mem::replace(&mut ledger.was_released, keep == 0);
        let settled = Settled::read(&self.run(&route, &call).await?)?;
        ledger.answered(&route, keep);
        match settled {
            Settled::Gone if was_released => Ok(Some(Settled::Released)),
            Settled::Gone if keep > 0 => {
                self.write_off();
                ledger.answered(&route, 0);
                Ok(Some(Settled::Gone))
            }
            settled => Ok(Some(settled)),
        }
    }

    /// Whether the server has no more than the books say, and never will. Says no while a command is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.ledger.try_lock().is_ok_and(|ledger| ledger.at_most <= self.count())
    }

    /// What is left to do on the server is done in the background.
    pub(crate) fn settle_later(self: &Arc<Self>) {
        if !self.is_settled() {
            self.target.engine.background.settle(Arc::clone(self));
        }
    }

    /// Renews this grant alone, and for this hold. False: it is lost.
    pub(crate) async fn extend(&self, hold: &Hold, member: usize, lease: Duration) -> Result<bool, Fault> {
        let route = self.route().await?;
        let sent = clock::now();
        let call = self.target.kind.renewal().call(lease::millis(lease), [self.keep_alive()]);
        let reply = self.run(&route, &call).await?;
        if reply == Reply::List(vec![Reply::Int(0)]) {
            self.write_off();
            return Ok(false);
        }
        let deadline = lease::deadline(sent, lease, self.target.engine.config.margin);
        Ok(hold.advance(member, clock::now(), deadline))
    }

    /// What this grant adds to a renewal of many.
    pub(crate) fn keep_alive(&self) -> Row {
        self.target.kind.keep_alive(&self.target.name, &self.id)
    }

    /// The watchdog took it off its list to renew it. False: there is nothing to renew.
    pub(crate) fn begin_renewal(&self, now: Moment) -> bool {
        let mut books = lock(&self.books);
        if !books.watch.begin() {
            return false;
        }
        let mut watched = books.holds.iter().filter(|(hold, _)| hold.is_watched());
        if watched.any(|(hold, member)| hold.is_live(*member, now)) {
            return true;
        }
        tracing::warn!(name = %self.target.name, "a lock was lost: its lease could not be renewed in time");
        self.target.engine.watchdog.unwatch(&mut books.watch);
        false
    }

    /// A renewal that was sent then was acknowledged.
    pub(crate) fn renewed(self: &Arc<Self>, sent: Moment, next: Moment) {
        let config = &self.target.engine.config;
        let deadline = lease::deadline(sent, config.watchdog_lease, config.margin);
        let mut books = lock(&self.books);
        for (hold, member) in books.holds.iter().filter(|(hold, _)| hold.is_watched()) {
            hold.advance(*member, clock::now(), deadline);
        }
        self.target.engine.watchdog.again(&mut books.watch, self, next);
    }

    /// A renewal failed; it is tried again.
    pub(crate) fn not_renewed(self: &Arc<Self>, next: Moment) {
        self.target.engine.watchdog.again(&mut lock(&self.books).watch, self, next);
    }

    fn ask(&self, want: u32, lease: Duration) -> Ask<'_> {
        Ask { name: &self.target.name, owner: &self.id, want, lease }
    }

    async fn route(&self) -> Result<Route, Fault> {
        self.target.engine.store.route(&self.target.name).await
    }

    async fn run(&self, route: &Route, call: &Call) -> Result<Reply, Fault> {
        self.target.engine.store.run(route, call).await
    }
}

impl Books {
    fn forget(&mut self, hold: &Arc<Hold>) -> bool {
        let found = self.holds.iter().position(|(other, _)| Arc::ptr_eq(other, hold));
        found.map(|index| self.holds.swap_remove(index)).is_some()
    }
}

impl Ledger {
    /// A command on this connection was answered, so whatever was sent on it before has run or never will.
    fn answered(&mut self, route: &Route, at_most: u32) {
        self.unanswered.retain(|number| *number != route.number());
        // A first acquire that may still run on another connection may still create a hold.
        self.at_most = at_most.max(u32::from(!self.unanswered.is_empty()));
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("name", &self.target.name)
            .field("id", &self.id)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kind, self.name)
    }
}
