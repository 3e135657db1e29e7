//! Holds that the owners of one client give each other without a command.
//!
//! For the server this is one hold all the time, with one owner id. A hold is offered to the calls that stand in a line, or kept for the
//! readers among them, and meanwhile the offer keeps it on the server.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;

use super::lingering;
use super::owed::Owed;
use super::pending::PendingHold;
use super::state::State;
use super::{Grant, PartKey, began};
use crate::base::Caller;
use crate::base::clock::{self, Moment};
use crate::base::fault::Fault;
use crate::base::sync::{lock, nothing_is_locked};
use crate::base::timer::{sleep, timeout};
use crate::engine::hold::Hold;
use crate::engine::line::lines::Line;
use crate::engine::line::state::Terms;
use crate::engine::lock_ref::LockRef;
use crate::protocol::{ConfirmReply, Read};

/// The least time for an answer to a confirmation, however short the lingering is.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// A hold that the next owner can take. Dropping the offer releases the hold, if no owner stands on the grant.
pub(crate) struct Offer(pub(crate) Arc<Grant>);

impl Offer {
    /// Adds an owner to the grant, as the end of an acquire. `None`: the hold is lost, or the offer has ended.
    pub(crate) fn accept(self, caller: Caller, now: Moment) -> Option<Given> {
        let (epoch, began) = (self.0.epoch(), began(caller));
        let (part, until) = self.0.ask(|state| state.takes_offer(began, epoch, now))?;
        Some((PendingHold::given(Arc::clone(&self.0), part), until))
    }

    /// Ends an offer that nobody took. Returns what has to be released, if no owner stands on the grant.
    pub(crate) fn gives_up(self, now: Moment) -> Option<Owed> {
        self.0.change(now, |shell| shell.state.takes_back()).1
    }

    /// Lets the readers of this client join the hold, see [`Grant::open_to_readers`]. False: they cannot.
    pub(crate) fn open_to_readers(&self, linger: Option<Duration>, now: Moment) -> bool {
        self.0.open_to_readers(linger, now);
        let (epoch, rules) = (self.0.epoch(), self.0.rules());
        joinable(&self.0.lock).is_some_and(|newest| Arc::ptr_eq(&newest, &self.0))
            && self.0.ask(|state| state.takes_readers(epoch, now, rules))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        nothing_is_locked();
        self.0.event(clock::now(), |state| state.takes_back());
    }
}

/// What another owner of the client gave: an acquire that the server has already granted, and the deadline of the hold.
pub(crate) type Given = (PendingHold, Moment);

impl Grant {
    /// Gives a hold back: to the next waiter of this client, to the readers that come later, or to the server. Returns what has to be
    /// released.
    pub(crate) fn give_back(self: &Arc<Self>, part: PartKey, hold: &Arc<Hold>, now: Moment) -> Option<Owed> {
        if let Some(left) = self.hand_over(part, hold, now) {
            return left;
        }
        let (was_held, owed) = self.change(now, |shell| shell.state.gives_back(part, hold, now));
        owed.map(|owed| if was_held { owed.asks_for(hold) } else { owed })
    }

    /// Passes a hold on to the first call of this client that waits for the lock, or returns what has to be released. `None`: it is given
    /// back in the usual way.
    ///
    /// The hold stays on the server all the time, so no other client can enter in between.
    fn hand_over(self: &Arc<Self>, part: PartKey, hold: &Arc<Hold>, now: Moment) -> Option<Option<Owed>> {
        let engine = &self.lock.engine;
        let (line, _) = self.waiters().filter(|_| !hold.term.is_member && engine.check_open().is_ok())?;
        let (epoch, rules) = (self.epoch(), self.rules());
        let terms = Terms { lease: rules.lease, count: 1, is_usual: true, linger: None };
        let (time, since) = line.with(|state| state.takes_over(terms, rules.sharing))?;
        let offers = |state: &mut State| state.offers((part, hold), (time, since), epoch, now, rules);
        if !self.event(now, offers) {
            return None;
        }
        let left = line.event(|state, now| state.offers(Offer(Arc::clone(self)), terms, now));
        if engine.is_closing() {
            drop(line.with(|state| state.task_ends())); // a shutdown that began meanwhile perhaps has not found it there
        }
        Some(left.and_then(|offer| offer.gives_up(now)).map(|owed| owed.asks_for(hold)))
    }

    /// Returns the line of this client's calls to which a hold of this grant can be passed on, and whether a release also wakes other
    /// lines of the client.
    pub(super) fn waiters(&self) -> Option<(Arc<Line<Offer>>, bool)> {
        let LockRef { engine, keys, .. } = &*self.lock;
        self.lock.can_be_passed_on().then(|| engine.lines.find(keys, false)).flatten()
    }

    /// Lends the id of this grant to a read hold of the same owner. False: the owner has no hold here.
    pub(super) fn lends(self: &Arc<Self>, part: PartKey, now: Moment) -> bool {
        self.event(now, |state| state.lends(part, now))
    }

    /// Lets other readers of this client join the hold that the server granted just now. `linger`: how long the hold
    /// stays for readers that come later.
    pub(crate) fn open_to_readers(self: &Arc<Self>, linger: Option<Duration>, now: Moment) {
        let LockRef { engine, keys, .. } = &*self.lock;
        if !self.event(now, |state| state.opens(linger, now)) {
            return; // the hold was opened or closed before
        }
        engine.read_grants.set(&keys.lock, self, now);
        // First add the grant, then look for a writer or a shutdown. One that came before the grant was added did not
        // find it, and so did not end its lingering.
        let is_wanted = || engine.is_closing() || engine.lines.find(keys, false).is_some();
        if linger.is_some() && is_wanted() {
            self.close(now);
        } else if linger.is_some() {
            engine.background.run(Arc::clone(self).lingers());
        }
    }

    /// Keeps a hold that lingers, until its time is over or somebody else closed it.
    async fn lingers(self: Arc<Self>) {
        // Code of the user can panic, such as a `tracing` layer.
        let _ = AssertUnwindSafe(self.confirms()).catch_unwind().await;
        self.close(clock::now());
    }

    async fn confirms(self: &Arc<Self>) {
        while let Some(at) = self.ask(|state| state.lingers.map(|lingering| lingering.confirms_at())) {
            tokio::select! {
                biased;
                () = self.lock.engine.closing() => return,
                () = sleep(at.since(clock::now())) => {}
            }
            let (epoch, now) = (self.epoch(), clock::now());
            let begins = |state: &mut State| lingering::begins(state, epoch, now);
            let Some((linger, makes_gap)) = self.event(now, begins) else { return };
            let mut confirming = pin!(self.confirm(linger, makes_gap));
            if timeout((linger / 4).max(LEAST_PATIENCE), &mut confirming).await.is_err() {
                // Nobody waits for long for a lock that nobody uses. The command keeps its time limit, so that a slow connection is not
                // taken for a silent one.
                self.close(clock::now());
                confirming.await;
            }
        }
    }

    async fn confirm(self: &Arc<Self>, linger: Duration, makes_gap: bool) {
        let call = Read::confirm(self.holder(), linger, makes_gap);
        let answer = async {
            let connection = self.lock.connection().await?;
            let sent = clock::now();
            let reply = self.lock.run(&connection, &call).await?;
            Ok::<_, Fault>((sent, ConfirmReply::parse(&reply)?))
        }
        .await;
        let (epoch, rules, now) = (self.epoch(), self.rules(), clock::now());
        self.event(now, |state| match answer {
            Ok((_, ConfirmReply::Lost)) => _ = state.finds_nothing(),
            Ok((sent, reply)) => {
                lingering::confirmed(state, sent, reply == ConfirmReply::Wanted, (epoch, now), rules);
            }
            Err(_) => state.closes(),
        });
    }
}

/// The newest read grant of each lock, by the key of the lock. The readers of the client join it.
#[derive(Default)]
pub(crate) struct ReadGrants(Mutex<BTreeMap<Arc<str>, Weak<Grant>>>);

impl ReadGrants {
    pub(crate) fn set(&self, lock_key: &Arc<str>, grant: &Arc<Grant>, now: Moment) {
        let before = lock(&self.0).insert(Arc::clone(lock_key), Arc::downgrade(grant));
        if let Some(before) = before.and_then(|before| before.upgrade()) {
            // No reader and no writer of this client finds the replaced grant any more, so nobody else would end its
            // lingering.
            before.close(now);
        }
    }

    /// Lets no more readers join the newest hold of a lock.
    pub(crate) fn close(&self, lock_key: &str, now: Moment) {
        if let Some(newest) = self.newest(lock_key) {
            newest.close(now);
        }
    }

    /// As [`close`](Self::close), but only if the hold lingers. Returns it then.
    pub(crate) fn end_lingering(&self, lock_key: &str, now: Moment) -> Option<Arc<Grant>> {
        let newest = self.newest(lock_key).filter(|newest| newest.ask(|state| state.lingers.is_some()))?;
        newest.close(now);
        Some(newest)
    }

    fn newest(&self, lock_key: &str) -> Option<Arc<Grant>> {
        // Return the `Arc`: the caller drops it after the map is unlocked, because the drop of a grant locks the map.
        lock(&self.0).get(lock_key).and_then(Weak::upgrade)
    }

    /// Forgets a grant that is dropped.
    pub(crate) fn forget(&self, lock_key: &str) {
        let mut grants = lock(&self.0);
        if grants.get(lock_key).is_some_and(|newest| newest.strong_count() == 0) {
            grants.remove(lock_key);
        }
    }
}

/// Returns the grant that a reader of the client can join, if no writer of the client waits.
fn joinable(target: &LockRef) -> Option<Arc<Grant>> {
    let LockRef { engine, keys, .. } = target;
    let grant = engine.read_grants.newest(&keys.lock)?;
    let is_allowed = engine.lines.find(keys, false).is_none() && engine.check_open().is_ok();
    is_allowed.then_some(grant)
}

/// Adds a reader to the readers of this client, if the server granted their hold a short time ago.
pub(crate) fn join(target: &LockRef, caller: Caller, now: Moment) -> Option<Given> {
    let grant = joinable(target)?;
    let (began, epoch, rules) = (began(caller), grant.epoch(), grant.rules());
    let (part, until) = grant.ask(|state| state.joins(began, epoch, now, rules))?;
    Some((PendingHold::given(grant, part), until))
}

/// Keeps the hold of the readers of this client for those that wait, so that they can join it.
pub(crate) fn keep_for_readers(target: &LockRef, now: Moment) -> Option<Offer> {
    let grant = joinable(target)?;
    let (epoch, rules) = (grant.epoch(), grant.rules());
    let is_kept = grant.event(now, |state| state.keeps_for_readers(epoch, now, rules));
    is_kept.then(|| Offer(grant))
}
