//! The waiters of one client for one lock, as a pure state machine. No clock, no future and no mutex: events come in
//! with the time, and what is to be done goes out as [`Effects`].
//!
//! The waiters stand in the order in which they came. The one in front attempts when the lock is perhaps free: nobody
//! attempted before, a message came, the holder's lease ended, or a poll is due. The others wait until they are in
//! front, or give up when attempts have failed for long enough. There are three exceptions, all for a front that does
//! not act or for an answer that nobody else can find out:
//!
//! - Nobody attempted for two safety polls: perhaps the front is a future that nobody polls.
//! - Several readers can hold the lock together. A reader attempts when it comes, and when another reader was granted the lock.
//! - A reader that came during another reader's attempt waits a moment for that answer, and then attempts.
//!
//! What the client knows about the lock is [`Knowledge`], and what a waiter does is [`State`]. A wake-up belongs to the
//! queue and not to a waiter: an attempt that begins after it covers it, and if that attempt ends without an answer,
//! the wake-up is there again. Waiters for permits want different numbers of them. So there, only an attempt of the
//! front covers a wake-up, and a call that comes to the front from outside of the queue attempts once more.
//!
//! A hold that another owner of the client hands over is an *offer*. The front takes the offer instead of attempting.
//! There is one offer at a time, or for a semaphore as many as waiters.

use std::collections::BTreeMap;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::base::clock::Moment;
use crate::base::limits::limits;

/// The number of a waiter. A waiter has a greater number than those in front of it.
pub(crate) type Ticket = i64;

/// If the waiter in front was woken this long ago and did nothing, nobody perhaps polls its future.
pub(crate) const STALLED: Duration = Duration::from_millis(10);

/// What the waiters of a queue wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Discipline {
    /// A lock that one owner holds.
    Exclusive,
    /// A lock that several owners can hold together.
    Readers,
    /// Permits of a semaphore, one or several. Those behind the front perhaps want fewer than the front.
    Permits,
    /// A lock with a queue on the server: the waiter has a place there, and a heartbeat that tells it when its turn has
    /// come.
    Places,
}

/// Distinguishes queues, and has the times that a configuration sets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    pub(crate) discipline: Discipline,
    /// How often the front attempts by itself while messages arrive.
    pub(crate) poll: Duration,
    /// How often the front attempts by itself while no messages arrive.
    pub(crate) poll_without_messages: Duration,
    /// The waiters behind the front attempt, too, if no waiter attempted for this time.
    pub(crate) overlooked: Duration,
    /// How much later each overlooked waiter attempts than the one before it.
    pub(crate) turn: Duration,
    /// How long a reader waits for the answer to another reader's attempt.
    pub(crate) answer: Duration,
    /// [`STALLED`]
    pub(crate) stalled: Duration,
    /// After a release whose message reached other clients, the waiters here do not attempt for this time. Otherwise
    /// this client would mostly win, because it needs no message.
    pub(crate) yield_after_release: Duration,
    /// The waiters here yield for this time while the release is under way: a message can be faster than the reply.
    pub(crate) yield_before_reply: Duration,
}

impl Rules {
    pub(crate) const fn new(discipline: Discipline, safety_poll: Duration) -> Self {
        Self {
            discipline,
            poll: safety_poll,
            poll_without_messages: Duration::from_millis(250),
            overlooked: safety_poll.saturating_mul(2),
            turn: Duration::from_millis(2),
            answer: Duration::from_millis(20),
            stalled: STALLED,
            yield_after_release: Duration::from_millis(1),
            yield_before_reply: Duration::from_millis(10),
        }
    }
}

/// What the client knows about the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Knowledge<F> {
    /// No attempt of this queue was answered.
    Unknown,
    /// Another owner holds the lock, at most until then, if the time is known.
    Held { until: Option<Moment> },
    /// Several owners can hold the lock together, and a waiter of this queue acquired it.
    Open,
    /// Attempts have been failing since `since`, the last one at `failed_at`. The next one comes at `retry_at`.
    Failing { since: Moment, failed_at: Moment, retry_at: Moment, fault: F, was_held: bool },
}

/// What one waiter does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Waiting,
    /// A reader that came when the lock was perhaps free. Such a reader attempts without waiting for the front.
    First,
    /// A reader that waits until then for the answer to another reader's attempt. `answers`: how many answers there
    /// were when the reader came; a further one ends this wait.
    ForAnswer {
        until: Moment,
        answers: u64,
    },
    Attempting,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    state: State,
    /// The waiter can take a hold that another owner offers.
    can_take_handoff: bool,
    /// How many calls to all readers there had been when the waiter last attempted or joined.
    calls: u64,
    /// How many messages had come when the waiter's attempt began.
    disturbances: u64,
    joined_at: Moment,
}

/// The waiters in their order. The one in front is stored apart, because usually there is no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiters {
    front: Option<(Ticket, Waiter)>,
    behind: BTreeMap<Ticket, Waiter>,
}

impl Waiters {
    fn len(&self) -> usize {
        usize::from(self.front.is_some()) + self.behind.len()
    }

    /// Adds a waiter at the end.
    fn push(&mut self, ticket: Ticket, waiter: Waiter) {
        match &self.front {
            None => self.front = Some((ticket, waiter)),
            Some(_) => drop(self.behind.insert(ticket, waiter)),
        }
    }

    /// Adds a waiter before all others.
    fn push_front(&mut self, ticket: Ticket, waiter: Waiter) {
        if let Some((before, waiter)) = self.front.replace((ticket, waiter)) {
            self.behind.insert(before, waiter);
        }
    }

    fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        match &self.front {
            Some((front, waiter)) if *front == ticket => Some(waiter),
            _ => self.behind.get(&ticket),
        }
    }

    fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        match &mut self.front {
            Some((front, waiter)) if *front == ticket => Some(waiter),
            _ => self.behind.get_mut(&ticket),
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        if self.front() != Some(ticket) {
            return self.behind.remove(&ticket);
        }
        let next = self.behind.pop_first();
        std::mem::replace(&mut self.front, next).map(|(_, waiter)| waiter)
    }

    /// Returns how many waiters stand between a waiter and the front, or the most that are counted if there are more.
    fn place(&self, ticket: Ticket) -> u32 {
        let before = self.behind.range(..ticket).take(limits().turns).count();
        u32::try_from(before).expect("BUG: more than the most")
    }

    fn front(&self) -> Option<Ticket> {
        self.front.as_ref().map(|(front, _)| *front)
    }
}

/// Whether messages about the lock arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Messages {
    NotSubscribed,
    Subscribed,
    Arrive,
}

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The waiter attempts, or takes the offer.
    Act,
    /// The waiter waits until then, or until it is woken. `subscribes`: the queue has to subscribe to messages.
    Wait { until: Moment, subscribes: bool },
}

/// Whom an event wakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wakes {
    #[default]
    Nobody,
    Front,
    All,
}

/// What has to be done after an event. Drop the offers when no mutex is locked: the drop releases their holds.
#[must_use]
#[derive(Debug)]
pub(crate) struct Effects<O> {
    pub(crate) wakes: Wakes,
    pub(crate) dropped: Offers<O>,
}

/// Holds that owners of this client offer.
type Offers<O> = SmallVec<[O; 1]>;

impl<O> Effects<O> {
    pub(crate) fn wakes(wakes: Wakes) -> Self {
        Self { wakes, dropped: Offers::new() }
    }

    fn drops(dropped: Offers<O>) -> Self {
        Self { wakes: Wakes::Nobody, dropped }
    }
}

/// `O`: a hold that another owner of this client offers. `F`: why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Machine<O, F> {
    rules: Rules,
    waiters: Waiters,
    next: Ticket,
    attempting: usize,
    /// How many waiters cannot take a hold of another owner. While there is one, nothing is handed over: a waiter
    /// behind it would be served first.
    unable: usize,
    knowledge: Knowledge<F>,
    messages: Messages,
    /// The lock is perhaps free, and no waiter has begun an attempt since.
    is_woken: bool,
    /// Since when the queue is woken. `None` for a wake-up that is no news about the lock.
    woken_at: Option<Moment>,
    /// When an attempt last began while others waited.
    attempted_at: Option<Moment>,
    /// When the front attempts by itself, once it has begun to wait. This time belongs to the queue and not to a
    /// waiter: if each new front began to count anew and then left, nobody would attempt.
    polls_at: Option<Moment>,
    /// Counts how often all readers were called to attempt.
    calls: u64,
    /// Counts the attempts that were refused.
    answers: u64,
    /// Holds of this client: for the front to take, or for the readers here to join.
    offered: Offers<O>,
    /// When a hold was last offered.
    offered_at: Moment,
    /// When the server last granted the lock to this client. Holds that were granted earlier are gone, so they are not
    /// offered.
    granted_at: Moment,
    /// Since the server granted the lock to this client, a message came or was perhaps missed, so the hold was perhaps
    /// removed.
    is_disturbed: bool,
    /// Counts the messages that came or were perhaps missed.
    disturbances: u64,
    /// The message about the last release reached other clients.
    others_wait: bool,
    /// Until when the waiters here do not attempt, so that other clients come first.
    yields_until: Moment,
}

/// Longer than any wait.
const NEVER: Moment = Moment::from_nanos(u64::MAX);

impl<O, F: Clone> Machine<O, F> {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            waiters: Waiters { front: None, behind: BTreeMap::new() },
            next: 0,
            attempting: 0,
            unable: 0,
            knowledge: Knowledge::Unknown,
            messages: Messages::NotSubscribed,
            is_woken: false,
            woken_at: None,
            attempted_at: None,
            polls_at: None,
            calls: 0,
            answers: 0,
            offered: Offers::new(),
            offered_at: Moment::PAST,
            granted_at: Moment::PAST,
            is_disturbed: false,
            disturbances: 0,
            others_wait: false,
            yields_until: Moment::PAST,
        }
    }

    /// Adds a waiter: behind all others, or before them if its call began when nobody waited.
    pub(crate) fn join(&mut self, can_take_handoff: bool, comes_first: bool, now: Moment) -> Ticket {
        let state = match self.rules.discipline == Discipline::Readers && !self.is_closed() {
            // Another reader attempts now. This reader waits a moment for that answer, because it can share the hold.
            true if can_take_handoff && self.attempting > 0 => {
                State::ForAnswer { until: now.plus(self.rules.answer), answers: self.answers }
            }
            true => State::First,
            false => State::Waiting,
        };
        let waiter = Waiter { state, can_take_handoff, calls: self.calls, disturbances: 0, joined_at: now };
        let ticket = match self.front() {
            Some(front) if comes_first => {
                // This call was refused before it joined. Since then, a waiter that wants more permits than came back
                // can have used up the message about them. So the queue counts as woken, and this call asks again.
                self.is_woken |= self.rules.discipline == Discipline::Permits;
                front - 1
            }
            _ => self.next,
        };
        if ticket < self.next {
            self.waiters.push_front(ticket, waiter);
        } else {
            self.next += 1;
            self.waiters.push(ticket, waiter);
        }
        self.unable += usize::from(!can_take_handoff);
        if self.waiters.len() > 1 {
            self.attempted_at.get_or_insert(now);
        }
        ticket
    }

    /// Returns what a waiter does next. `by`: when the waiter attempts at the latest, if it is in front. `around`:
    /// draws a time near this one.
    pub(crate) fn next(
        &mut self,
        ticket: Ticket,
        by: Option<Moment>,
        now: Moment,
        around: impl FnOnce(Duration) -> Duration,
    ) -> Next {
        let is_front = self.is_front(ticket);
        if is_front && self.has_offer() {
            return Next::Act;
        }
        let acts_at =
            if is_front { self.front_acts_at(ticket, by, now, around) } else { self.acts_at(ticket) };
        let until = acts_at.max(self.yields_until);
        if until <= now {
            return Next::Act;
        }
        // A front that only waits for `yields_until` attempts right after that time, so it needs no messages.
        let subscribes = is_front && acts_at > now && self.messages == Messages::NotSubscribed;
        Next::Wait { until, subscribes }
    }

    fn front_acts_at(
        &mut self,
        ticket: Ticket,
        by: Option<Moment>,
        now: Moment,
        around: impl FnOnce(Duration) -> Duration,
    ) -> Moment {
        let own = self.own_time(ticket);
        let retry_at = match &self.knowledge {
            _ if self.is_woken => return now,
            Knowledge::Unknown | Knowledge::Open => return now,
            Knowledge::Held { until } => until.unwrap_or(NEVER),
            Knowledge::Failing { retry_at, .. } => *retry_at,
        };
        let poll = match self.messages {
            _ if self.rules.discipline == Discipline::Places => None, // the heartbeat tells the waiter its turn
            Messages::Arrive => Some(self.rules.poll),
            _ => Some(self.rules.poll_without_messages.min(self.rules.poll)),
        };
        let Some(waiter) = self.waiters.get_mut(ticket) else { return NEVER };
        if let State::ForAnswer { .. } = waiter.state {
            waiter.state = State::Waiting;
        }
        let polls_at = if waiter.state == State::Waiting {
            *self.polls_at.get_or_insert_with(|| poll.map_or(NEVER, |poll| now.plus(around(poll))))
        } else {
            NEVER
        };
        own.min(retry_at).min(polls_at).min(by.unwrap_or(NEVER))
    }

    /// Returns when a waiter behind others attempts.
    fn acts_at(&self, ticket: Ticket) -> Moment {
        let joined_at = self.waiters.get(ticket).map_or(NEVER, |waiter| waiter.joined_at);
        // Overlooked waiters attempt one after the other, the earlier ones first. Otherwise a later waiter that wants
        // more permits could always attempt first and be refused, and the others would wait on.
        let turn = self.rules.turn * self.waiters.place(ticket);
        let overlooked = self.attempted_at.unwrap_or(joined_at).plus(self.rules.overlooked + turn);
        self.own_time(ticket).min(overlooked)
    }

    /// Returns when a waiter attempts for a reason of its own, wherever it stands.
    fn own_time(&self, ticket: Ticket) -> Moment {
        let Some(waiter) = self.waiters.get(ticket) else { return NEVER };
        match waiter.state {
            State::First => Moment::PAST,
            _ if waiter.calls != self.calls => Moment::PAST,
            State::ForAnswer { until, answers } if answers == self.answers => until,
            _ => NEVER,
        }
    }

    /// Records that a waiter begins an attempt.
    pub(crate) fn attempts(&mut self, ticket: Ticket, now: Moment) -> Effects<O> {
        // A front that attempts could not take the offer, and a reader that attempts could not join the hold that is
        // kept here. So the offer is dropped. Offered permits stay: other waiters can take them.
        let is_for_it = self.rules.discipline == Discipline::Readers
            || (self.is_front(ticket) && self.rules.discipline != Discipline::Permits);
        let dropped = if is_for_it { std::mem::take(&mut self.offered) } else { Offers::new() };
        let (calls, disturbances) = (self.calls, self.disturbances);
        if let Some(waiter) = self.waiters.get_mut(ticket) {
            // A call whose time limit passes during an attempt begins a second one. The waiter still counts once.
            self.attempting += usize::from(waiter.state != State::Attempting);
            waiter.state = State::Attempting;
            waiter.calls = calls;
            waiter.disturbances = disturbances;
        }
        if self.is_front(ticket) {
            self.polls_at = None;
        }
        // An attempt behind the front does not use up a wake-up about permits: that waiter perhaps wants more permits
        // than came back, and the front fewer.
        if self.is_front(ticket) || self.rules.discipline != Discipline::Permits {
            (self.is_woken, self.woken_at) = (false, None);
        }
        self.attempted_at = (self.waiters.len() > 1).then_some(now);
        Effects::drops(dropped)
    }

    /// Records that an attempt was refused: another owner holds the lock. The lease of that owner lasts at most for
    /// `left`, if the time is known.
    pub(crate) fn refused(&mut self, ticket: Ticket, left: Option<Duration>, now: Moment) {
        self.ends_attempt(ticket);
        self.is_held(left, now);
    }

    /// Records that an attempt failed. The next attempt comes after `pause`.
    pub(crate) fn failed(&mut self, ticket: Ticket, fault: F, pause: Duration, now: Moment) {
        let retry_at = now.plus(pause);
        self.ends_attempt(ticket);
        let (since, was_held) = match &self.knowledge {
            Knowledge::Failing { since, was_held, .. } => (*since, *was_held),
            _ => (now, self.is_answered()),
        };
        self.knowledge = Knowledge::Failing { since, failed_at: now, retry_at, fault, was_held };
    }

    /// For how long attempts have been failing since this waiter came. Zero: they do not fail.
    pub(crate) fn failing(&self, ticket: Ticket, now: Moment) -> Duration {
        match (&self.knowledge, self.waiters.get(ticket)) {
            (Knowledge::Failing { since, .. }, Some(waiter)) => now.since((*since).max(waiter.joined_at)),
            _ => Duration::ZERO,
        }
    }

    /// Whether a waiter behind others gives up: since the waiter came, attempts have been failing for longer than
    /// `most`, and the next one was due less than `patience` ago. If each waiter waited for an attempt of its own, the
    /// last of a thousand would learn of the fault after a thousand attempts.
    pub(crate) fn is_hopeless(
        &self,
        ticket: Ticket,
        most: Duration,
        patience: Duration,
        now: Moment,
    ) -> bool {
        let Knowledge::Failing { failed_at, retry_at, .. } = &self.knowledge else { return false };
        // Count until the last fault, and not until now: the attempt under way can succeed, and the waiter must not
        // give up before its answer.
        !self.is_front(ticket) && self.failing(ticket, *failed_at) > most && now.since(*retry_at) < patience
    }

    fn ends_attempt(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.waiters.get_mut(ticket) {
            if waiter.state == State::Attempting {
                self.attempting -= 1;
            }
            waiter.state = State::Waiting;
        }
    }

    fn is_held(&mut self, left: Option<Duration>, now: Moment) {
        self.knowledge = Knowledge::Held { until: left.map(|left| now.plus(left)) };
        self.answers += 1;
    }

    /// Removes a waiter that has acquired the lock with this lease. `leaves_permits`: the next waiter can acquire
    /// permits, too.
    pub(crate) fn leaves_with_lock(
        &mut self,
        ticket: Ticket,
        lease: Duration,
        leaves_permits: bool,
        now: Moment,
    ) -> Effects<O> {
        let was_attempting = self.remove(ticket) == Some(State::Attempting);
        self.polls_at = None;
        if self.is_empty() {
            return self.ends();
        }
        if self.rules.discipline == Discipline::Readers {
            if let Knowledge::Open = self.knowledge {
                // The other readers were called before. But a reader whose attempt is under way was perhaps refused
                // before this grant, so all are called once more.
                self.calls += u64::from(self.attempting > 0);
                return Effects::wakes(Wakes::Front);
            }
            // The first reader has the lock, so every waiting reader can acquire it, too. All of them are called.
            self.knowledge = Knowledge::Open;
            self.calls += 1;
            return Effects::wakes(Wakes::All);
        }
        if self.rules.discipline == Discipline::Permits {
            // The next permit comes back when the first lease ends: this one, or that of another owner. If the queue
            // does not know the other lease, the next waiter asks the server.
            let left = match self.knowledge {
                Knowledge::Held { until: Some(until) } if until > now => Some(lease.min(until.since(now))),
                _ => None,
            };
            self.is_held(left, now);
            self.is_woken |= leaves_permits || left.is_none();
            return Effects::wakes(Wakes::Front);
        }
        self.is_held(Some(lease), now);
        // The server granted the lock to this attempt, so the hold that is offered here no longer exists there. The
        // offer is dropped.
        let dropped = if was_attempting { std::mem::take(&mut self.offered) } else { Offers::new() };
        Effects { wakes: Wakes::Front, dropped }
    }

    /// Removes a waiter that leaves without the lock.
    pub(crate) fn leaves(&mut self, ticket: Ticket) -> Effects<O> {
        // The front perhaps wanted more permits than were available, and the next waiter wants fewer. So the next
        // waiter asks at once.
        let wanted_more = self.rules.discipline == Discipline::Permits && self.is_front(ticket);
        if self.remove(ticket) == Some(State::Attempting) || wanted_more {
            // This attempt used up a wake-up and ends without an answer, so the next waiter gets the wake-up.
            self.is_woken = true;
        }
        if self.is_empty() { self.ends() } else { Effects::wakes(Wakes::Front) }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<State> {
        let waiter = self.waiters.remove(ticket)?;
        self.unable -= usize::from(!waiter.can_take_handoff);
        self.attempting -= usize::from(waiter.state == State::Attempting);
        if self.is_empty() {
            self.polls_at = None;
        }
        Some(waiter.state)
    }

    fn ends(&mut self) -> Effects<O> {
        Effects::drops(std::mem::take(&mut self.offered))
    }

    fn is_front(&self, ticket: Ticket) -> bool {
        self.waiters.front() == Some(ticket)
    }

    pub(crate) fn front(&self) -> Option<Ticket> {
        self.waiters.front()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.waiters.front.is_none()
    }

    /// Whether a waiter stands behind the front.
    pub(crate) fn has_followers(&self) -> bool {
        self.waiters.len() > 1
    }

    /// Records that the lock is perhaps free, and wakes the front.
    pub(crate) fn wakes(&mut self, now: Moment) -> Effects<O> {
        self.is_woken = true;
        self.woken_at.get_or_insert(now);
        self.disturbs();
        Effects::wakes(Wakes::Front)
    }

    const fn disturbs(&mut self) {
        self.is_disturbed = true;
        self.disturbances += 1;
    }

    /// Records that the queue is subscribed. False: it was subscribed before.
    pub(crate) fn subscribes(&mut self) -> bool {
        let is_new = self.messages == Messages::NotSubscribed;
        if is_new {
            self.messages = Messages::Subscribed;
        }
        is_new
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.messages != Messages::NotSubscribed
    }

    /// Records whether messages arrive from now on. In both cases, a message was perhaps missed, so this wakes the
    /// front.
    pub(crate) fn has_messages(&mut self, has_messages: bool, now: Moment) -> Effects<O> {
        match self.messages {
            // This queue has not subscribed, so the news is about a subscription of waiters that have left.
            Messages::NotSubscribed => return Effects::wakes(Wakes::Nobody),
            Messages::Subscribed if !has_messages => return Effects::wakes(Wakes::Nobody),
            _ => {}
        }
        self.messages = if has_messages { Messages::Arrive } else { Messages::Subscribed };
        self.is_woken = true;
        if !has_messages {
            self.disturbs();
        }
        // A waiter with a place on the server attempts only when its turn comes. It need not attempt now, so nothing
        // records that it was woken.
        if self.rules.discipline != Discipline::Places {
            self.woken_at.get_or_insert(now);
        }
        Effects::wakes(Wakes::Front)
    }

    /// Whether messages about the lock reach this queue.
    pub(crate) fn gets_messages(&self) -> bool {
        self.messages == Messages::Arrive
    }

    /// Offers a hold to the front. `hold` gets two limits: how long ago, and since which moment, the server must have
    /// granted the hold. False: the hold has to be released.
    pub(crate) fn offers(
        &mut self,
        hand_over_time: Duration,
        now: Moment,
        hold: impl FnOnce(Duration, Moment) -> Option<O>,
    ) -> bool {
        let is_polled = self.woken_at.is_none_or(|at| now.since(at) < self.rules.stalled);
        // While a waiter attempts, or after a message, the server has perhaps granted the lock to another owner. Then
        // this hold is gone and must not be handed over. Several owners can have permits, so this does not matter for
        // permits.
        let (is_certain, most) = match self.rules.discipline == Discipline::Permits {
            true => (true, self.waiters.len()),
            false => (self.attempting == 0 && !self.is_disturbed, 1),
        };
        if self.is_empty() || self.unable > 0 || self.offered.len() >= most || !is_polled || !is_certain {
            return false;
        }
        let hand_over_time = if self.others_wait { hand_over_time * 2 / 5 } else { hand_over_time };
        let Some(offer) = hold(hand_over_time, self.granted_at) else { return false };
        self.offered.push(offer);
        self.offered_at = now;
        self.woken_at.get_or_insert(now);
        true
    }

    /// Keeps a hold for the waiting readers to join. They cannot join before they are polled, and the reader that has
    /// the hold perhaps releases it at once.
    pub(crate) fn keeps(&mut self, offer: O, now: Moment) -> Effects<O> {
        self.offered_at = now;
        Effects::drops(std::mem::replace(&mut self.offered, smallvec![offer]))
    }

    /// Ends all offers.
    pub(crate) fn ends_offers(&mut self) -> Effects<O> {
        self.ends()
    }

    /// Whether a hold is offered to the front.
    pub(crate) fn has_offer(&self) -> bool {
        self.rules.discipline != Discipline::Readers && !self.offered.is_empty()
    }

    /// The front takes the hold that is offered to it. Otherwise the hold is dropped: the waiter that it was meant for
    /// has left, or perhaps the hold was removed.
    pub(crate) fn takes_offer(&mut self, ticket: Ticket) -> (Option<O>, Effects<O>) {
        if !self.is_front(ticket) || !self.has_offer() {
            return (None, Effects::wakes(Wakes::Nobody));
        }
        let can_take_handoff = self.waiters.get(ticket).is_some_and(|waiter| waiter.can_take_handoff);
        if can_take_handoff && (self.rules.discipline == Discipline::Permits || !self.is_disturbed) {
            self.woken_at = self.woken_at.filter(|_| self.is_woken);
            return (self.offered.pop(), Effects::wakes(Wakes::Nobody));
        }
        (None, self.ends())
    }

    /// Takes back the offers that nobody took, if the last one was made `stalled` ago.
    pub(crate) fn takes_back(&mut self, now: Moment) -> Effects<O> {
        if now < self.offered_at.plus(self.rules.stalled) {
            Effects::wakes(Wakes::Nobody)
        } else {
            self.ends()
        }
    }

    /// Records that the server granted the lock to this client: to a waiter, or to a call outside of this queue.
    /// Returns whether a message perhaps came during the attempt. Then the hold is perhaps gone already, and the caller
    /// must remember this even after the queue has ended.
    pub(crate) fn granted_anew(&mut self, to: Option<Ticket>, at: Moment) -> bool {
        self.granted_at = at;
        let waiter = to.and_then(|ticket| self.waiters.get(ticket));
        self.is_disturbed = waiter.is_none_or(|waiter| waiter.disturbances != self.disturbances);
        self.is_disturbed
    }

    /// Records that a release of the lock is about to be sent.
    pub(crate) fn release_begins(&mut self, now: Moment) {
        self.yields_until =
            if self.others_wait { now.plus(self.rules.yield_before_reply) } else { Moment::PAST };
    }

    /// Records how the release ended. `others_wait`: whether its message reached other clients. `None`: the release
    /// released nothing, or its outcome is unknown.
    pub(crate) fn release_ended(&mut self, others_wait: Option<bool>, now: Moment) -> Effects<O> {
        self.others_wait = others_wait.unwrap_or(self.others_wait);
        self.yields_until = match others_wait {
            Some(true) => now.plus(self.rules.yield_after_release),
            _ => Moment::PAST,
        };
        Effects::wakes(Wakes::Front)
    }

    /// Whether it is known that another owner holds or held the lock.
    pub(crate) const fn is_answered(&self) -> bool {
        match &self.knowledge {
            Knowledge::Unknown => false,
            Knowledge::Held { .. } | Knowledge::Open => true,
            Knowledge::Failing { was_held, .. } => *was_held,
        }
    }

    /// Whether a new attempt would be in vain for now: another owner holds the lock.
    const fn is_closed(&self) -> bool {
        match &self.knowledge {
            Knowledge::Unknown | Knowledge::Open => false,
            Knowledge::Held { .. } => true,
            Knowledge::Failing { was_held, .. } => *was_held,
        }
    }

    /// The fault that prevents an answer.
    pub(crate) fn fault(&self) -> Option<F> {
        match &self.knowledge {
            Knowledge::Failing { fault, .. } => Some(fault.clone()),
            _ => None,
        }
    }

    /// Whether another waiter than the asking one should have attempted by now: the queue was woken, the holder's lease
    /// ended, or the last attempt was not answered within `patience`.
    pub(crate) fn is_overdue(&self, patience: Duration, now: Moment) -> bool {
        let retry_at = match &self.knowledge {
            Knowledge::Held { until } => *until,
            Knowledge::Failing { retry_at, .. } => Some(*retry_at),
            Knowledge::Unknown | Knowledge::Open => None,
        };
        if self.rules.discipline == Discipline::Places || !self.has_followers() {
            false // no other waiter attempts for this one
        } else if self.attempting > 0 {
            self.attempted_at.is_some_and(|at| now.since(at) > patience)
        } else {
            self.woken_at.is_some() || retry_at.is_some_and(|at| at < now)
        }
    }

    /// Whether the front was woken longer than `patience` ago, and did not attempt since.
    pub(crate) fn stalled_since_wake(&self, patience: Duration, now: Moment) -> bool {
        self.woken_at.is_some_and(|at| now.since(at) > patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_behind_a_front_that_nobody_polls_the_earlier_ones_attempt_first() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Permits, poll));
        let [front, second, third] = [(); 3].map(|()| machine.join(true, false, now));
        let _ = machine.attempts(front, now);
        machine.refused(front, Some(poll * 10), now);
        let later = now.plus(poll * 2);
        let mut acts = |ticket| machine.next(ticket, None, later, |time| time) == Next::Act;
        assert_eq!([second, third].map(&mut acts), [true, false]);
    }

    #[test]
    fn the_next_waiter_polls_when_one_that_left_would_have() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Exclusive, poll));
        let [first, next] = [machine.join(true, false, now), machine.join(true, false, now)];
        let _ = machine.attempts(first, now);
        machine.refused(first, None, now);
        let Next::Wait { until, .. } = machine.next(first, None, now, |time| time) else {
            panic!("it waits")
        };
        let later = until.minus(poll / 100);
        assert_eq!(machine.leaves(first).wakes, Wakes::Front);
        assert_eq!(machine.next(next, None, later, |time| time), Next::Wait { until, subscribes: true });
    }

    #[test]
    fn a_waiter_behind_others_gives_up_when_attempts_failed_for_long_enough() {
        let second = Duration::from_secs(1);
        let at = |seconds| Moment::from_nanos(1_000_000_000).plus(second * seconds);
        let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Exclusive, second));
        let [front, behind] = [machine.join(true, false, at(0)), machine.join(true, false, at(0))];
        let late = machine.join(true, false, at(9));
        let gives_up = |machine: &Machine<(), ()>, ticket, now| {
            machine.is_hopeless(ticket, second * 10, second * 2, at(now))
        };
        for now in [0, 9] {
            let _ = machine.attempts(front, at(now));
            machine.failed(front, (), second, at(now));
        }
        // Each waiter has 10 s. At 11 s, the front's last fault came 9 s after the waiters, and its next attempt has
        // begun.
        assert!(!gives_up(&machine, behind, 11));
        machine.failed(front, (), second, at(11));
        assert_eq!([front, behind, late].map(|one| gives_up(&machine, one, 12)), [false, true, false]);
        // At 20 s, the next attempt is long overdue, so the process stood still. Nobody gives up before that attempt.
        assert!(!gives_up(&machine, behind, 20));
    }

    #[test]
    fn a_second_attempt_of_one_waiter_is_no_attempt_of_another() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Exclusive, poll));
        let [front, _behind] = [machine.join(true, false, now), machine.join(true, false, now)];
        for _ in 0..2 {
            let _ = machine.attempts(front, now);
        }
        machine.refused(front, Some(poll * 10), now);
        assert!(machine.offers(poll, now, |_, _| Some(())), "nobody attempts any more");
    }

    #[test]
    fn a_hold_that_was_granted_outside_of_the_queue_is_not_offered() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Exclusive, poll));
        let _waiter = machine.join(true, false, now);
        assert!(machine.granted_anew(None, now), "nobody knows which messages came during the attempt");
        assert!(!machine.offers(poll, now, |_, _| Some(())));
    }

    /// A call was refused outside of the queue. Meanwhile one permit came back, which was not enough for the waiter in
    /// the queue.
    #[test]
    fn a_waiter_that_comes_first_asks_whether_permits_came_back_meanwhile() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        for discipline in [Discipline::Permits, Discipline::Exclusive] {
            let mut machine = Machine::<(), ()>::new(Rules::new(discipline, poll));
            let wants_two = machine.join(true, false, now);
            let _ = machine.has_messages(true, now);
            for _ in 0..2 {
                let _ = machine.wakes(now);
                let _ = machine.attempts(wants_two, now);
                machine.refused(wants_two, Some(poll * 10), now);
            }
            let first = machine.join(true, true, now);
            machine.refused(first, Some(poll * 10), now);
            assert_eq!(
                machine.next(first, None, now, |time| time) == Next::Act,
                discipline == Discipline::Permits
            );
        }
    }

    /// The time limit of a waiter behind the front has passed, so it attempts, too. It wants more permits than came
    /// back.
    #[test]
    fn an_attempt_behind_the_front_uses_up_no_wake_up_about_permits() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        for discipline in [Discipline::Permits, Discipline::Exclusive] {
            let mut machine = Machine::<(), ()>::new(Rules::new(discipline, poll));
            let [front, behind] = [machine.join(true, false, now), machine.join(true, false, now)];
            let _ = machine.attempts(front, now);
            machine.refused(front, Some(poll * 10), now);
            let _ = machine.wakes(now);
            let _ = machine.attempts(behind, now);
            machine.refused(behind, Some(poll * 10), now);
            let _ = machine.leaves(behind);
            assert_eq!(
                machine.next(front, None, now, |time| time) == Next::Act,
                discipline == Discipline::Permits
            );
        }
    }

    /// The leases of two permits end, and two waiters acquire these permits. No answer has said yet when the next lease
    /// ends.
    #[test]
    fn the_next_waiter_asks_when_the_next_permit_ends() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        for (is_known, end) in [(false, poll), (true, poll * 2)] {
            let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Permits, poll * 10));
            let [first, second, third] = [(); 3].map(|()| machine.join(true, false, now));
            let _ = machine.attempts(first, now);
            machine.refused(first, Some(end), now);
            let later = now.plus(poll);
            for (ticket, leaves_permits) in [(first, true), (second, false)] {
                let _ = machine.attempts(ticket, later);
                assert_eq!(
                    machine.leaves_with_lock(ticket, poll * 10, leaves_permits, later).wakes,
                    Wakes::Front
                );
            }
            assert_eq!(machine.next(third, None, later, |time| time) == Next::Act, !is_known);
        }
    }

    #[test]
    fn a_reader_that_is_granted_calls_all_others() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Readers, poll));
        let first = machine.join(true, false, now);
        let _ = machine.attempts(first, now);
        let others = [machine.join(true, false, now), machine.join(true, false, now)];
        let acts = |machine: &mut Machine<(), ()>| {
            others.map(|ticket| machine.next(ticket, None, now, |time| time) == Next::Act)
        };
        assert_eq!(acts(&mut machine), [false, false], "they wait for the answer");
        assert_eq!(machine.leaves_with_lock(first, poll * 10, false, now).wakes, Wakes::All);
        assert_eq!(acts(&mut machine), [true, true]);
    }

    /// Both attempts followed the call of a reader. Between them, a writer held the lock and released it.
    #[test]
    fn a_reader_that_was_refused_before_another_was_granted_acts_at_once() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Readers, poll));
        let [first, early, late] = [(); 3].map(|()| machine.join(true, false, now));
        let _ = machine.attempts(first, now);
        let _ = machine.leaves_with_lock(first, poll * 10, false, now);
        let _ = machine.attempts(early, now);
        let _ = machine.wakes(now);
        let _ = machine.attempts(late, now);
        let _ = machine.leaves_with_lock(late, poll * 10, false, now);
        machine.refused(early, Some(poll * 10), now);
        assert_eq!(machine.next(early, None, now, |time| time), Next::Act);
    }
}

#[cfg(test)]
#[path = "explorer.rs"]
mod explorer;
