//! What the owners of this client have of one id, and whether it is to be released. Pure: no clock, no future and no mutex.
//!
//! The hold is *needed* while an owner has a guard or acquires, or while it is offered, lingers, or lasts for its minimum hold time.
//! When nobody needs it and the server can have it, it is *owed*: `Grant::change` returns an [`Owed`](super::owed::Owed), once.

use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use smallvec::SmallVec;
use tokio::task;

use super::lease::{Lease, Wanted};
use super::lingering::Lingering;
use super::on_server::OnServer;
use crate::base::Caller;
use crate::base::clock::Moment;
use crate::engine::hold::lease::Rules;
use crate::engine::hold::{EARLY, Hold};
use crate::engine::line::state::KEPT;

/// Selects what one owner has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartKey {
    slot: usize,
    /// Slots are used again.
    number: u64,
}

/// Who began to acquire.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    /// If another task re-enters, two tasks share a handle, and the user is warned.
    pub(super) task: Option<task::Id>,
    /// Where in the program the acquire began.
    pub(super) at: Caller,
}

/// What one owner has.
struct Part {
    number: u64,
    began: Began,
    /// Acquires under way.
    pending: u32,
    guards: SmallVec<[Guard; 1]>,
}

struct Guard {
    hold: Arc<Hold>,
    /// Nobody has the guard any more, and the hold ends with its lease.
    is_leaked: bool,
}

impl Guard {
    fn is_usual(&self) -> bool {
        self.hold.is_usual() && !self.is_leaked
    }

    fn is_live(&self, now: Moment) -> bool {
        // A guard reports its loss `EARLY` before the deadline. A leaked hold ends no later than that.
        !self.hold.is_lost(if self.is_leaked { now.plus(EARLY) } else { now })
    }
}

impl Part {
    fn live(&self, now: Moment) -> u32 {
        count(self.guards.iter().filter(|guard| guard.is_live(now)).count())
    }

    /// The hold count to show.
    fn count(&self) -> u32 {
        count(self.guards.len()) + self.pending
    }
}

fn count(guards: usize) -> u32 {
    u32::try_from(guards).unwrap_or(u32::MAX)
}

/// How often there had been a switch to another master, or this client had begun to release holds by force. If that has changed since an
/// attempt was sent, the hold is perhaps gone although no reply said so, and nobody shares it.
pub(super) type Epoch = u64;

/// What is reported when the mutex is unlocked: reporting runs code of the user, as dropping the last reference to a hold does.
#[derive(Default)]
pub(super) struct Effects {
    /// Holds that were lost, or given back.
    pub(super) ended: SmallVec<[Arc<Hold>; 1]>,
    /// The lock is perhaps free, and perhaps no message says so.
    pub(super) is_free: bool,
}

/// Whether an [`Owed`](super::owed::Owed) is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Owing {
    #[default]
    No,
    /// A release is under way, or about to be.
    Release,
    /// A release was answered, and another one follows when no acquire can run any more. Or a shutdown releases in place of a future.
    Again,
}

/// The minimum hold time.
#[derive(Clone, Copy, Default)]
struct Least {
    until: Moment,
    /// The lease that is renewed meanwhile.
    lease: Option<Duration>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) on_server: OnServer,
    pub(super) owing: Owing,
    /// A release was sent beside the one of a future. If that one finds nothing, the hold was perhaps released.
    pub(super) is_released_beside: bool,
    parts: Slab<Part>,
    /// How many parts there have been.
    attached: u64,
    /// How many guards are renewed as usual. They last as long as the server keeps the hold.
    usual: u32,
    /// The hold is kept for calls that stand in a line, to take or to join it.
    is_offered: bool,
    pub(super) lingers: Option<Lingering>,
    least: Least,
    /// No owner that comes later can get the hold without asking the server.
    is_closed: bool,
    /// A shutdown gave the acquires under way up, because nobody polled them. They get no hold.
    is_given_up: bool,
    /// An answer said that the server has nothing.
    pub(super) is_gone: bool,
    /// The server has a place in the queue of a fair lock.
    pub(super) has_place: bool,
    pub(super) epoch: Epoch,
    /// The fencing token; 0: none.
    pub(super) token: u64,
    pub(super) lease: Lease,
    /// The times at which something is due have to be computed again.
    pub(super) is_moved: bool,
    pub(super) effects: Effects,
}

impl State {
    /// Adds an owner that acquires.
    pub(super) fn attaches(&mut self, began: Began) -> PartKey {
        self.attached += 1;
        let number = self.attached;
        let slot = self.parts.insert(Part { number, began, pending: 1, guards: SmallVec::new() });
        PartKey { slot, number }
    }

    fn part(&self, key: PartKey) -> Option<&Part> {
        self.parts.get(key.slot).filter(|part| part.number == key.number)
    }

    fn part_mut(&mut self, key: PartKey) -> Option<&mut Part> {
        self.parts.get_mut(key.slot).filter(|part| part.number == key.number)
    }

    fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.parts.iter().flat_map(|(_, part)| &part.guards)
    }

    /// Begins another acquire of an owner. Returns the count to show. `None`: the owner has no hold.
    pub(super) fn reenters(&mut self, key: PartKey, now: Moment) -> Option<u32> {
        let part = self.part_mut(key).filter(|part| part.live(now) > 0)?;
        part.pending += 1;
        Some(part.count())
    }

    /// Records that an acquire ended without a hold. If it was not answered, it can run until `late`.
    pub(super) fn ends_pending(&mut self, key: PartKey, late: Moment) {
        (self.has_place, self.is_moved) = (false, true);
        self.on_server.waits_no_more(late);
        // After a grant, there is no acquire that could still run. Before, an id without a lease was never sent.
        let was_sent = !self.lease.was_granted() && !self.lease.longest.is_zero();
        if self.is_given_up && was_sent {
            self.on_server.may_run(late); // the release of the shutdown perhaps ran before it
        }
        self.changes(key, |part| part.pending -= 1);
    }

    /// Adds a hold that the server granted until `until`, for an acquire under way. False: a shutdown gave that acquire
    /// up meanwhile.
    pub(super) fn holds(
        &mut self,
        key: PartKey,
        hold: Arc<Hold>,
        (until, now): (Moment, Moment),
        rules: &Rules,
    ) -> bool {
        if self.is_given_up {
            return false;
        }
        let (lease, is_usual) = (hold.renewed_lease(rules.lease), hold.is_usual());
        let Some(part) = self.part_mut(key) else { return false };
        part.pending -= 1;
        part.guards.push(Guard { hold, is_leaked: false });
        self.usual += u32::from(is_usual);
        self.has_place = false;
        // A reader that joins others changes nothing about their lease.
        if !is_usual || self.usual == 1 || until > self.lease.until || self.is_gone {
            let before = self.lease.renew_at;
            self.lease.is_held(lease, until, now, self.is_gone, rules);
            self.is_moved |= !is_usual || before != self.lease.renew_at;
        }
        true
    }

    /// Removes a hold that was given back. Returns whether somebody relied on it until now.
    pub(super) fn gives_back(&mut self, key: PartKey, hold: &Arc<Hold>, now: Moment) -> bool {
        self.take(key, hold).is_some_and(|guard| guard.is_live(now))
    }

    fn take(&mut self, key: PartKey, hold: &Arc<Hold>) -> Option<Guard> {
        let guard = self.changes(key, |part| {
            let at = part.guards.iter().rposition(|guard| Arc::ptr_eq(&guard.hold, hold))?;
            Some(part.guards.swap_remove(at))
        })??;
        let is_usual = guard.is_usual();
        self.usual -= u32::from(is_usual);
        self.is_moved |= !is_usual || self.usual == 0;
        Some(guard)
    }

    /// Changes what an owner has, and forgets the owner if that is nothing now. `None`: it had nothing.
    fn changes<T>(&mut self, key: PartKey, change: impl FnOnce(&mut Part) -> T) -> Option<T> {
        let part = self.part_mut(key)?;
        let result = change(part);
        if part.pending == 0 && part.guards.is_empty() {
            self.parts.remove(key.slot);
        }
        Some(result)
    }

    /// Leaves a hold to end with its lease.
    pub(super) fn leaks(&mut self, key: PartKey, hold: &Arc<Hold>) {
        self.is_moved = true;
        let Some(part) = self.part_mut(key) else { return };
        if let Some(guard) = part.guards.iter_mut().find(|guard| Arc::ptr_eq(&guard.hold, hold)) {
            guard.is_leaked = true;
            self.usual -= u32::from(hold.is_usual());
        }
    }

    /// Forgets holds that have ended.
    pub(super) fn forgets_ended(&mut self, now: Moment) {
        self.takes_guards(|guard| !guard.is_live(now));
    }

    /// Leaves what the server granted this owner to those who wait. False: a shutdown gave the acquire up meanwhile.
    pub(super) fn is_offered_anew(&mut self, key: PartKey) -> bool {
        if self.is_given_up || self.changes(key, |part| part.pending -= 1).is_none() {
            return false;
        }
        (self.has_place, self.is_offered, self.is_moved) = (false, true, true);
        true
    }

    /// Records that the server has nothing of this id, so all its holds are lost.
    pub(super) fn loses(&mut self) {
        self.effects.is_free |= !std::mem::replace(&mut self.is_gone, true) && self.lease.was_granted();
        self.guards().for_each(|guard| guard.hold.lose());
        self.takes_guards(|_| true);
        (self.is_offered, self.least.until) = (false, Moment::PAST);
        self.closes();
    }

    /// Records that a command found no hold on the server. Returns whether the hold is lost. It is not if this client released it
    /// meanwhile.
    pub(super) fn finds_nothing(&mut self) -> bool {
        let is_lost = self.owing == Owing::No && self.on_server.may_exist();
        if is_lost {
            self.loses();
        }
        is_lost
    }

    fn takes_guards(&mut self, takes: impl Fn(&Guard) -> bool) {
        let (mut usual, ended) = (0, &mut self.effects.ended);
        self.parts.retain(|_, part| {
            let mut index = 0;
            while let Some(guard) = part.guards.get(index) {
                if takes(guard) {
                    usual += u32::from(guard.is_usual());
                    ended.push(part.guards.swap_remove(index).hold);
                } else {
                    index += 1;
                }
            }
            part.pending > 0 || !part.guards.is_empty()
        });
        self.usual -= usual;
        self.is_moved = true;
    }

    /// Whether an owner has a guard.
    pub(super) fn has_guards(&self) -> bool {
        self.usual > 0 || self.guards().any(|guard| !guard.is_leaked)
    }

    /// Whether an acquire is under way that was not given up.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_given_up && self.parts.iter().any(|(_, part)| part.pending > 0)
    }

    /// Whether the server is to have the hold.
    pub(super) fn is_needed(&self, now: Moment) -> bool {
        let has_usual = self.usual > 0 && now < self.lease.until; // the usual case needs no look at each guard
        has_usual || self.is_kept(now) || self.is_wanted() || self.guards().any(|guard| guard.is_live(now))
    }

    /// Whether the hold is kept although no owner has it.
    fn is_kept(&self, now: Moment) -> bool {
        self.is_offered
            || self.lingers.is_some_and(|lingering| now < lingering.until)
            || now < self.least.until
    }

    /// Whether the caller has to release the hold from here on: nobody needs it, and nobody else releases it.
    pub(super) fn is_owed(&mut self, now: Moment) -> bool {
        let is_owed = self.owing == Owing::No && self.on_server.may_exist() && !self.is_needed(now);
        if is_owed {
            (self.owing, self.is_moved) = (Owing::Release, true);
            self.closes();
        }
        is_owed
    }

    /// Keeps the hold until then, at least.
    pub(super) fn lasts_until(&mut self, until: Moment, lease: Option<Duration>) {
        self.least.until = until.max(self.least.until);
        self.least.lease = lease.max(self.least.lease);
        self.is_moved = true;
    }

    /// Gives the acquires under way up at a shutdown, because nobody polls them.
    pub(super) fn gives_up(&mut self, late: Moment) {
        if self.is_wanted() {
            (self.is_given_up, self.has_place) = (true, false);
            self.on_server.waits_no_more(late);
        }
    }

    /// Whether an owner has a hold, or acquires.
    pub(super) fn has(&self, key: PartKey) -> bool {
        self.part(key).is_some()
    }

    /// Counts the holds that an owner has, and that can be relied on now.
    pub(super) fn live(&self, key: PartKey, now: Moment) -> u32 {
        self.part(key).map_or(0, |part| part.live(now))
    }

    pub(super) fn is_foreign(&self, key: PartKey, this: Option<task::Id>) -> bool {
        let began = self.part(key).and_then(|part| part.began.task);
        matches!((began, this), (Some(began), Some(this)) if began != this)
    }

    /// Returns where in the program the hold was acquired, if an owner has it.
    pub(super) fn held_at(&self, now: Moment) -> Option<Caller> {
        self.parts.iter().find_map(|(_, part)| (part.live(now) > 0).then_some(part.began.at))
    }

    /// Returns the count to show for an owner, and for how long the server has to keep the hold. `None`: the owner has nothing.
    pub(super) fn shows(&mut self, key: PartKey, now: Moment) -> Option<(u32, Duration)> {
        let count = self.part(key)?.count();
        self.lease.outlasts = true;
        Some((count, self.left(now)))
    }

    /// Records that an acquire with this lease is about to be sent. False: a shutdown gave it up.
    pub(super) fn acquires(&mut self, lease: Duration, epoch: Epoch, rules: &Rules) -> bool {
        if self.is_given_up {
            return false;
        }
        if self.lease.was_granted() {
            // A re-entry can make the server's lease longer, whatever its outcome is.
            self.lease.outlasts = true;
            if self.epoch != epoch {
                // Until the server answers, the hold is perhaps gone.
                self.closes();
            }
        }
        self.epoch = epoch;
        self.asks_for(lease, rules);
        true
    }

    /// Records the lease that a command asks for.
    pub(super) fn asks_for(&mut self, lease: Duration, rules: &Rules) {
        self.lease.longest = self.lease.longest.max(lease);
        if lease > rules.lease {
            // If this process died, other owners would wait for that lease.
            self.closes();
        }
    }

    /// Lets nobody share the hold any more. A lingering hold now ends with the readers that have it.
    pub(super) fn closes(&mut self) {
        self.is_closed = true;
        self.is_moved |= self.lingers.take().is_some();
    }

    /// Ends an offer that nobody took.
    pub(super) fn takes_back(&mut self) {
        self.is_moved |= std::mem::take(&mut self.is_offered);
    }

    /// Whether owners with usual terms can get the hold without asking the server, if it was granted less than `time` ago.
    fn is_shareable(&self, time: Duration, epoch: Epoch, now: Moment, rules: &Rules) -> bool {
        let is_young = match self.lingers {
            Some(lingering) => now < lingering.until,
            None => self.lease.granted_at.is_some_and(|at| now.since(at) < time),
        };
        is_young
            && !self.is_closed
            && !self.is_given_up
            && self.epoch == epoch
            && self.on_server.is_certain()
            && self.lease.until.since(now) >= rules.lease / 2
    }

    /// Offers a hold to those who wait, if the server granted it less than `time` ago, and not before `granted_at`. False: the hold has to
    /// be released.
    pub(super) fn offers(
        &mut self,
        (key, hold): (PartKey, &Arc<Hold>),
        (time, granted_at): (Duration, Moment),
        epoch: Epoch,
        now: Moment,
        rules: &Rules,
    ) -> bool {
        let is_only = self.parts.len() == 1
            && self.part(key).is_some_and(|part| part.pending == 0 && part.guards.len() == 1);
        let is_fit = is_only
            && hold.is_usual()
            && !hold.is_lost(now)
            && self.lease.granted_at.is_some_and(|at| at >= granted_at)
            && !self.is_kept(now)
            && self.is_shareable(time, epoch, now, rules);
        if is_fit {
            self.take(key, hold);
            self.is_offered = true;
        }
        is_fit
    }

    /// Lets an owner take the offered hold, as the end of an acquire. Returns the deadline of the hold. `None`: the
    /// hold is lost, or the offer has ended.
    pub(super) fn takes_offer(
        &mut self,
        began: Began,
        epoch: Epoch,
        now: Moment,
    ) -> Option<(PartKey, Moment)> {
        // The end of an attempt looks at no epoch, and this is one if no owner had the hold before.
        let is_known = self.epoch == epoch || !self.lease.was_held;
        let is_there = self.is_offered && now < self.lease.until && is_known;
        is_there.then(|| {
            self.takes_back();
            (self.attaches(began), self.lease.until)
        })
    }

    /// Lets other readers of this client join the hold that the server granted just now. `linger`: how long the hold
    /// stays for readers that come later. False: they cannot join.
    pub(super) fn opens(&mut self, linger: Option<Duration>, now: Moment) -> bool {
        let opens = !self.is_closed && self.on_server.is_certain();
        if opens {
            self.lingers = linger.map(|time| Lingering::new(time, now));
            self.is_moved |= linger.is_some();
        }
        opens
    }

    /// Lets a reader join the hold, as the end of an acquire. Returns the deadline of the hold. `None`: the reader
    /// cannot join.
    pub(super) fn joins(
        &mut self,
        began: Began,
        epoch: Epoch,
        now: Moment,
        rules: &Rules,
    ) -> Option<(PartKey, Moment)> {
        if !self.takes_readers(epoch, now, rules) {
            return None;
        }
        if let Some(lingering) = &mut self.lingers {
            lingering.was_joined = true;
        }
        Some((self.attaches(began), self.lease.until))
    }

    /// Keeps the hold for the readers that wait. False: no reader could join.
    pub(super) fn keeps_for_readers(&mut self, epoch: Epoch, now: Moment, rules: &Rules) -> bool {
        let keeps = now >= self.least.until && !self.is_offered && self.takes_readers(epoch, now, rules);
        self.is_offered |= keeps;
        keeps
    }

    pub(super) fn takes_readers(&self, epoch: Epoch, now: Moment, rules: &Rules) -> bool {
        // Those who were woken for an offered hold are perhaps polled late.
        let time = if self.is_offered { rules.sharing.max(KEPT) } else { rules.sharing };
        self.is_shareable(time, epoch, now, rules)
    }

    /// Lends the id to a read hold of the same owner. False: the owner has no hold here.
    ///
    /// A hold whose id was lent is not offered, and a hold that is offered does not lend its id.
    pub(super) fn lends(&mut self, key: PartKey, now: Moment) -> bool {
        let lends = self.live(key, now) > 0;
        if lends {
            self.closes();
            (self.lease.outlasts, self.is_moved) = (true, true);
        }
        lends
    }

    /// Reserves the hold for this owner: from here on, no other owner of this client gets it. False: the owner does not hold the
    /// lock, or not alone.
    pub(super) fn reserves(&mut self, key: PartKey, now: Moment) -> bool {
        let is_alone = self.live(key, now) > 0 && self.parts.len() == 1 && !self.is_offered;
        if is_alone {
            self.closes();
        }
        is_alone
    }

    /// Returns what the watchdog has to keep.
    pub(super) fn wanted(&self, now: Moment, rules: &Rules) -> Wanted {
        let mut wanted = Wanted::default();
        for Guard { hold, is_leaked } in self.guards() {
            match hold.renewed_lease(rules.lease).filter(|_| !is_leaked) {
                Some(lease) => wanted.renews(lease, hold.term.ends),
                None if !self.lease.outlasts => {}
                None if *is_leaked => wanted.acts(hold.deadline().minus(EARLY)),
                None => wanted.acts(hold.deadline()),
            }
            wanted.has_guards |= !is_leaked;
        }
        if self.lingers.is_some_and(|lingering| now < lingering.until) {
            wanted.renews(rules.lease, None);
        }
        if let Some(lease) = self.least.lease.filter(|_| now < self.least.until) {
            wanted.renews(lease, None);
        }
        wanted
    }

    /// Returns how long the server has to keep the hold, if nothing is renewed.
    pub(super) fn left(&self, now: Moment) -> Duration {
        let kept = self.is_kept(now).then(|| self.lease.until.since(now));
        self.guards().map(|guard| guard.hold.deadline().since(now)).chain(kept).max().unwrap_or_default()
    }

    /// Moves the deadlines of renewed holds: a command that was sent at `sent` set this lease on the server.
    pub(super) fn keeps_lease(&mut self, lease: Duration, sent: Moment, now: Moment) {
        let deadline = self.lease.is_kept_for(lease, sent);
        for Guard { hold, is_leaked } in self.guards() {
            if !is_leaked && hold.is_watched() {
                hold.advance(now, deadline);
            }
        }
    }

    /// One of the holds.
    pub(super) fn first(&self) -> Option<&Arc<Hold>> {
        self.guards().map(|guard| &guard.hold).next()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::panic::Location;

    use super::*;
    use crate::base::config::LockConfig;
    use crate::base::options;
    use crate::engine::grant::lingering;
    use crate::engine::hold::Term;
    use crate::engine::hold::lease::Periods;
    use crate::engine::hold::tests::Nobody;
    use crate::telemetry;

    pub(in crate::engine::grant) const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
    pub(in crate::engine::grant) const SECOND: Duration = Duration::from_secs(1);
    pub(in crate::engine::grant) const LEASE: Duration = Duration::from_secs(30);
    const SAME: Epoch = 0;
    const SWITCHED: Epoch = 1;

    pub(in crate::engine::grant) fn rules() -> Rules {
        let periods = Periods::new(&LockConfig::builder().watchdog_lease(LEASE).build().expect("valid"));
        let within = |time| time;
        Rules { lease: LEASE, periods, is_shared: false, is_checked: false, sharing: SECOND, within }
    }

    pub(in crate::engine::grant) fn usual(ends: Option<Moment>) -> Term {
        Term { ends, ..Term::default() }
    }

    fn here() -> Began {
        Began { task: None, at: Location::caller() }
    }

    fn attaches(state: &mut State) -> PartKey {
        state.attaches(here())
    }

    /// An id for which an owner acquires, on connection 1.
    fn asked() -> (State, PartKey) {
        let mut state = State::default();
        let part = attaches(&mut state);
        assert!(state.acquires(LEASE, SAME, &rules()));
        state.on_server.sends(1, NOW);
        (state, part)
    }

    pub(in crate::engine::grant) fn hold(until: Moment, term: Term) -> Arc<Hold> {
        Arc::new(Hold::new(until, term, Nobody::lock(), telemetry::Held::default()))
    }

    /// A hold that the server granted for `LEASE` at `NOW`.
    pub(in crate::engine::grant) fn granted(term: Term) -> (State, PartKey, Arc<Hold>) {
        let ((mut state, part), until) = (asked(), NOW.plus(LEASE));
        state.on_server.answered(1, |_| true);
        state.lease.is_granted(until, NOW);
        let hold = hold(until, term);
        assert!(state.holds(part, Arc::clone(&hold), (until, NOW), &rules()));
        (state, part, hold)
    }

    fn joins(state: &mut State, epoch: Epoch, now: Moment) -> Option<PartKey> {
        Some(state.joins(here(), epoch, now, &rules())?.0)
    }

    #[test]
    fn a_hold_is_needed_by_guards_and_acquires_and_without_them_it_is_owed_once() {
        let (mut state, part) = asked();
        assert!(!state.is_owed(NOW), "an acquire is under way");
        state.ends_pending(part, NOW);
        assert!(state.is_owed(NOW) && !state.is_owed(NOW) && !state.finds_nothing());

        let (mut state, one, first) = granted(usual(None));
        assert!(state.opens(None, NOW) && state.reenters(one, NOW).is_some() && !state.is_owed(NOW));
        assert!(state.gives_back(one, &first, NOW) && !state.is_owed(NOW), "a re-entry is under way");
        let two = joins(&mut state, SAME, NOW).expect("it is open");
        let second = hold(NOW.plus(LEASE), usual(None));
        assert!(state.holds(two, Arc::clone(&second), (NOW.plus(LEASE), NOW), &rules()));
        state.ends_pending(one, NOW);
        assert!(!state.has(one) && !state.is_owed(NOW), "another owner has it");
        state.leaks(two, &second);
        assert!(!state.has_guards() && !state.is_owed(NOW), "it ends with its lease");
        assert!(state.is_owed(NOW.plus(LEASE)));

        let (mut state, _, hold) = granted(usual(None));
        assert!(state.finds_nothing() && state.effects.is_free && hold.is_lost(NOW));
        assert!(!state.has_guards() && !state.is_needed(NOW));
    }

    /// A renewal raises a lease that others shortened to this.
    #[test]
    fn what_is_left_is_that_of_the_longest_hold() {
        let (mut state, ..) = granted(usual(None));
        let longer = hold(NOW.plus(2 * LEASE), usual(None));
        let part = joins(&mut state, SAME, NOW).expect("it is open");
        assert!(state.holds(part, longer, (NOW.plus(2 * LEASE), NOW), &rules()));
        assert_eq!(state.left(NOW), 2 * LEASE);
    }

    #[test]
    fn the_count_of_the_owner_that_asks_is_shown() {
        let (mut state, one, first) = granted(usual(None));
        let two = attaches(&mut state);
        let shows = |state: &mut State, part| Some(state.shows(part, NOW)?.0);
        assert_eq!((state.reenters(one, NOW), shows(&mut state, two)), (Some(2), Some(1)));
        state.ends_pending(one, NOW);
        assert_eq!(shows(&mut state, one), Some(1));
        state.gives_back(one, &first, NOW);
        assert_eq!((shows(&mut state, one), state.reenters(one, NOW)), (None, None));
    }

    #[test]
    fn a_reader_joins_only_a_hold_that_is_young_open_and_certain() {
        type Event = fn(&mut State, PartKey);
        let cases: [(&str, Event, Epoch, Duration, bool); 9] = [
            ("nothing happens", |_, _| {}, SAME, SECOND / 2, true),
            ("it is too old", |_, _| {}, SAME, SECOND, false),
            ("its owner re-enters", |s, _| _ = s.acquires(LEASE, SAME, &rules()), SAME, SECOND / 2, true),
            ("its client released by force", |_, _| {}, SWITCHED, SECOND / 2, false),
            (
                "a new master is asked",
                |s, _| _ = s.acquires(LEASE, SWITCHED, &rules()),
                SWITCHED,
                SECOND / 2,
                false,
            ),
            ("it has a longer lease", |s, _| s.asks_for(LEASE * 2, &rules()), SAME, SECOND / 2, false),
            ("an acquire is not answered", |s, _| s.on_server.sends(2, NOW), SAME, SECOND / 2, false),
            ("it is lost", |s, _| s.loses(), SAME, SECOND / 2, false),
            ("a shutdown gave up its owner", |s, _| s.gives_up(NOW), SAME, SECOND / 2, false),
        ];
        for (case, event, epoch, time, can_join) in cases {
            let (mut state, part, _hold) = granted(usual(None));
            assert!(state.opens(None, NOW) && state.reenters(part, NOW).is_some());
            event(&mut state, part);
            assert_eq!(joins(&mut state, epoch, NOW.plus(time)).is_some(), can_join, "{case}");
        }
    }

    /// Its runtime was busy.
    #[test]
    fn a_reader_joins_a_hold_late_that_is_kept_for_it() {
        let rules = Rules { sharing: Duration::from_millis(5), ..rules() };
        let late = NOW.plus(KEPT / 2);
        for is_kept in [false, true] {
            let (mut state, ..) = granted(usual(None));
            assert!(state.opens(None, NOW) && (!is_kept || state.keeps_for_readers(SAME, NOW, &rules)));
            let joined = state.joins(here(), SAME, late, &rules);
            assert_eq!(joined.is_some(), is_kept);
        }
    }

    #[test]
    fn a_hold_that_is_offered_is_kept_until_somebody_takes_it_or_it_is_taken_back() {
        let offered = || {
            let (mut state, part, hold) = granted(usual(None));
            assert!(state.offers((part, &hold), (SECOND, NOW), SAME, NOW, &rules()) && !state.is_owed(NOW));
            state
        };
        let takes = |state: &mut State, epoch| state.takes_offer(here(), epoch, NOW).is_some();
        let mut state = offered();
        assert!(takes(&mut state, SAME) && !takes(&mut state, SAME) && !state.is_owed(NOW), "one takes it");
        let mut state = offered();
        assert!(!takes(&mut state, SWITCHED) && !state.is_owed(NOW));
        state.takes_back();
        assert!(state.is_owed(NOW) && !takes(&mut state, SAME));
        // The end of an attempt that another task made.
        let (mut state, part) = asked();
        state.on_server.answered(1, |_| true);
        state.lease.is_granted(NOW.plus(LEASE), NOW);
        assert!(state.is_offered_anew(part) && takes(&mut state, SWITCHED));
    }

    #[test]
    fn an_acquire_that_a_shutdown_gave_up_gets_no_hold_and_what_it_is_granted_is_owed() {
        let (mut state, part) = asked();
        state.gives_up(NOW.plus(SECOND));
        assert!(state.is_owed(NOW));
        assert!(state.on_server.released(1, NOW), "nothing can arrive behind the release");
        state.owing = Owing::No;
        assert!(!state.acquires(LEASE, SAME, &rules()) && !state.is_owed(NOW));
        state.on_server.answered(1, |_| true); // the acquire had been sent behind the release
        let until = NOW.plus(LEASE);
        assert!(!state.holds(part, hold(until, usual(None)), (until, NOW), &rules()));
        assert!(state.is_owed(NOW));
    }

    /// The future goes on once more after the shutdown: it learns that the server did not know the script, and sends the script itself.
    #[test]
    fn what_is_sent_after_a_shutdown_gave_it_up_is_owed_when_its_future_is_dropped() {
        let (mut state, part) = asked();
        state.gives_up(NOW);
        assert!(state.is_owed(NOW) && state.on_server.released(1, NOW));
        state.owing = Owing::No;
        state.ends_pending(part, NOW.plus(SECOND));
        assert!(
            state.is_owed(NOW) && !state.on_server.released(1, NOW),
            "a release that was sent before is not enough"
        );
    }

    /// Otherwise the shutdown would wait until an acquire could run no more, although there is none.
    #[test]
    fn a_reentry_that_a_shutdown_gave_up_leaves_its_hold_to_one_release() {
        let (mut state, part, hold) = granted(usual(None));
        assert!(state.reenters(part, NOW).is_some());
        state.gives_up(NOW);
        state.ends_pending(part, NOW.plus(SECOND));
        assert!(state.gives_back(part, &hold, NOW) && state.is_owed(NOW));
        assert!(state.on_server.released(1, NOW));
    }

    #[test]
    fn what_was_never_sent_is_not_owed_although_a_shutdown_gave_it_up() {
        let mut state = State::default();
        let part = attaches(&mut state);
        state.gives_up(NOW);
        state.ends_pending(part, NOW.plus(SECOND));
        assert!(!state.is_owed(NOW));
    }

    /// A read hold that lingers for a second, and perhaps its reader.
    fn lingers(is_left: bool) -> State {
        let (mut state, part, hold) = granted(usual(None));
        assert!(state.opens(Some(SECOND), NOW));
        if is_left {
            state.gives_back(part, &hold, NOW);
        }
        state
    }

    /// Confirms a hold that a reader joined, and that left again.
    fn confirms(state: &mut State, at: Moment, asked_in: Epoch, answered_in: Epoch) {
        let part = joins(state, SAME, at).expect("it lingers");
        state.ends_pending(part, at);
        if let Some((_, makes_gap)) = lingering::begins(state, asked_in, at) {
            assert_eq!(makes_gap, at >= NOW.plus(SECOND));
            lingering::confirmed(state, at, false, (answered_in, at), &rules());
        }
    }

    #[test]
    fn readers_join_a_hold_that_lingers_for_a_quarter_longer_than_its_time() {
        let sent = NOW.plus(SECOND);
        for (millis, can_join) in [(1_249, true), (1_251, false)] {
            for is_left in [true, false] {
                let (time, mut state) = (Duration::from_millis(millis), lingers(is_left));
                assert_eq!(joins(&mut state, SAME, NOW.plus(time)).is_some(), can_join);
                let mut state = lingers(is_left);
                confirms(&mut state, sent, SAME, SAME);
                assert_eq!(joins(&mut state, SAME, sent.plus(time)).is_some(), can_join);
                assert!(state.lease.until > NOW.plus(LEASE), "a confirmation renews");
            }
        }
        let mut state = lingers(true);
        assert!(lingering::begins(&mut state, SAME, sent).is_none() && state.is_owed(sent), "nobody joined");
    }

    #[test]
    fn a_hold_that_lingers_ends_after_a_switch_and_at_a_shutdown() {
        let ends = |event: fn(&mut State)| {
            let mut state = lingers(true);
            event(&mut state);
            state.is_owed(NOW)
        };
        assert!(!ends(|state| confirms(state, NOW, SAME, SAME)) && ends(State::closes));
        assert!(ends(|state| {
            let part = joins(state, SAME, NOW).expect("it lingers");
            state.ends_pending(part, NOW);
            assert!(lingering::begins(state, SWITCHED, NOW).is_none());
        }));
        assert!(ends(|state| confirms(state, NOW, SAME, SWITCHED)));
    }

    #[test]
    fn a_lock_stays_held_for_the_longest_minimum_hold_time_with_the_lease_of_its_owner() {
        let until = NOW.plus(2 * LEASE);
        for lease in [options::Lease::Fixed(SECOND), options::Lease::Usual, options::Lease::Renewed(SECOND)] {
            let (mut state, part, hold) = granted(Term { lease, ..Term::default() });
            let lease = hold.renewed_lease(LEASE);
            [until, NOW.plus(SECOND)].into_iter().for_each(|until| state.lasts_until(until, lease));
            state.gives_back(part, &hold, NOW);
            assert_eq!(state.wanted(NOW, &rules()).renewed, lease);
            assert!(!state.is_owed(until.minus(SECOND)) && state.is_owed(until));
        }
    }
}
