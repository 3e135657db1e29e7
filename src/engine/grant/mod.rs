//! A grant: what one owner id holds, or may hold, on one lock of one server.
//!
//! An owner that holds nothing on a name gets a new grant with a new id when it begins to acquire. Re-entries raise
//! the grant's count, releases lower it, and at none it is over: its id is never used again. That is what makes it
//! safe to send a command twice, or to have an old copy of it run late. A copy names an id and a target count, so it
//! finds either nothing or what it was meant for. The one copy that can do harm is a first acquire, which creates;
//! [`Grant::settle`] is repeated until none can come any more.
//!
//! There are two sides. The *books* say what this process wants to hold; they change at once, also in a `drop`. The
//! *ledger* says what the server may have; it changes with replies, and it is locked while a command is under way
//! that changes the count. Settling brings the second down to the first.

mod alive;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio::task;
use tokio::time::timeout;

use super::hold::Hold;
use super::kind::{Answer, Kind, Settled, Whose};
use super::{Engine, PerMember};
use super::{lease, watchdog};
use crate::clock::{self, Moment};
use crate::names::Keys;
use crate::script::{Arg, Call, Reply};
use crate::store::{Fault, FaultKind, Lane, Route, Sent};
use crate::sync::lock;

/// One lock on one server.
pub(crate) struct Target {
    pub(crate) engine: Arc<Engine>,
    pub(crate) kind: &'static dyn Kind,
    pub(crate) keys: Keys,
    lane: Lane,
}

pub(crate) struct Grant {
    pub(crate) target: Arc<Target>,
    /// The owner, in the form of Redisson's: `UUID:threadId`.
    id: Arg,
    number: u64,
    /// Where the first hold was acquired. Another task that re-enters shares a handle that it should not share.
    task: Option<task::Id>,
    books: Mutex<Books>,
    ledger: AsyncMutex<Ledger>,
    /// The longest lease that was asked for, in milliseconds.
    lease_ms: AtomicU64,
    /// Its fencing token; 0: none.
    token: AtomicU64,
}

/// What one member of a lock contributes to a hold.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) grant: Arc<Grant>,
    pub(crate) member: usize,
}

struct Books {
    /// Acquires under way. A release beside them must not take away what they are getting.
    claims: u32,
    /// The holds that guards stand for, and which of their members this grant is.
    holds: PerMember<(Arc<Hold>, usize)>,
    /// There was a hold.
    was_held: bool,
    /// The server was found to know nothing of it.
    is_gone: bool,
    watch: watchdog::Watch,
    /// It has a place in the lock's queue, and this keeps it.
    beat: watchdog::Watch,
    /// The renewal under way makes leases longer, and does not only see to it that nobody made them shorter.
    lengthens: bool,
}

struct Ledger {
    /// The server has at most this count.
    at_most: u32,
    /// A full release was sent and not answered. If the next finds nothing, that one did it.
    was_released: bool,
    /// Connections on which a first acquire was sent and no later command was answered. A copy of it may run yet.
    unanswered: PerMember<u64>,
}

/// An acquire under way on a grant. Dropped before it became a hold, it is undone.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) grant: Arc<Grant>,
    /// The count to ask for.
    pub(crate) want: u32,
    is_taken: bool,
    /// This owner holds the lock in another way, so nobody is in the way.
    pub(crate) is_within: bool,
}

impl Seat {
    /// With a new grant. Its owner is the one of another grant that is held meanwhile, or a new one.
    pub(crate) fn fresh(target: Arc<Target>, within: Option<&Grant>) -> Self {
        let is_within = within.is_some();
        Self { grant: Arc::new(Grant::new(target, within)), want: 1, is_taken: false, is_within }
    }

    /// On a grant of which something is held.
    pub(crate) fn again(grant: &Arc<Grant>, now: Moment) -> Option<Self> {
        let mut books = lock(&grant.books);
        // With the books locked: from here on, no release beside this goes below one.
        let live = books.live(now);
        if live == 0 {
            return None;
        }
        books.claims += 1;
        let want = live + books.claims;
        Some(Self { grant: Arc::clone(grant), want, is_taken: false, is_within: false })
    }

    /// It was granted, and becomes a hold.
    pub(crate) fn take(&mut self, hold: &Arc<Hold>, member: usize, now: Moment) {
        let mut books = lock(&self.grant.books);
        self.is_taken = true;
        books.claims -= 1;
        self.grant.target.engine.heart.unwatch(&mut books.beat);
        books.was_held = true;
        books.holds.push((Arc::clone(hold), member));
        if self.grant.needs_watch(hold) {
            self.grant.target.engine.watchdog.watch(&mut books.watch, &self.grant, now);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_taken {
            let mut books = lock(&self.grant.books);
            books.claims -= 1;
            self.grant.target.engine.heart.unwatch(&mut books.beat);
            drop(books);
            self.grant.settle_later();
        }
    }
}

impl Grant {
    fn new(target: Arc<Target>, within: Option<&Self>) -> Self {
        let number = target.engine.next_number();
        let id = within.map_or(Arg::Owner(target.engine.id, number), |other| other.id.clone());
        let books = Books {
            claims: 1,
            holds: PerMember::new(),
            was_held: false,
            is_gone: false,
            watch: watchdog::Watch::default(),
            beat: watchdog::Watch::default(),
            lengthens: false,
        };
        let ledger = Ledger { at_most: 0, was_released: false, unanswered: PerMember::new() };
        Self {
            target,
            id,
            number,
            task: task::try_id(),
            books: Mutex::new(books),
            ledger: AsyncMutex::new(ledger),
            lease_ms: AtomicU64::new(0),
            token: AtomicU64::new(0),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.target.keys.lock
    }

    /// The fencing token, if this kind of lock has one.
    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Relaxed)).filter(|&token| token > 0)
    }

    /// Holds that can be relied on now.
    pub(crate) fn live(&self, now: Moment) -> u32 {
        lock(&self.books).live(now)
    }

    /// What shall be left on the server: the holds that can be relied on, and what is being acquired.
    fn kept(&self) -> u32 {
        let books = lock(&self.books);
        if books.holds.is_empty() { books.claims } else { books.live(clock::now()) + books.claims }
    }

    /// Whether another task than this one acquired the first hold.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!((self.task, task::try_id()), (Some(first), Some(this)) if first != this)
    }

    /// The server was found to know nothing of it, while there should have been a hold.
    pub(crate) fn is_gone(&self) -> bool {
        let books = lock(&self.books);
        books.is_gone && books.was_held
    }

    /// A hold is given back: from here on nothing renews the lease for its sake.
    pub(crate) fn strike(&self, hold: &Arc<Hold>) {
        let mut books = lock(&self.books);
        if let Some(index) = books.holds.iter().position(|(other, _)| Arc::ptr_eq(other, hold)) {
            books.holds.swap_remove(index);
        }
        self.unwatch_if_unneeded(&mut books);
    }

    /// A hold stays until its lease ends by itself.
    pub(crate) fn leak(&self, hold: &Hold) {
        let mut books = lock(&self.books);
        hold.leak();
        self.unwatch_if_unneeded(&mut books);
    }

    /// The server knows nothing of it, so all its holds are lost. True: some were not known to be.
    fn found_gone(&self) -> bool {
        self.lose(&mut lock(&self.books))
    }

    fn lose(&self, books: &mut Books) -> bool {
        let was_live = books.live(clock::now()) > 0;
        books.is_gone = true;
        for (hold, member) in books.holds.drain(..) {
            hold.lose(member);
        }
        self.unwatch_if_unneeded(books);
        was_live
    }

    fn unwatch_if_unneeded(&self, books: &mut Books) {
        if !books.holds.iter().any(|(hold, _)| self.needs_watch(hold)) {
            self.target.engine.watchdog.unwatch(&mut books.watch);
        }
    }

    /// Whether the watchdog has anything to do for a hold. Where a lock is shared, another owner's watchdog may make the
    /// lease of the lock shorter than that of a hold, as Java's does; so it is raised again for the sake of any.
    fn needs_watch(&self, hold: &Hold) -> bool {
        hold.is_watched() || (self.target.kind.is_shared() && !hold.is_leaked())
    }

    /// Sends one attempt to hold `want` times. Returns the deadline of what was granted.
    ///
    /// When the future is dropped the outcome is unknown, and the ledger says so.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        want: u32,
        lease: Duration,
        queue: bool,
    ) -> Result<(Answer, Moment), Fault> {
        let mut ledger = self.ledger().await?;
        let route = self.route().await?;
        // Before anything is sent: the server counts the lease from later than this.
        let sent = clock::now();
        let before = ledger.at_most;
        let may_queue = queue && self.target.kind.queue().is_some();
        ledger.at_most = before.max(want);
        self.asks_for(lease);
        if want == 1 {
            ledger.unanswered.push(route.number());
        }
        let call = self.target.kind.attempt(self.whose(), want, lease, queue);
        let result = self.run(&route, &call).await.and_then(|reply| Answer::read(&reply));
        match &result {
            Ok(Answer::Granted(token)) => {
                ledger.answered(&route, before.max(want));
                if let Some(token) = *token {
                    self.token.store(token, Ordering::Relaxed);
                }
            }
            Ok(Answer::Lost) => {
                ledger.answered(&route, 0);
                if self.found_gone() {
                    tracing::warn!(name = %self.name(), "a lock was lost before it was re-entered");
                }
            }
            Ok(answer @ (Answer::Held(_) | Answer::Queued)) if may_queue => {
                ledger.answered(&route, 1); // the place
                self.keep_place(*answer == Answer::Queued);
            }
            Ok(Answer::OtherKind) => ledger.answered(&route, before), // it may have a place
            Ok(_) => ledger.answered(&route, 0),
            Err(fault) => match fault.sent {
                Sent::No => ledger.not_sent(&route, want),
                // Where there is a queue, not all that it does may have been refused.
                Sent::Refused => ledger.answered(&route, before.max(may_queue.into())),
                Sent::Unknown => {}
            },
        }
        let margin = self.target.engine.config.margin;
        result.map(|answer| (answer, lease::deadline(sent, lease, margin)))
    }

    /// Waits for the command under way, but not for ever: it may belong to a future that nobody polls any more.
    async fn ledger(&self) -> Result<MutexGuard<'_, Ledger>, Fault> {
        if let Ok(ledger) = self.ledger.try_lock() {
            return Ok(ledger);
        }
        let limit = self.target.engine.config.command_timeout;
        let late = |elapsed| Fault::new(FaultKind::TimedOut, Sent::Unknown, elapsed);
        timeout(limit, self.ledger.lock()).await.map_err(late)
    }

    /// Brings the server down to the books, if it may have more. `None`: there was nothing to do.
    pub(crate) async fn settle(&self) -> Result<Option<Settled>, Fault> {
        let mut ledger = self.ledger().await?;
        let keep = self.kept();
        if ledger.at_most <= keep {
            return Ok(None);
        }
        let route = self.route().await?;
        let call = self.target.kind.release(self.whose(), keep);
        let was_released = std::mem::replace(&mut ledger.was_released, keep == 0);
        let settled = match self.run(&route, &call).await {
            Ok(reply) => Settled::read(&reply, self.name())?,
            // Somebody put something else there, so the hold is not.
            Err(fault) if fault.kind == FaultKind::WrongType => Settled::Gone,
            Err(fault) => {
                ledger.was_released = was_released || (keep == 0 && fault.sent == Sent::Unknown);
                return Err(fault);
            }
        };
        ledger.answered(&route, if settled == Settled::Gone { 0 } else { keep });
        if settled != Settled::Gone {
            return Ok(Some(settled));
        }
        if was_released {
            return Ok(Some(Settled::Released));
        }
        self.found_gone();
        Ok(Some(Settled::Gone))
    }

    /// Whether the server has no more than the books say, and never will. Says no while a command is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.ledger.try_lock().is_ok_and(|ledger| ledger.at_most <= self.kept())
    }

    /// Whether the server may have anything of it: a hold, or a place in a queue.
    pub(crate) fn may_be_known(&self) -> bool {
        self.ledger.try_lock().map_or(true, |ledger| ledger.at_most > 0)
    }

    fn asks_for(&self, lease: Duration) {
        self.lease_ms.fetch_max(lease::millis(lease), Ordering::Relaxed);
    }

    /// The longest lease that was asked for.
    pub(crate) fn longest_lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::Relaxed))
    }

    /// What is left to do on the server is done in the background.
    pub(crate) fn settle_later(self: &Arc<Self>) {
        if !self.is_settled() {
            self.target.engine.background.settle(Arc::clone(self));
        }
    }

    /// Where it is woken while it waits.
    pub(crate) fn wake_channel(&self) -> Arc<str> {
        let shared = || Arc::clone(&self.target.keys.channel);
        self.target.kind.queue().map_or_else(shared, |queue| queue.channel(self.whose()))
    }

    pub(crate) const fn id(&self) -> &Arg {
        &self.id
    }

    fn whose(&self) -> Whose<'_> {
        self.target.of(&self.id, self.number)
    }

    async fn route(&self) -> Result<Route, Fault> {
        self.target.route().await
    }

    async fn run(&self, route: &Route, call: &Call) -> Result<Reply, Fault> {
        self.target.engine.store.run(route, call).await
    }
}

impl Target {
    pub(crate) fn new(engine: &Arc<Engine>, kind: &'static dyn Kind, lock: Arc<str>) -> Self {
        let lane = engine.store.lane(&lock);
        Self { engine: Arc::clone(engine), kind, keys: kind.keys(lock), lane }
    }

    /// The connection for commands about it, made anew if there is none.
    pub(crate) async fn route(&self) -> Result<Route, Fault> {
        self.engine.store.route(self.lane).await
    }

    /// The hold of this owner on it.
    pub(crate) fn of<'a>(&'a self, owner: &'a Arg, grant: u64) -> Whose<'a> {
        Whose { keys: &self.keys, owner, grant, config: &self.engine.config }
    }
}

impl Books {
    fn live(&self, now: Moment) -> u32 {
        let live = self.holds.iter().filter(|(hold, member)| hold.relies_on(*member, now)).count();
        u32::try_from(live).unwrap_or(u32::MAX)
    }
}

impl Ledger {
    /// It found the connection ended, so no copy of it is under way. What was sent there before may still run. And as
    /// the server may, in theory, have run it before the connection ended, the ledger keeps what it may have.
    fn not_sent(&mut self, route: &Route, want: u32) {
        if want == 1
            && let Some(last) = self.unanswered.iter().rposition(|number| *number == route.number())
        {
            self.unanswered.remove(last);
        }
    }

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
            .field("name", self.name())
            .field("id", &self.id)
            .field("kept", &self.kept())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kind, self.keys.lock)
    }
}
