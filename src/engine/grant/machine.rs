//! What a client decides about one owner id, as a pure state machine. It has no clock, no future and no mutex. Events
//! come in with the time, and what is to be reported goes out as [`Effects`].
//!
//! A *part* is what one owner of this client holds, or acquires. The *copies* say whether the server can have a hold.
//! The hold is *needed* while an owner holds or acquires it, or while it *stays*. A hold that is not needed, and that
//! the server can have, is *owed*. Either a future sends the release, and so attends to the grant, or the background
//! does.
//!
//! Commands need not wait for each other. A hold that is no longer needed never is again, so nobody acquires with that
//! id behind its release. The hold count on the server is only shown: a re-entry and an inner release say it, and learn
//! whether the hold is there.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::copies::{Answer, Copies, Order};
use super::lingering::Lingering;
use super::part::{Began, OwnerKey, Part};
use crate::base::Caller;
use crate::base::clock::Moment;
use crate::engine::hold::deadline::Deadline;
use crate::engine::hold::effects::Effects;
use crate::engine::hold::lease::{self, Rules};
use crate::telemetry::Renewed;

/// Why the server keeps a hold that no owner has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stay {
    #[default]
    None,
    /// The hold is offered to the waiter in front until then.
    Offered { until: Moment },
    /// The hold is kept until then, for the waiting readers to join.
    ForReaders { until: Moment },
    /// The hold lingers, for readers of this client that come later.
    Lingers(Lingering),
    /// The lock stays held until then for its minimum hold time, although its owner perhaps released it. `lease`: the
    /// lease that is renewed meanwhile.
    Minimum { until: Moment, lease: Option<Duration> },
}

impl Stay {
    const fn until(self) -> Option<Moment> {
        match self {
            Self::None => None,
            Self::Offered { until } | Self::ForReaders { until } | Self::Minimum { until, .. } => Some(until),
            Self::Lingers(lingering) => Some(lingering.until),
        }
    }

    /// Returns the lease that the watchdog renews for this stay.
    fn renewed_lease(self, usual: Duration) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Offered { .. } | Self::ForReaders { .. } | Self::Lingers(_) => Some(usual),
            Self::Minimum { lease, .. } => lease,
        }
    }
}

/// Counters that were read before an attempt was sent. If one of them has changed since, the hold is perhaps gone
/// although no reply said so, and nobody shares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Epoch {
    /// How many switches to another master there had been.
    pub(crate) switches: u64,
    /// How often this client had begun to release holds by force.
    pub(crate) forced: u64,
}

/// Whether other readers of the client can join a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Joining {
    #[default]
    NotYet,
    Open,
    Closed,
}

/// The lease that the server counts, and its renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    /// When the server granted the lock.
    pub(super) granted_at: Option<Moment>,
    /// The hold is perhaps gone already, so nobody shares it.
    pub(super) is_unsure: bool,
    /// The deadline of what the server granted or renewed last.
    pub(super) until: Moment,
    /// The longest lease that was asked for.
    pub(super) longest: Duration,
    /// The server can keep the lock for longer than a hold lasts.
    pub(super) outlasts: bool,
    /// When the next renewal is due.
    pub(super) renew_at: Option<Moment>,
    /// The lease that the renewal under way asks for. `None`: the renewal only restores a lease that another client
    /// shortened.
    pub(super) asked: Option<Duration>,
    pub(super) look: Look,
}

/// Looks at a hold because the server said that somebody changed its key. A look is a renewal that writes nothing: whatever a renewal
/// writes would be told to other clients, and those would renew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// When the next look is due.
    due: Option<Moment>,
    /// The command under way is a look.
    pub(super) is_running: bool,
    /// When a look or a renewal found the hold last, and until when no look follows. The pause doubles while looks find nothing wrong.
    found_at: Moment,
    pause: Duration,
    /// When the server told of the last change.
    told_at: Moment,
}

impl Look {
    /// The first pause after a look that found the hold.
    const PAUSE: Duration = Duration::from_millis(250);

    /// Records that somebody changed the key. `is_common`: the renewals of others change it, too, so only the first change is followed.
    fn is_told(&mut self, now: Moment, is_common: bool, period: Duration) {
        if now.since(self.told_at) > 2 * period {
            self.pause = Duration::ZERO;
        } else if is_common && !self.pause.is_zero() {
            self.pause = period;
        }
        self.told_at = now;
        let next = now.max(self.found_at.plus(self.pause));
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    fn found(&mut self, now: Moment, period: Duration) {
        if std::mem::take(&mut self.is_running) {
            self.pause = (2 * self.pause).max(Self::PAUSE).min(period);
        }
        self.found_at = now;
    }
}

impl Lease {
    /// Whether the server granted the lock less than this time ago, and not before `earliest`.
    pub(super) fn is_young(&self, time: Duration, earliest: Moment, now: Moment) -> bool {
        !self.is_unsure && self.granted_at.is_some_and(|at| now.since(at) < time && at >= earliest)
    }
}

/// A hold is renewed for the first time when it is this old, or after a third of its lease if that is sooner. From then on the server
/// tells of changes of its key. Shorter holds cost no renewal.
const FIRST: Duration = Duration::from_secs(1);

/// Draws the time of the first renewal, so that holds that began together are not all renewed at the same moment.
fn first_renewal(now: Moment, period: Duration, rules: &Rules) -> Moment {
    let least = FIRST.min(period * 2 / 3);
    now.plus(least).plus((rules.within)(least / 2))
}

/// What the background was last asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Asked {
    Nothing,
    /// To repeat the release, because a copy can run late.
    Repeats,
    Shows,
    Releases,
}

/// A release that is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Releasing<H> {
    /// The owner released an inner hold and still has so many: the command shows this count. `None`: the command ends
    /// the hold on the server.
    pub(super) shows: Option<(OwnerKey, u32)>,
    pub(super) order: Order,
    /// The release ends the hold of an owner. Otherwise it undoes an attempt, or shows the count.
    pub(super) ends_hold: bool,
    /// The release is a repetition, because a copy of an attempt can run late.
    pub(super) is_repeated: bool,
    /// The holds that were given back before. The answer says whether the server still had them.
    pub(super) asks: SmallVec<[H; 1]>,
}

/// What the answers to releases say about a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Released {
    /// How many releases are under way that end the hold. Two threads can swap their releases between here and the
    /// connection, so any of them can have run first.
    pub(super) under_way: u32,
    /// A release ended the hold, or perhaps did.
    has_perhaps_ended: bool,
    /// A command found nothing.
    found_nothing: bool,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// `is_gone`: the server had nothing.
    Answered { connection: u64, is_gone: bool },
    /// The release changed nothing: the server refused it, or it was not sent.
    NotRun,
    /// Nobody learns the answer, so the release perhaps ran.
    Unknown,
}

/// The state of one grant. `H`: a hold of a guard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Machine<H> {
    pub(super) copies: Copies,
    /// The owners that stand on this grant: one, or the readers of this client that share a hold of the server.
    pub(super) parts: SmallVec<[Part<H>; 1]>,
    pub(super) stay: Stay,
    /// Holds that were given back. The next release says whether the server still had them.
    pub(super) given_back: SmallVec<[H; 1]>,
    /// The hold count that was shown last.
    pub(super) shown: u32,
    /// The owners that released inner holds, until a command shows what they still have: once for each future that waits for such an
    /// answer, and once for all others.
    pub(super) shows_for: SmallVec<[OwnerKey; 1]>,
    pub(super) released: Released,
    /// A read hold of this owner uses the id of this grant.
    pub(super) is_lent: bool,
    /// No other owner of this client may get the hold, because the diagnosis relies on this owner holding the lock.
    pub(super) is_reserved: bool,
    pub(super) joining: Joining,
    /// A shutdown gave the acquires under way up, because nobody polled them. They get no hold.
    pub(super) is_given_up: bool,
    /// An answer said that the server has nothing of this grant.
    pub(super) is_gone: bool,
    pub(super) lease: Lease,
    /// The server has a place of this grant in the queue of a fair lock.
    pub(super) has_place: bool,
    pub(super) epoch: Epoch,
    /// The fencing token; 0: none.
    pub(super) token: u64,
    /// How many futures attend to this grant, and so send what is owed. While there is one, the background waits.
    pub(super) attended: u32,
    asked: Asked,
    /// Counts the requests to the background.
    pub(super) requests: u32,
}

impl<H: Deadline> Machine<H> {
    /// Makes the machine of a grant that an owner begins to acquire.
    pub(crate) fn new(owner: OwnerKey, began: Began) -> Self {
        Self {
            copies: Copies::default(),
            parts: smallvec![Part::pending(owner, began)],
            stay: Stay::None,
            given_back: SmallVec::new(),
            shown: 1,
            shows_for: SmallVec::new(),
            released: Released::default(),
            is_lent: false,
            is_reserved: false,
            joining: Joining::NotYet,
            is_given_up: false,
            is_gone: false,
            lease: Lease::default(),
            has_place: false,
            epoch: Epoch::default(),
            token: 0,
            attended: 0,
            asked: Asked::Nothing,
            requests: 0,
        }
    }

    /// Adds an owner that is about to get a hold.
    pub(crate) fn attaches(&mut self, owner: OwnerKey, began: Began) {
        match self.part_mut(owner) {
            Some(part) => part.pending += 1,
            None => self.parts.push(Part::pending(owner, began)),
        }
    }

    /// Begins another acquire of an owner that has a hold. Returns the count to show. `None`: the owner has no hold.
    pub(crate) fn reenters(&mut self, owner: OwnerKey, now: Moment) -> Option<u32> {
        let part = self.part_mut(owner).filter(|part| part.live(now) > 0)?;
        part.pending += 1;
        Some(part.count())
    }

    /// Records that an acquire ended without a hold.
    pub(crate) fn ends_pending(&mut self, owner: OwnerKey) {
        let shown = self.shown;
        if let Some(part) = self.part_mut(owner) {
            part.pending -= 1;
            if part.has_holds() && part.count() < shown && self.shows_for.is_empty() {
                self.shows_for.push(owner);
            }
        }
        self.has_place = false;
        self.tidy();
    }

    /// Adds a hold that the server granted until `until`, for an acquire under way. False: a shutdown gave that acquire
    /// up meanwhile.
    pub(crate) fn holds(
        &mut self,
        owner: OwnerKey,
        hold: H,
        (until, now): (Moment, Moment),
        rules: &Rules,
    ) -> bool {
        let had_one = self.was_held();
        if self.is_given_up {
            return false;
        }
        let Some(part) = self.part_mut(owner) else { return false };
        part.pending -= 1;
        let lease = hold.renewed_lease(rules.lease);
        part.holds.push(hold);
        self.has_place = false;
        // If the lock was held before, another hold perhaps made the server's lease longer than this hold lasts. Then
        // the watchdog has to act when this hold ends.
        self.lease.outlasts |= had_one;
        if !had_one {
            self.lease.granted_at = Some(now);
        }
        self.lease.until = self.lease.until.max(until);
        if let Some(lease) = lease {
            // The next renewal comes at the latest one period after the command for this lease was sent: the reply
            // perhaps took long, or the renewal that is due next belongs to a longer lease.
            let period = rules.periods.renewal(lease, rules.is_shared);
            let next = self.lease.renew_at.unwrap_or_else(|| first_renewal(now, period, rules));
            let sent = until.plus(lease::margin(lease)).minus(lease);
            self.lease.renew_at = Some(next.min(sent.plus(period)));
            if self.is_gone {
                // An answer said that the server has nothing, perhaps to a command that ran after this acquire. A
                // renewal asks at once, so that a loss is found.
                self.lease.renew_at = Some(now);
            }
        } else if !had_one {
            // Nothing renews it. So a look lets the server tell of its changes.
            let period = rules.periods.renewal(Duration::ZERO, rules.is_shared);
            self.lease.look.due = Some(first_renewal(now, period, rules));
        }
        true
    }

    /// Removes a hold that was given back. `attends`: a future sends the release.
    pub(crate) fn gives_back(&mut self, hold: &H, attends: bool, now: Moment) {
        self.attended += u32::from(attends);
        self.ends_stay(now);
        let Some((owner, hold)) = self.take(hold) else { return };
        // `given_back` lists the holds of which the next release asks whether the server still had them. A hold that
        // was lost before is not listed, because its loss was told. Nor is a hold whose grant lingers or has other
        // owners.
        if hold.relies_on(now) && !self.lingers() && self.parts.iter().all(|part| part.owner == owner) {
            self.given_back.push(hold);
        }
        if self.part(owner).is_some_and(|part| part.count() > 0) && (attends || self.shows_for.is_empty()) {
            self.shows_for.push(owner);
        }
        self.tidy();
    }

    /// Leaves a hold to end with its lease. The machine remembers only when.
    pub(crate) fn leaks(&mut self, hold: &H, now: Moment) {
        if let Some((owner, hold)) = self.take(hold).filter(|(_, hold)| hold.relies_on(now))
            && let Some(part) = self.part_mut(owner)
        {
            part.leaks(hold.at());
        }
        self.tidy();
    }

    fn take(&mut self, hold: &H) -> Option<(OwnerKey, H)> {
        self.parts.iter_mut().find_map(|part| Some((part.owner, part.take(hold)?)))
    }

    /// Keeps the lock held until then, at least.
    pub(crate) fn stays_until(&mut self, until: Moment, lease: Option<Duration>) {
        let (before, lease_before) = match self.stay {
            Stay::Minimum { until, lease } => (until, lease),
            _ => (Moment::PAST, None),
        };
        self.stay = Stay::Minimum { until: until.max(before), lease: lease.max(lease_before) };
    }

    /// Forgets a stay that is over.
    pub(super) fn ends_stay(&mut self, now: Moment) {
        if self.stay.until().is_some_and(|until| until <= now) {
            self.stay = Stay::None;
        }
    }

    /// Gives the acquires under way up at a shutdown, because nobody polls them.
    pub(crate) fn gives_up(&mut self) {
        if self.is_wanted() {
            (self.is_given_up, self.has_place) = (true, false);
        }
    }

    /// Forgets owners that have nothing here.
    pub(super) fn tidy(&mut self) {
        self.parts.retain(|part| part.pending > 0 || part.has_holds());
    }

    /// Whether the server keeps a hold although no owner has it.
    pub(super) fn stays(&self, now: Moment) -> bool {
        self.stay.until().is_some_and(|until| now < until)
    }

    pub(super) const fn is_offered(&self) -> bool {
        matches!(self.stay, Stay::Offered { .. } | Stay::ForReaders { .. })
    }

    /// Forgets the holds that were given back: no release will ask about them.
    pub(super) fn forgets_given_back(&mut self, effects: &mut Effects<H>) {
        self.given_back.drain(..).for_each(|hold| effects.left(hold));
    }

    fn part_mut(&mut self, owner: OwnerKey) -> Option<&mut Part<H>> {
        self.parts.iter_mut().find(|part| part.owner == owner)
    }

    pub(crate) fn part(&self, owner: OwnerKey) -> Option<&Part<H>> {
        self.parts.iter().find(|part| part.owner == owner)
    }

    /// Counts the holds that an owner has, and that can be relied on now.
    pub(crate) fn live(&self, owner: OwnerKey, now: Moment) -> u32 {
        self.part(owner).map_or(0, |part| part.live(now))
    }

    pub(super) fn all_holds(&self) -> impl Iterator<Item = &H> {
        self.parts.iter().flat_map(|part| &part.holds)
    }

    pub(crate) fn has_holds(&self) -> bool {
        self.all_holds().next().is_some()
    }

    /// Whether the server is to have the hold.
    pub(crate) fn is_needed(&self, now: Moment) -> bool {
        self.is_wanted() || self.stays(now) || self.parts.iter().any(|part| part.live(now) > 0)
    }

    /// Returns until when the lock stays held for its minimum hold time, if no owner holds it.
    pub(super) fn kept_until(&self) -> Option<Moment> {
        match self.stay {
            Stay::Minimum { until, .. } if self.parts.is_empty() => Some(until),
            _ => None,
        }
    }

    /// Returns where in the program the first valid hold was acquired.
    pub(crate) fn held_at(&self, now: Moment) -> Option<Caller> {
        self.parts.iter().find_map(|part| part.held_at(now))
    }

    /// Whether the server granted the lock at some time.
    pub(crate) const fn was_held(&self) -> bool {
        self.lease.granted_at.is_some()
    }

    /// Whether an acquire is under way that was not given up.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_given_up && self.parts.iter().any(|part| part.pending > 0)
    }

    /// Whether the server had no hold of this grant, although there should have been one.
    pub(crate) fn was_lost(&self) -> bool {
        self.was_held() && (self.is_gone || self.found_hold_missing())
    }

    /// Whether the hold seems lost, and a release that is under way can still explain the loss.
    pub(crate) fn was_perhaps_lost(&self) -> bool {
        self.was_lost() && !self.is_gone && self.released.under_way > 0
    }

    /// Whether a command found nothing, and no release can have ended the hold. A release that is under way can still
    /// say that it did.
    fn found_hold_missing(&self) -> bool {
        self.released.found_nothing && !self.released.has_perhaps_ended
    }

    /// Records an attempt with this lease that is about to be sent on this connection. `None`: a shutdown gave the
    /// acquire up.
    pub(crate) fn attempts(
        &mut self,
        connection: u64,
        lease: Duration,
        epoch: Epoch,
        rules: &Rules,
    ) -> Option<Order> {
        self.acquires(lease, epoch, rules).then(|| self.copies.attempts(connection))
    }

    /// Records that a re-entry is about to be sent, which shows this count. False: a shutdown gave the acquire up.
    pub(crate) fn shows(&mut self, count: u32, lease: Duration, epoch: Epoch, rules: &Rules) -> bool {
        let shows = self.acquires(lease, epoch, rules);
        if shows {
            self.shown = count;
            // A re-entry can make the server's lease longer, whatever its outcome is. So the server can keep the lock
            // after the earlier holds have ended.
            self.lease.outlasts = true;
        }
        shows
    }

    /// Records the epoch and the lease of an acquire. False: a shutdown gave the acquire up.
    fn acquires(&mut self, lease: Duration, epoch: Epoch, rules: &Rules) -> bool {
        if self.is_given_up {
            return false;
        }
        if self.was_held() && self.epoch != epoch {
            // The owner re-enters after a switch to another master, or after a forced release. Until the server
            // answers, the hold is perhaps gone, so no reader may join it.
            self.closes_to_readers();
        }
        self.epoch = epoch;
        self.asks_for(lease, rules);
        true
    }

    /// Records the lease that a command asks for.
    fn asks_for(&mut self, lease: Duration, rules: &Rules) {
        self.lease.longest = self.lease.longest.max(lease);
        if rules.is_shared && lease > rules.lease {
            // This owner asked for a lease longer than the usual one. Readers that come later do not join: they acquire
            // a hold of their own.
            self.joining = Joining::Closed;
        }
    }

    /// Records how an attempt ended.
    pub(crate) fn answered(&mut self, connection: u64, order: Order, answer: Answer) {
        self.copies.ends(connection, order, answer);
        let is_held = matches!(answer, Answer::Granted | Answer::Has(true));
        self.lease.outlasts |= is_held && self.copies.may_run_late();
        if self.is_given_up && (is_held || matches!(answer, Answer::Unknown)) {
            // A shutdown gave this acquire up while nobody polled its future. The server perhaps ran the release first
            // and the acquire after it, so it can have a hold.
            self.copies.can_exist();
        }
    }

    /// Records that the server has nothing of this grant, so all its holds are lost.
    pub(crate) fn loses(&mut self, effects: &mut Effects<H>) {
        let is_news = !std::mem::replace(&mut self.is_gone, true) && self.was_held();
        effects.is_free |= is_news;
        for part in &mut self.parts {
            part.lose_all(effects);
        }
        self.stay = Stay::None;
        self.tidy();
    }

    /// Records that the server has a place of this grant in the queue of a fair lock. Returns whether it had one
    /// before.
    pub(super) fn gets_place(&mut self) -> bool {
        let had_place = self.has_place;
        self.has_place |= self.is_wanted();
        had_place
    }

    /// What a release is needed for.
    fn owes(&self, now: Moment) -> Asked {
        // Usually the server can have one attempt under way, or nothing.
        match () {
            () if !self.copies.may_exist() => Asked::Nothing,
            () if self.is_needed(now) && !self.shows_for.is_empty() => Asked::Shows,
            () if self.is_needed(now) => Asked::Nothing,
            () if self.copies.owes_release() => Asked::Releases,
            () => Asked::Repeats,
        }
    }

    /// Whether the server can have a hold that is not needed, or an inner release has not shown its count.
    pub(crate) fn is_owed(&self, now: Moment) -> bool {
        self.owes(now) != Asked::Nothing
    }

    /// Whether the server can have a hold that is not needed, and has answered no release of it. False while an undo is
    /// repeated only because a late copy of an attempt can arrive.
    pub(crate) fn owes_release(&self, now: Moment) -> bool {
        self.owes(now) == Asked::Releases
    }

    /// Forgets that a count is not shown. False: a release is owed.
    pub(crate) fn shows_no_more(&mut self, now: Moment) -> bool {
        let forgets = self.is_needed(now);
        if forgets {
            self.shows_for.pop();
        }
        forgets
    }

    /// Begins a release, which is about to be sent. `None`: nothing is owed.
    pub(crate) fn releases(&mut self, now: Moment) -> Option<Releasing<H>> {
        // A stay that is over is forgotten before its hold is released. Otherwise a caller that read the clock earlier
        // would still take the hold.
        self.ends_stay(now);
        let owes = self.owes(now);
        let shows = match owes {
            Asked::Nothing => return None,
            Asked::Shows => self.shows_for.pop(),
            Asked::Repeats | Asked::Releases => {
                self.shows_for.clear();
                None
            }
        };
        // The owner perhaps released all that it had, and the hold stays.
        let shows = shows.map(|owner| (owner, self.part(owner).map_or(1, Part::count)));
        match shows {
            Some((_, count)) => (self.shown, self.lease.outlasts) = (count, true),
            None => self.released.under_way += 1,
        }
        Some(Releasing {
            shows,
            order: self.copies.releases(),
            is_repeated: owes == Asked::Repeats,
            ends_hold: shows.is_none() && self.was_held(),
            asks: std::mem::take(&mut self.given_back),
        })
    }

    /// Records how a release ended.
    pub(crate) fn ends_release(&mut self, releasing: Releasing<H>, end: End, effects: &mut Effects<H>) {
        let Releasing { shows, order, asks, .. } = releasing;
        let released = &mut self.released;
        released.under_way -= u32::from(shows.is_none());
        match end {
            End::Answered { connection, is_gone } => {
                released.found_nothing |= is_gone;
                released.has_perhaps_ended |= !is_gone && shows.is_none();
                if shows.is_none() {
                    self.copies.released(connection, order);
                }
            }
            End::NotRun | End::Unknown => {
                released.has_perhaps_ended |= end == End::Unknown && shows.is_none();
                self.shows_for.extend(shows.map(|(owner, _)| owner));
            }
        }
        let is_lost = self.found_hold_missing();
        if is_lost && self.released.under_way > 0 || !is_lost && !matches!(end, End::Answered { .. }) {
            // A release that is under way can still explain the missing hold, or the next release asks.
            return self.given_back.extend(asks);
        }
        let mut asks = asks.into_iter().chain(if is_lost {
            std::mem::take(&mut self.given_back)
        } else {
            SmallVec::new()
        });
        if is_lost && !self.has_holds() {
            // Report one loss for the lock, however many nested holds were given back.
            asks.next().into_iter().for_each(|hold| effects.was_gone(hold));
        }
        asks.for_each(|hold| effects.left(hold));
        if is_lost {
            self.loses(effects);
        }
    }

    /// Records that a future no longer attends to this grant.
    pub(crate) const fn no_longer_attended(&mut self) {
        self.attended -= 1;
    }

    /// Records that a future attends to this grant, and so sends what is owed.
    pub(crate) const fn attended(&mut self) {
        self.attended += 1;
    }

    /// Whether the background has to do more than it was asked for before. If so, counts a request.
    pub(super) fn asks_background(&mut self, now: Moment, effects: &mut Effects<H>) -> bool {
        let needs = self.owes(now);
        if needs == Asked::Nothing
            && !self.given_back.is_empty()
            && self.stay == Stay::None
            && self.released.under_way == 0
        {
            // No release asks whether the server still had these holds, because another owner joined. They leave the
            // list.
            self.forgets_given_back(effects);
        }
        if needs <= self.asked {
            self.asked = needs;
            return false;
        }
        if self.attended > 0 {
            return false;
        }
        self.asked = needs;
        self.requests += 1;
        true
    }

    /// Records that the background's job has ended, which had `seen` this many requests. `forgets`: no copy can run any
    /// more, or the lease has ended. Then what is still owed is forgotten, unless a request came after those.
    pub(super) fn background_ends(&mut self, seen: u32, forgets: bool, now: Moment) {
        if forgets && self.requests == seen && !self.is_needed(now) {
            self.copies.forgets();
        }
        self.asked = Asked::Nothing;
    }

    /// The lease that the watchdog asks for: the longest that a hold wants, because a renewal never shortens a lease.
    fn renewed_lease(&self, rules: &Rules) -> Option<Duration> {
        let of_holds = self.all_holds().filter_map(|hold| hold.renewed_lease(rules.lease));
        of_holds.chain(self.stay.renewed_lease(rules.lease)).max()
    }

    /// The lease that sets the pace of a look. That of the configuration if nothing is renewed.
    pub(crate) fn paced_by(&self, rules: &Rules) -> Duration {
        self.renewed_lease(rules).unwrap_or(rules.lease)
    }

    /// Returns when the watchdog has to act next: for a renewal, or at the end of a hold that the server can keep for
    /// longer.
    pub(super) fn due(&mut self, now: Moment, rules: &Rules) -> Option<Moment> {
        if self.stay == Stay::None && !self.parts.iter().any(Part::has_holds) {
            self.lease.renew_at = None;
            return None; // the usual case: no hold and no stay
        }
        let renewed_lease = self.renewed_lease(rules);
        if renewed_lease.is_none() && !(rules.is_checked && self.has_holds()) {
            self.lease.renew_at = None;
        } else if self.lease.renew_at.is_none() {
            let lease = renewed_lease.unwrap_or_default();
            let period = rules.periods.renewal(lease, rules.is_shared);
            self.lease.renew_at = Some(first_renewal(now, period, rules));
        }
        let outlasts = self.lease.outlasts;
        let end = |hold: &H| match hold.renewed_lease(rules.lease) {
            Some(_) => hold.ends(),
            None => outlasts.then(|| hold.at()),
        };
        let leaked = self.parts.iter().filter_map(|part| part.first_leaked()).filter(|_| outlasts);
        let stay = self.stay.until().filter(|_| self.is_offered());
        self.all_holds()
            .filter_map(end)
            .chain(leaked)
            .chain(stay)
            .chain(self.lease.renew_at)
            .chain(self.lease.look.due)
            .min()
    }

    /// Records that the server told of a change of the key. A hold that lingers is confirmed soon, and that shows it.
    pub(crate) fn key_changed(&mut self, at: Moment, is_common: bool, rules: &Rules) {
        if self.has_holds() {
            self.lease.look.is_told(at, is_common, rules.periods.renewal(Duration::ZERO, rules.is_shared));
        }
    }

    /// Records that perhaps somebody changed the key, and that nobody would have told it. The look is due at `at`.
    pub(crate) fn is_unsure_of_key(&mut self, at: Moment) {
        if self.has_holds() {
            let look = &mut self.lease.look;
            look.due = Some(look.due.map_or(at, |due| due.min(at)));
        }
    }

    /// Whether the command under way is a look.
    pub(crate) const fn looks(&self) -> bool {
        self.lease.look.is_running
    }

    /// Gives up the look that is due: the server does not tell of changes.
    pub(crate) const fn looks_at_nothing(&mut self) {
        self.lease.look.due = None;
    }

    /// Returns the end of the renewed hold that ends last. `None`: one of them has no end.
    fn last_end(&self, rules: &Rules) -> Option<Moment> {
        if self.stay.renewed_lease(rules.lease).is_some() {
            return None;
        }
        let mut renewed = self.all_holds().filter(|hold| hold.renewed_lease(rules.lease).is_some());
        renewed.try_fold(Moment::PAST, |last, hold| hold.ends().map(|ends| ends.max(last)))
    }

    /// Returns the lease to ask for. If all holds end before this lease, it is no longer than what is left, because the release that
    /// follows their end needs the runtime of the program, which perhaps is blocked. It is rounded up to a twentieth of the lease,
    /// so that one command can renew holds that end at other times. With what a deadline is earlier than its lease, that is less than a
    /// sixteenth.
    fn lease_to_ask(&self, now: Moment, rules: &Rules) -> Option<Duration> {
        let lease = self.renewed_lease(rules)?;
        let Some(end) = self.last_end(rules) else { return Some(lease) };
        let part = (lease / 20).max(Duration::from_millis(1));
        let left = end.since(now) + lease::margin(lease);
        let parts = left.as_nanos().div_ceil(part.as_nanos());
        Some(lease.min(part * u32::try_from(parts).unwrap_or(u32::MAX).min(1 << 16)))
    }

    /// Begins a renewal. The grant was due at `due`, or everything is renewed now. Forgets holds that have ended.
    /// Returns the lease to ask for. Zero: the server changes the lease only if another client shortened it. `None`:
    /// there is nothing to renew.
    pub(crate) fn begins_renewal(
        &mut self,
        due: Moment,
        now: Moment,
        rules: &Rules,
        effects: &mut Effects<H>,
    ) -> Option<Duration> {
        self.ends_stay(now);
        for part in &mut self.parts {
            part.forget_ended(now, effects);
        }
        self.tidy();
        // A grant that comes before it is due is renewed: the scheduler fills a batch, or renews everything. A grant
        // that is due is renewed only if `renew_at` has come: perhaps it is here only because a hold has ended. Nor is one that is here
        // because of a look.
        let look = self.lease.look.due.take_if(|at| *at <= now.max(due)).filter(|_| self.has_holds());
        let is_due = match self.lease.renew_at {
            Some(at) if at > now => now < due && (look.is_none() || at <= due),
            _ => true,
        };
        let lease = self.lease_to_ask(now, rules);
        if is_due && (lease.is_some() || (rules.is_checked && self.has_holds())) {
            self.lease.look.due = None; // the renewal shows the same
            self.lease.asked = lease;
            return Some(lease.unwrap_or_default());
        }
        self.lease.look.is_running = look.is_some();
        self.lease.asked = None;
        self.lease.look.is_running.then_some(Duration::ZERO)
    }

    /// Returns how long the server has to keep the lock, if nothing is renewed.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        let stays = (self.stay != Stay::None).then(|| self.lease.until.since(now));
        self.all_holds().map(|hold| hold.at().since(now)).chain(stays).max().unwrap_or_default()
    }

    /// Records that the renewal sent at `sent` succeeded. The next one is due at `next`.
    pub(crate) fn renewed(
        &mut self,
        sent: Moment,
        next: Moment,
        now: Moment,
        rules: &Rules,
        effects: &mut Effects<H>,
    ) {
        let is_look = self.lease.look.is_running;
        // Holds that began together were renewed together for the first time. From then on they are spread over the period.
        let is_first = self.lease.look.found_at == Moment::PAST;
        let third = next.since(sent) / 3;
        let next = if is_first { sent.plus(third).plus((rules.within)(2 * third)) } else { next };
        self.lease.look.found(now, rules.periods.renewal(Duration::ZERO, rules.is_shared));
        if is_look {
            return;
        }
        effects.renewed = Some(Renewed::Ok);
        if let Some(lease) = self.lease.asked {
            self.keeps_lease(lease, sent, now);
        }
        // If a hold ended while the renewal was under way, the renewal made the server's lease longer all the same. So
        // the watchdog comes back at once to release that hold.
        let has_ended = self.all_holds().any(|hold| !hold.relies_on(now));
        // If the lease lasts until all holds have ended, nothing is left to renew. Perhaps one came meanwhile that ends later.
        let until = self.lease.asked.filter(|_| !rules.is_shared).map(|lease| lease::deadline(sent, lease));
        let last = self.last_end(rules).filter(|end| until.is_some_and(|until| *end <= until));
        let next = last.map_or(next, |end| end.max(next));
        self.lease.renew_at = Some(if has_ended { now } else { next });
    }

    /// Moves the deadlines of renewed holds: a command that was sent at `sent` set this lease on the server.
    pub(super) fn keeps_lease(&mut self, lease: Duration, sent: Moment, now: Moment) {
        let deadline = lease::deadline(sent, lease);
        self.lease.until = self.lease.until.max(deadline);
        for hold in self.parts.iter_mut().flat_map(|part| &mut part.holds) {
            if hold.renewed_lease(lease).is_some() {
                hold.advance(now, deadline);
            }
        }
    }

    /// Records that the renewal failed. The next try is due at `next`.
    pub(crate) fn not_renewed(&mut self, next: Moment, effects: &mut Effects<H>) {
        if std::mem::take(&mut self.lease.look.is_running) {
            self.lease.look.due = Some(next);
            return;
        }
        effects.renewed = Some(Renewed::Failed);
        self.lease.renew_at = Some(next);
    }

    /// Records that the renewal found no hold.
    pub(crate) fn renewed_nothing(&mut self, effects: &mut Effects<H>) {
        self.lease.look.is_running = false;
        if self.has_holds() {
            effects.renewed = Some(Renewed::Gone);
        }
        self.found_nothing(effects);
    }

    /// Records that a command found no hold on the server. If the grant has no holds, this is no loss: they were given
    /// back, and the release was faster.
    pub(crate) fn found_nothing(&mut self, effects: &mut Effects<H>) {
        if self.has_holds() || self.stay != Stay::None {
            self.loses(effects);
        }
    }

    /// Records that a lease which the user chose is about to be asked for. From here on, the server can keep the lock
    /// for longer than the holds last, even if the answer is lost.
    pub(crate) fn extends(&mut self, lease: Duration, rules: &Rules) {
        self.asks_for(lease, rules);
        self.lease.outlasts = true;
    }
}

#[cfg(test)]
#[path = "explorer.rs"]
mod explorer;

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::sync::Arc;

    use super::*;
    use crate::base::config::LockConfig;
    use crate::engine::hold::effects::Fate;
    use crate::engine::hold::lease::Periods;
    use crate::engine::hold::tests::Nobody;
    use crate::engine::hold::{EARLY, Hold, Renews, Term};
    use crate::telemetry;

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    fn here() -> Began {
        Began { task: None, at: Location::caller() }
    }

    fn rules() -> Rules {
        Rules {
            lease: LEASE,
            periods: Periods::of_lease(LEASE),
            is_shared: false,
            is_checked: false,
            sharing: SECOND,
            within: |time| time,
        }
    }

    /// A hold with this deadline, for an acquire that is counted already.
    fn add(machine: &mut Machine<Arc<Hold>>, owner: OwnerKey, renews: Renews, until: Moment) -> Arc<Hold> {
        let term = Term { renews, ..Term::default() };
        let hold = Arc::new(Hold::new(until, term, Nobody::lock(), telemetry::Held::default()));
        assert!(machine.holds(owner, Arc::clone(&hold), (until, NOW), &rules()));
        hold
    }

    fn ends_at(machine: &mut Machine<Arc<Hold>>, now: Moment) {
        let mut effects = Effects::default();
        machine.begins_renewal(now, now, &rules(), &mut effects);
    }

    #[test]
    fn the_count_of_the_owner_that_asked_last_is_shown_and_a_hold_is_needed_while_an_owner_has_one() {
        let [one, two] = [OwnerKey::default(), OwnerKey::default()];
        let (mut machine, end) = (Machine::new(one, here()), NOW.plus(LEASE));
        let attempt = machine.copies.attempts(1);
        machine.answered(1, attempt, Answer::Granted);
        let first = add(&mut machine, one, Renews::Usual, end);
        assert_eq!(machine.reenters(one, NOW), Some(2));
        let readers = [(); 2].map(|()| {
            machine.attaches(two, here());
            add(&mut machine, two, Renews::Usual, end)
        });
        assert!(machine.shows(2, LEASE, Epoch::default(), &rules()));
        machine.ends_pending(one);
        let shows = |machine: &mut Machine<_>| Some(machine.releases(NOW)?.shows?.1);
        assert_eq!(shows(&mut machine), Some(1), "the re-entry was given up");
        machine.leaks(&readers[0], NOW);
        assert_eq!((shows(&mut machine), machine.live(two, NOW)), (None, 2), "one of the two is leaked");
        machine.gives_back(&readers[1], false, NOW);
        assert_eq!(shows(&mut machine), Some(1));
        machine.gives_back(&first, false, NOW);
        assert_eq!(shows(&mut machine), None, "the other owner has the hold");
        machine.loses(&mut Effects::default());
        assert!(!machine.is_needed(NOW) && machine.parts.is_empty());
    }

    /// Otherwise the second one would not learn whether the lock was held.
    #[test]
    fn each_inner_release_that_a_future_waits_for_is_a_command() {
        let (owner, end) = (OwnerKey::default(), NOW.plus(LEASE));
        let mut machine = Machine::new(owner, here());
        let attempt = machine.copies.attempts(1);
        machine.answered(1, attempt, Answer::Granted);
        let holds = [(); 6].map(|()| {
            machine.attaches(owner, here());
            add(&mut machine, owner, Renews::Usual, end)
        });
        machine.ends_pending(owner);
        holds[1..4].iter().for_each(|hold| machine.gives_back(hold, true, NOW));
        holds[4..].iter().for_each(|hold| machine.gives_back(hold, false, NOW)); // dropped
        let sent = std::iter::from_fn(|| machine.releases(NOW)).count();
        assert_eq!((sent, machine.live(owner, NOW)), (3, 1));
    }

    #[test]
    fn the_lock_stays_held_for_the_longest_minimum_hold_time() {
        let owner = OwnerKey::default();
        let [end, soon, later] = [10, 20, 60].map(|seconds| NOW.plus(SECOND * seconds));
        let mut machine = Machine::new(owner, here());
        add(&mut machine, owner, Renews::Nothing, end);
        [later, soon].into_iter().for_each(|until| machine.stays_until(until, None));
        assert_eq!((machine.is_needed(NOW), machine.kept_until()), (true, None), "its owner has it");
        ends_at(&mut machine, soon);
        assert_eq!((machine.live(owner, soon), machine.is_needed(soon)), (0, true), "the hold has ended");
        assert_eq!(machine.kept_until(), Some(later), "nobody else releases it");
        machine.ends_stay(later);
        assert_eq!((machine.is_needed(later), machine.kept_until()), (false, None));
    }

    #[test]
    fn a_hold_that_stays_is_renewed_with_the_lease_of_its_owner() {
        let owner = OwnerKey::default();
        for renews in [Renews::Nothing, Renews::Usual, Renews::Lease(SECOND)] {
            let mut machine = Machine::new(owner, here());
            let hold = add(&mut machine, owner, renews, NOW.plus(LEASE));
            let lease = hold.renewed_lease(LEASE);
            machine.stays_until(NOW.plus(LEASE), lease);
            machine.gives_back(&hold, false, NOW);
            assert_eq!((machine.renewed_lease(&rules()), machine.is_needed(NOW)), (lease, true));
        }
    }

    #[test]
    fn only_the_end_of_a_leaked_hold_is_kept() {
        let owner = OwnerKey::default();
        let mut machine = Machine::new(owner, here());
        for number in (1..=100).rev() {
            let hold = add(&mut machine, owner, Renews::Nothing, NOW.plus(SECOND * number));
            machine.leaks(&hold, NOW);
            assert_eq!(Arc::strong_count(&hold), 1, "nothing else refers to it");
            machine.attaches(owner, here());
        }
        machine.ends_pending(owner);
        let later = NOW.plus(SECOND * 40);
        assert_eq!((machine.live(owner, NOW), machine.live(owner, later)), (100, 60));
        ends_at(&mut machine, later);
        assert_eq!(machine.due(later, &rules()), Some(NOW.plus(SECOND * 41).minus(EARLY)));
    }

    #[test]
    fn only_what_was_given_back_before_a_release_is_asked_about_by_it() {
        let owner = OwnerKey::default();
        let mut machine = Machine::new(owner, here());
        let until = NOW.plus(LEASE);
        let attempt = machine.copies.attempts(1);
        machine.answered(1, attempt, Answer::Granted);
        let holds = [(); 3].map(|()| {
            machine.attaches(owner, here());
            add(&mut machine, owner, Renews::Usual, until)
        });
        machine.ends_pending(owner);
        let mut release = |index: usize| {
            machine.gives_back(&holds[index], false, NOW);
            machine.releases(NOW).expect("owed")
        };
        let releases = [release(0), release(1)];
        let asked = releases.map(|release| {
            let mut effects = Effects::default();
            let end = End::Answered { connection: 1, is_gone: false };
            machine.ends_release(release, end, &mut effects);
            effects.holds().len()
        });
        assert_eq!(asked, [1, 1]);
    }

    #[test]
    fn nobody_joins_a_hold_that_is_lost_although_its_owner_re_enters() {
        let [one, two] = [OwnerKey::default(), OwnerKey::default()];
        let joins = |is_lost: bool| {
            let mut machine = Machine::new(one, here());
            let attempt = machine.copies.attempts(1);
            machine.answered(1, attempt, Answer::Granted);
            add(&mut machine, one, Renews::Usual, NOW.plus(LEASE));
            assert!(machine.opens_to_readers(None, NOW) && machine.reenters(one, NOW).is_some());
            if is_lost {
                machine.loses(&mut Effects::default());
            }
            machine.joins(two, here(), Epoch::default(), NOW, &rules()).is_some()
        };
        assert!(joins(false) && !joins(true));
    }

    /// A hold of a reader, which the server granted at `NOW`, and which lingers for a second.
    fn lingering(owner: OwnerKey) -> (Machine<Arc<Hold>>, Arc<Hold>) {
        let mut machine = Machine::new(owner, here());
        let attempt = machine.copies.attempts(1);
        machine.answered(1, attempt, Answer::Granted);
        let hold = add(&mut machine, owner, Renews::Usual, NOW.plus(LEASE));
        assert!(machine.opens_to_readers(Some(SECOND), NOW));
        (machine, hold)
    }

    #[test]
    fn readers_join_a_hold_that_lingers_for_a_quarter_longer_than_its_time() {
        let [one, two] = [OwnerKey::default(), OwnerKey::default()];
        let (mut machine, hold) = lingering(one);
        machine.gives_back(&hold, false, NOW);
        let joins_at = |machine: &Machine<Arc<Hold>>, millis: u64| {
            let now = NOW.plus(Duration::from_millis(millis));
            machine.clone().joins(two, here(), Epoch::default(), now, &rules()).is_some()
        };
        assert!(joins_at(&machine, 1_249) && !joins_at(&machine, 1_251));
        let (beside_a_long_reader, _) = lingering(one);
        assert!(joins_at(&beside_a_long_reader, 1_249) && !joins_at(&beside_a_long_reader, 1_251));
        assert_eq!(machine.confirms_at(), Some(NOW.plus(SECOND)));
        let sent = NOW.plus(SECOND);
        assert!(machine.joins(two, here(), Epoch::default(), sent, &rules()).is_some());
        machine.ends_pending(two);
        let asked = machine.begins_confirmation(Epoch::default(), false, sent).expect("it was joined");
        machine.confirmed(asked, sent, false, (Epoch::default(), sent), &rules());
        assert!(joins_at(&machine, 2_249) && !joins_at(&machine, 2_251));
        assert!(!asked.makes_gap || machine.lease.until > NOW.plus(LEASE), "it is renewed");
        assert_eq!(machine.begins_confirmation(Epoch::default(), false, sent), None, "nobody joined since");
        assert!(!machine.is_needed(sent));
    }

    /// After a switch to another master, the owner re-enters. The new master has perhaps not answered yet, and perhaps
    /// lacks the hold.
    #[test]
    fn nobody_joins_a_hold_of_an_earlier_epoch_that_its_owner_re_enters() {
        let [one, two] = [OwnerKey::default(), OwnerKey::default()];
        let joins = |epoch| {
            let (mut machine, _) = lingering(one);
            let want = machine.reenters(one, NOW).expect("it has a hold");
            assert!(machine.shows(want, LEASE, epoch, &rules()));
            machine.joins(two, here(), epoch, NOW, &rules()).is_some()
        };
        assert!(joins(Epoch::default()) && !joins(Epoch { switches: 1, forced: 0 }));
    }

    #[test]
    fn a_hold_that_lingers_ends_after_a_switch_and_at_a_shutdown() {
        let [one, two] = [OwnerKey::default(), OwnerKey::default()];
        let switched = Epoch { switches: 1, forced: 0 };
        let ends = |asks_in, is_closing, answered_in| {
            let (mut machine, hold) = lingering(one);
            machine.gives_back(&hold, false, NOW);
            machine.joins(two, here(), Epoch::default(), NOW, &rules()).expect("it lingers");
            machine.ends_pending(two);
            let asked = machine.begins_confirmation(asks_in, is_closing, NOW);
            if let Some(asked) = asked {
                machine.confirmed(asked, NOW, false, (answered_in, NOW), &rules());
            }
            !machine.is_needed(NOW)
        };
        let same = Epoch::default();
        assert!(!ends(same, false, same));
        assert!(ends(switched, false, switched) && ends(same, true, same) && ends(same, false, switched));
    }

    /// The first attempt of a claim was not answered, and the second one was granted on another connection. A copy of
    /// the first one makes the server's lease longer.
    #[test]
    fn the_end_of_a_granted_claim_is_due_while_a_copy_can_run_late() {
        let owner = OwnerKey::default();
        let mut machine = Machine::new(owner, here());
        machine.copies.attempts(1);
        let second = machine.copies.attempts(2);
        machine.answered(2, second, Answer::Has(true));
        let end = NOW.plus(SECOND);
        add(&mut machine, owner, Renews::Nothing, end);
        assert_eq!(machine.due(NOW, &rules()), Some(end));
    }

    /// Nobody polls the future, so its attempt reaches the server after the release, and is answered after it.
    #[test]
    fn what_an_attempt_is_granted_after_a_shutdown_gave_it_up_is_owed() {
        let mut machine: Machine<Arc<Hold>> = Machine::new(OwnerKey::default(), here());
        let attempt = machine.copies.attempts(1);
        machine.gives_up();
        let release = machine.releases(NOW).expect("owed");
        machine.ends_release(
            release,
            End::Answered { connection: 1, is_gone: true },
            &mut Effects::default(),
        );
        assert!(!machine.is_owed(NOW));
        machine.answered(1, attempt, Answer::Granted);
        assert!(machine.is_owed(NOW));
    }

    /// The owner acquires anew while the background releases, so two releases of one hold are under way.
    #[test]
    fn a_loss_that_two_releases_find_is_told_once_by_the_second_answer() {
        let owner = OwnerKey::default();
        for order in [[0, 1], [1, 0]] {
            let mut machine = Machine::new(owner, here());
            let attempt = machine.copies.attempts(1);
            machine.answered(1, attempt, Answer::Granted);
            let hold = add(&mut machine, owner, Renews::Usual, NOW.plus(LEASE));
            machine.gives_back(&hold, false, NOW);
            let releases = [(); 2].map(|()| machine.releases(NOW).expect("owed"));
            let told = order.map(|index| {
                let (mut effects, end) = (Effects::default(), End::Answered { connection: 1, is_gone: true });
                machine.ends_release(releases[index].clone(), end, &mut effects);
                (
                    effects.holds().iter().map(|(_, fate)| *fate).collect::<Vec<_>>(),
                    machine.was_perhaps_lost(),
                )
            });
            assert_eq!(told, [(vec![], true), (vec![Fate::Gone], false)], "{order:?}");
        }
    }

    /// A hold of a machine of its own, which ends after this time although it is renewed.
    fn bounded(ends: Option<Duration>) -> (Machine<Arc<Hold>>, Arc<Hold>) {
        let owner = OwnerKey::default();
        let mut machine = Machine::new(owner, here());
        let term = Term { renews: Renews::Usual, ends: ends.map(|time| NOW.plus(time)), ..Term::default() };
        let until = NOW.plus(LEASE);
        let hold = Arc::new(Hold::new(until, term, Nobody::lock(), telemetry::Held::default()));
        assert!(machine.holds(owner, Arc::clone(&hold), (until, NOW), &rules()));
        (machine, hold)
    }

    fn begins(machine: &mut Machine<Arc<Hold>>, due: Moment, now: Moment) -> Option<Duration> {
        machine.begins_renewal(due, now, &rules(), &mut Effects::default())
    }

    fn ends(machine: &mut Machine<Arc<Hold>>, sent: Moment) {
        machine.renewed(sent, sent.plus(LEASE / 3), sent, &rules(), &mut Effects::default());
    }

    /// Otherwise, it would be due again and again until the stay ends.
    #[test]
    fn a_look_is_not_due_without_a_hold() {
        let owner = OwnerKey::default();
        for is_leaked in [false, true] {
            let mut machine = Machine::new(owner, here());
            let hold = add(&mut machine, owner, Renews::Nothing, NOW.plus(LEASE));
            let look = machine.due(NOW, &rules()).expect("it is looked at");
            if is_leaked {
                machine.leaks(&hold, NOW);
            } else {
                machine.stays_until(NOW.plus(LEASE), None);
                machine.gives_back(&hold, false, NOW);
            }
            assert_eq!(begins(&mut machine, look, look), None);
            assert_eq!(machine.due(look, &rules()), None, "leaked: {is_leaked}");
        }
    }

    /// The scheduler takes what is due a little later, to fill a batch. A renewal in place of a look would write.
    #[test]
    fn a_look_that_comes_early_is_no_renewal() {
        let (mut machine, _) = bounded(None);
        machine.key_changed(NOW.plus(SECOND / 2), false, &rules());
        let due = machine.due(NOW, &rules()).expect("a look");
        assert_eq!(begins(&mut machine, due, NOW), Some(Duration::ZERO));
        assert!(machine.looks());
        ends(&mut machine, NOW);
        let due = machine.due(NOW, &rules()).expect("the renewal");
        assert_eq!(begins(&mut machine, due, NOW), Some(LEASE), "the scheduler fills a batch");
    }

    /// Renewals find the hold, too. So the changes by renewals of others lead to no looks in the end.
    #[test]
    fn a_hold_whose_key_changes_all_the_time_is_only_renewed() {
        for (is_common, most) in [(false, 7), (true, 1)] {
            let (mut machine, _) = bounded(None);
            let (mut looks, mut late) = (0, 0);
            for tick in 1..1_000 {
                let now = NOW.plus(SECOND / 10 * tick);
                machine.key_changed(now, is_common, &rules());
                let due = machine.due(now, &rules()).expect("it is renewed");
                if due > now {
                    continue;
                }
                if begins(&mut machine, due, now) == Some(Duration::ZERO) {
                    looks += 1;
                    late += u32::from(tick > 500);
                }
                ends(&mut machine, now);
            }
            assert!(looks <= most && late == 0, "{looks} looks, {late} of them late");
            // After a time without changes, the next one is followed at once.
            let now = NOW.plus(SECOND * 120);
            begins(&mut machine, now, now);
            ends(&mut machine, now);
            let now = NOW.plus(SECOND * 140);
            machine.key_changed(now, is_common, &rules());
            assert_eq!(machine.lease.look.due, Some(now));
        }
    }

    #[test]
    fn the_last_renewal_lasts_until_the_end_of_the_hold() {
        for part in 1..100 {
            let end = LEASE / 100 * part;
            let (mut machine, hold) = bounded(Some(LEASE + end));
            let now = NOW.plus(LEASE / 2 + LEASE / 2 - SECOND);
            let due = machine.due(now, &rules()).expect("a renewal");
            let asked = begins(&mut machine, due, now).expect("a renewal");
            ends(&mut machine, now);
            let left = end + SECOND;
            if asked < LEASE {
                assert!(asked < left + LEASE / 16, "{asked:?} for {left:?}");
                assert!(hold.at() >= NOW.plus(LEASE + end), "{:?} for {left:?}", hold.at());
                assert_eq!(
                    machine.due(now, &rules()),
                    Some(NOW.plus(LEASE + end)),
                    "nothing is left to renew"
                );
            }
        }
    }

    #[test]
    fn a_hold_that_comes_during_the_last_renewal_of_another_is_renewed() {
        let (mut machine, first) = bounded(Some(LEASE + SECOND));
        let owner = machine.parts[0].owner;
        let now = NOW.plus(LEASE - SECOND);
        let due = machine.due(now, &rules()).expect("a renewal");
        assert!(begins(&mut machine, due, now).is_some_and(|asked| asked < LEASE));
        machine.reenters(owner, now).expect("it is held");
        let term = Term { renews: Renews::Usual, ends: Some(NOW.plus(LEASE * 100)), ..Term::default() };
        let until = now.plus(LEASE);
        let hold = Arc::new(Hold::new(until, term, Nobody::lock(), telemetry::Held::default()));
        assert!(machine.holds(owner, hold, (until, now), &rules()));
        ends(&mut machine, now);
        machine.gives_back(&first, false, now);
        assert!(machine.due(now, &rules()).expect("a renewal") < until);
    }

    /// The margin of its lease is longer than the pace that Java's watchdog sets.
    #[test]
    fn a_reader_with_a_long_lease_is_not_renewed_at_once() {
        let lease = 3_600 * SECOND;
        let config = LockConfig::builder().watchdog_lease(lease).build().unwrap();
        let rules = Rules { lease, periods: Periods::new(&config), is_shared: true, ..rules() };
        let owner = OwnerKey::default();
        let mut machine = Machine::new(owner, here());
        let (now, until) = (NOW.plus(lease), lease::deadline(NOW.plus(lease), lease));
        let term = Term { renews: Renews::Usual, ..Term::default() };
        let hold = Arc::new(Hold::new(until, term, Nobody::lock(), telemetry::Held::default()));
        assert!(machine.holds(owner, hold, (until, now), &rules));
        assert!(machine.due(now, &rules).expect("a renewal") >= now.plus(FIRST));
    }

    #[test]
    fn the_background_is_asked_once_for_each_thing() {
        let asks = |machine: &mut Machine<_>| machine.asks_background(NOW, &mut Effects::default());
        let owner = OwnerKey::default();
        let mut machine: Machine<Arc<Hold>> = Machine::new(owner, here());
        machine.copies.attempts(1);
        assert!(!asks(&mut machine), "nothing is owed");
        machine.ends_pending(owner);
        assert!(asks(&mut machine) && !asks(&mut machine));
        let release = machine.releases(NOW).expect("owed");
        assert!(!asks(&mut machine), "it is not answered");
        let end = End::Answered { connection: 1, is_gone: true };
        machine.ends_release(release, end, &mut Effects::default());
        assert!(!asks(&mut machine), "the attempt was undone");
        machine.attended();
        machine.copies.attempts(2);
        assert!(!asks(&mut machine), "a future sends the release");
        machine.no_longer_attended();
        assert!(asks(&mut machine), "the future has ended");
    }
}
