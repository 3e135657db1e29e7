//! The waiters of one client for one lock, as a pure state machine. No clock, no future and no mutex: events come in with the time, and
//! what is to be done goes out as [`Effects`].
//!
//! The waiters stand in the order in which they came. The one in front attempts when the lock is perhaps free: nobody attempted before, a
//! message came, the holder's lease ended, or a poll is due. The others wait until they are in front, or give up when attempts have failed
//! for long enough. There are four exceptions, all for a front that does not act or for an answer that nobody else can find out:
//!
//! - Nobody attempted for two safety polls: perhaps the front is a future that nobody polls.
//! - A copy of the waiter's own attempt can run late, so perhaps the server grants it the lock later.
//! - Several readers can hold the lock together. A reader attempts when it comes, and when another reader was granted the lock.
//! - A reader that came during another reader's attempt waits a moment for that answer, and then attempts.
//!
//! What the client knows about the lock is [`Knowledge`], and what a waiter does is [`State`]. A wake-up belongs to the queue and not to
//! a waiter: an attempt that begins after it covers it, and if that attempt ends without an answer, the wake-up is there again.
//! Waiters for permits want different numbers of them. So there, only an attempt of the front covers a wake-up, and a call that comes to the
//! front from outside of the queue attempts once more.
//!
//! A hold that another owner of the client gives is an *offer*. The front takes it instead of attempting. There is one at a time, or of a
//! semaphore as many as waiters.

use std::collections::BTreeMap;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::base::clock::Moment;

/// A waiter. One behind another has a greater number.
pub(crate) type Ticket = i64;

/// A front that was woken so long ago and did nothing is perhaps a future that nobody polls.
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
    /// A lock with a queue on the server: the waiter has a place there, and a heartbeat that tells it when its turn has come.
    Places,
}

/// Distinguishes queues, and has the times that a configuration sets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    pub(crate) discipline: Discipline,
    /// How often the front attempts by itself while messages arrive.
    pub(crate) poll: Duration,
    /// The same while none arrive.
    pub(crate) poll_without_messages: Duration,
    /// The waiters behind attempt if nobody did so for this time.
    pub(crate) overlooked: Duration,
    /// Of those that are overlooked, each attempts so much later than the one before it.
    pub(crate) turn: Duration,
    /// How long a reader waits for the answer to another reader's attempt.
    pub(crate) answer: Duration,
    /// [`STALLED`]
    pub(crate) stalled: Duration,
    /// After a release for other clients, the waiters here do not attempt for this time. Otherwise the client that releases mostly wins,
    /// because it needs no message.
    pub(crate) yield_after_release: Duration,
    /// The same while the release is under way: a message can be faster than the reply.
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
    /// Another owner holds it, at most until then, if the time is known.
    Held { until: Option<Moment> },
    /// Several owners can hold it together, and a waiter of this queue was granted it.
    Open,
    /// The attempts fail since then, the last one at `failed_at`. The next one comes after a pause.
    Failing { since: Moment, failed_at: Moment, retry_at: Moment, fault: F, was_held: bool },
}

/// What one waiter does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Waiting,
    /// A reader that came when the lock was perhaps free. It attempts without waiting for the front.
    First,
    /// A reader that waits for the answer to another reader's attempt until then, unless there were more answers than this.
    ForAnswer {
        until: Moment,
        answers: u64,
    },
    Attempting,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    state: State,
    /// It can take a hold of another owner.
    can_take_handoff: bool,
    /// When it attempts again although others stand in front of it: a copy of its attempt can run late.
    attempt_by: Option<Moment>,
    /// The calls to all waiters that it has followed.
    calls: u64,
    /// The messages that had come when its attempt began.
    disturbances: u64,
    joined_at: Moment,
}

/// The waiters in their order. The one in front stands apart, because mostly there is no other.
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

    /// How many stand between a waiter and the front, or [`MOST_TURNS`].
    fn place(&self, ticket: Ticket) -> u32 {
        let before = self.behind.range(..ticket).take(MOST_TURNS).count();
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
    /// It attempts, or takes the offer.
    Act,
    /// It waits until then, or until it is woken. `subscribes`: it needs messages.
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

/// What is to be done after an event. Offers are dropped, and with that released, when no mutex is locked.
#[must_use]
#[derive(Debug)]
pub(crate) struct Effects<O> {
    pub(crate) wakes: Wakes,
    pub(crate) dropped: Offers<O>,
}

/// Holds of this client.
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
    /// Waiters that cannot take a hold of another owner. The order is first come, first served, so while there is one, nothing is
    /// handed over.
    unable: usize,
    knowledge: Knowledge<F>,
    messages: Messages,
    /// The lock is perhaps free, and no waiter has begun an attempt since.
    is_woken: bool,
    /// Since when. `None` for a wake-up that is no news of the lock.
    woken_at: Option<Moment>,
    /// When an attempt last began while others waited.
    attempted_at: Option<Moment>,
    /// When the front attempts by itself, once it has begun to wait. It belongs to the queue: if waiters came to the front and left again,
    /// and each counted anew, nobody would attempt.
    polls_at: Option<Moment>,
    /// Counts the calls to all readers.
    calls: u64,
    /// Counts the refusals.
    answers: u64,
    /// Holds of this client: for the front to take, or for the readers here to join.
    offered: Offers<O>,
    /// When a hold was last offered.
    offered_at: Moment,
    /// When the server last granted the lock to this client. Holds of an earlier grant are gone.
    granted_at: Moment,
    /// A message came, or perhaps one was missed, since the server granted the lock to this client: perhaps its hold was removed.
    is_disturbed: bool,
    /// Counts these messages.
    disturbances: u64,
    /// The message about the last release reached other clients.
    others_wait: bool,
    /// Until then, other clients come first.
    yields_until: Moment,
}

/// Nobody counts further than this. Those behind have the same turn.
const MOST_TURNS: usize = 100;

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

    // --- waiters -------------------------------------------------------------------------------------------------------

    /// A waiter comes: behind all others, or before them, if its call began when nobody waited.
    pub(crate) fn join(&mut self, can_take_handoff: bool, comes_first: bool, now: Moment) -> Ticket {
        let state = match self.rules.discipline == Discipline::Readers && !self.is_closed() {
            // A reader shares what another reader is granted.
            true if can_take_handoff && self.attempting > 0 => {
                State::ForAnswer { until: now.plus(self.rules.answer), answers: self.answers }
            }
            true => State::First,
            false => State::Waiting,
        };
        let waiter = Waiter {
            state,
            can_take_handoff,
            attempt_by: None,
            calls: self.calls,
            disturbances: 0,
            joined_at: now,
        };
        let ticket = match self.front() {
            Some(front) if comes_first => {
                // It was refused before it came here. Since then, others can have used up a message about permits, because they want
                // more than came back.
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

    /// What a waiter does next. `by`: when it attempts at the latest, if it is in front. `around`: draws a time near this one.
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
        // A waiter that only yields knows already what it waits for.
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
            _ if self.rules.discipline == Discipline::Places => None, // its heartbeat tells it
            Messages::Arrive => Some(self.rules.poll),
            _ => Some(self.rules.poll_without_messages.min(self.rules.poll)),
        };
        let Some(waiter) = self.waiters.get_mut(ticket) else { return NEVER };
        if waiter.attempt_by.is_some() {
            return now; // perhaps it has the lock already
        }
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

    /// When a waiter behind others attempts.
    fn acts_at(&self, ticket: Ticket) -> Moment {
        let joined_at = self.waiters.get(ticket).map_or(NEVER, |waiter| waiter.joined_at);
        // The earlier ones attempt first. Otherwise a later one that wants more permits could always be the first, and be refused.
        let turn = self.rules.turn * self.waiters.place(ticket);
        let overlooked = self.attempted_at.unwrap_or(joined_at).plus(self.rules.overlooked + turn);
        self.own_time(ticket).min(overlooked)
    }

    /// When a waiter attempts wherever it stands.
    fn own_time(&self, ticket: Ticket) -> Moment {
        let Some(waiter) = self.waiters.get(ticket) else { return NEVER };
        let for_answer = match waiter.state {
            State::First => return Moment::PAST,
            _ if waiter.calls != self.calls => return Moment::PAST,
            State::ForAnswer { until, answers } if answers == self.answers => until,
            _ => NEVER,
        };
        waiter.attempt_by.unwrap_or(NEVER).min(for_answer)
    }

    /// A waiter begins an attempt.
    pub(crate) fn attempts(&mut self, ticket: Ticket, now: Moment) -> Effects<O> {
        // It could not take this offer, or join this hold. What it is granted says nothing about other permits that are offered.
        let is_for_it = self.rules.discipline == Discipline::Readers
            || (self.is_front(ticket) && self.rules.discipline != Discipline::Permits);
        let dropped = if is_for_it { std::mem::take(&mut self.offered) } else { Offers::new() };
        let (calls, disturbances) = (self.calls, self.disturbances);
        if let Some(waiter) = self.waiters.get_mut(ticket) {
            // One whose time is up in the middle of an attempt attempts once more.
            self.attempting += usize::from(waiter.state != State::Attempting);
            waiter.state = State::Attempting;
            waiter.attempt_by = None;
            waiter.calls = calls;
            waiter.disturbances = disturbances;
        }
        if self.is_front(ticket) {
            self.polls_at = None;
        }
        // A waiter behind the front perhaps wants more permits than came back, and the front fewer.
        if self.is_front(ticket) || self.rules.discipline != Discipline::Permits {
            (self.is_woken, self.woken_at) = (false, None);
        }
        self.attempted_at = (self.waiters.len() > 1).then_some(now);
        Effects::drops(dropped)
    }

    /// An attempt was refused: another owner holds the lock. Its lease lasts at most for the time `left`, if that is known.
    /// `may_run_late`: a copy of an attempt can still run.
    pub(crate) fn refused(
        &mut self,
        ticket: Ticket,
        left: Option<Duration>,
        may_run_late: bool,
        now: Moment,
    ) {
        self.ends_attempt(ticket, may_run_late.then(|| now.plus(self.rules.poll)));
        self.is_held(left, now);
    }

    /// An attempt failed. Attempts go on after a pause.
    pub(crate) fn failed(
        &mut self,
        ticket: Ticket,
        fault: F,
        pause: Duration,
        may_run_late: bool,
        now: Moment,
    ) {
        let retry_at = now.plus(pause);
        self.ends_attempt(ticket, may_run_late.then_some(retry_at));
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

    /// Whether a waiter behind others gives up: attempts have been failing for longer than `most` since it came, and the next one was due less
    /// than `patience` ago. If each waited for its own attempt, the last of a thousand would learn of the fault after as many attempts.
    pub(crate) fn is_hopeless(
        &self,
        ticket: Ticket,
        most: Duration,
        patience: Duration,
        now: Moment,
    ) -> bool {
        let Knowledge::Failing { failed_at, retry_at, .. } = &self.knowledge else { return false };
        // Until the last fault, and not until now: an attempt that is under way can succeed.
        !self.is_front(ticket) && self.failing(ticket, *failed_at) > most && now.since(*retry_at) < patience
    }

    fn ends_attempt(&mut self, ticket: Ticket, again_at: Option<Moment>) {
        // The front attempts again anyway.
        let attempt_by = again_at.filter(|_| !self.is_front(ticket));
        if let Some(waiter) = self.waiters.get_mut(ticket) {
            if waiter.state == State::Attempting {
                self.attempting -= 1;
            }
            waiter.state = State::Waiting;
            waiter.attempt_by = attempt_by;
        }
    }

    fn is_held(&mut self, left: Option<Duration>, now: Moment) {
        self.knowledge = Knowledge::Held { until: left.map(|left| now.plus(left)) };
        self.answers += 1;
    }

    /// A waiter leaves with the lock, which it has for this lease. `leaves_permits`: the next waiter can be granted permits, too.
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
                // Those whose attempts are under way perhaps asked before this grant, and are refused after it.
                self.calls += u64::from(self.attempting > 0);
                return Effects::wakes(Wakes::Front);
            }
            // All waiters can be granted the lock, too.
            self.knowledge = Knowledge::Open;
            self.calls += 1;
            return Effects::wakes(Wakes::All);
        }
        if self.rules.discipline == Discipline::Permits {
            // The lease of another owner perhaps ends before this one. If nobody knows when, the next waiter asks.
            let left = match self.knowledge {
                Knowledge::Held { until: Some(until) } if until > now => Some(lease.min(until.since(now))),
                _ => None,
            };
            self.is_held(left, now);
            self.is_woken |= leaves_permits || left.is_none();
            return Effects::wakes(Wakes::Front);
        }
        self.is_held(Some(lease), now);
        // The server granted the lock anew, so it does not have the hold any more that is offered here.
        let dropped = if was_attempting { std::mem::take(&mut self.offered) } else { Offers::new() };
        Effects { wakes: Wakes::Front, dropped }
    }

    /// A waiter leaves without the lock.
    pub(crate) fn leaves(&mut self, ticket: Ticket) -> Effects<O> {
        // Perhaps it wanted more permits than were available, and the next waiter wants fewer.
        let wanted_more = self.rules.discipline == Discipline::Permits && self.is_front(ticket);
        if self.remove(ticket) == Some(State::Attempting) || wanted_more {
            // The wake-up that led to its attempt.
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

    /// Whether others wait than one.
    pub(crate) fn has_followers(&self) -> bool {
        self.waiters.len() > 1
    }

    // --- messages ------------------------------------------------------------------------------------------------------

    /// The lock is perhaps free.
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

    /// The queue is subscribed. False: it was already.
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

    /// Messages arrive from now on, or do not arrive any more. In both cases, a message was perhaps missed.
    pub(crate) fn has_messages(&mut self, has_messages: bool, now: Moment) -> Effects<O> {
        match self.messages {
            // About a subscription of waiters that have left.
            Messages::NotSubscribed => return Effects::wakes(Wakes::Nobody),
            Messages::Subscribed if !has_messages => return Effects::wakes(Wakes::Nobody),
            _ => {}
        }
        self.messages = if has_messages { Messages::Arrive } else { Messages::Subscribed };
        self.is_woken = true;
        if !has_messages {
            self.disturbs();
        }
        // A waiter with a place on the server attempts only when its turn comes. It need not attempt now, so nothing records that
        // it was woken.
        if self.rules.discipline != Discipline::Places {
            self.woken_at.get_or_insert(now);
        }
        Effects::wakes(Wakes::Front)
    }

    /// Whether a message wakes a waiter of this client, too.
    pub(crate) fn gets_messages(&self) -> bool {
        self.messages == Messages::Arrive
    }

    // --- other owners of this client -----------------------------------------------------------------------------------

    /// Puts a hold here, for the front to take. `hold` gets the time for which holds are handed over, and the moment from which on the
    /// server must have granted it. False: it is to be released.
    pub(crate) fn offers(
        &mut self,
        hand_over_time: Duration,
        now: Moment,
        hold: impl FnOnce(Duration, Moment) -> Option<O>,
    ) -> bool {
        let is_polled = self.woken_at.is_none_or(|at| now.since(at) < self.rules.stalled);
        // While somebody attempts, or after a message, the server has perhaps granted the lock anew. Permits are granted beside others.
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

    /// Keeps a hold for the readers that wait here, so that they can join it. They cannot join before they are polled, and perhaps the
    /// reader that has it releases at once.
    pub(crate) fn keeps(&mut self, offer: O, now: Moment) -> Effects<O> {
        self.offered_at = now;
        Effects::drops(std::mem::replace(&mut self.offered, smallvec![offer]))
    }

    /// Ends what is offered.
    pub(crate) fn ends_offers(&mut self) -> Effects<O> {
        self.ends()
    }

    /// Whether a hold is offered to the front.
    pub(crate) fn has_offer(&self) -> bool {
        self.rules.discipline != Discipline::Readers && !self.offered.is_empty()
    }

    /// The front takes the hold that is offered to it. Otherwise the hold is dropped: the waiter that it was meant for has left, or
    /// perhaps the hold was removed.
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

    /// Takes back what nobody took, if no hold was offered for a while.
    pub(crate) fn takes_back(&mut self, now: Moment) -> Effects<O> {
        if now < self.offered_at.plus(self.rules.stalled) {
            Effects::wakes(Wakes::Nobody)
        } else {
            self.ends()
        }
    }

    /// The server granted the lock to this client: to a waiter, or to a call that does not stand in this queue. Returns whether a message
    /// perhaps came during the attempt: then the hold is perhaps gone already, also when this queue has ended.
    pub(crate) fn granted_anew(&mut self, to: Option<Ticket>, at: Moment) -> bool {
        self.granted_at = at;
        let waiter = to.and_then(|ticket| self.waiters.get(ticket));
        self.is_disturbed = waiter.is_none_or(|waiter| waiter.disturbances != self.disturbances);
        self.is_disturbed
    }

    /// The lock is about to be released on the server.
    pub(crate) fn release_begins(&mut self, now: Moment) {
        self.yields_until =
            if self.others_wait { now.plus(self.rules.yield_before_reply) } else { Moment::PAST };
    }

    /// The release ended. `others_wait`: its message reached other clients. `None`: it released nothing, or that is not certain.
    pub(crate) fn release_ended(&mut self, others_wait: Option<bool>, now: Moment) -> Effects<O> {
        self.others_wait = others_wait.unwrap_or(self.others_wait);
        self.yields_until = match others_wait {
            Some(true) => now.plus(self.rules.yield_after_release),
            _ => Moment::PAST,
        };
        Effects::wakes(Wakes::Front)
    }

    // --- questions of calls with a time limit --------------------------------------------------------------------------

    /// Whether it is known that another owner holds or held the lock.
    pub(crate) const fn is_answered(&self) -> bool {
        match &self.knowledge {
            Knowledge::Unknown => false,
            Knowledge::Held { .. } | Knowledge::Open => true,
            Knowledge::Failing { was_held, .. } => *was_held,
        }
    }

    /// Whether there is nothing to attempt for now.
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

    /// Whether another waiter than the one that asks should have attempted by now: the queue was woken, the lease of the holder
    /// ended, or the answer to the last attempt did not come within `patience`.
    pub(crate) fn is_overdue(&self, patience: Duration, now: Moment) -> bool {
        let retry_at = match &self.knowledge {
            Knowledge::Held { until } => *until,
            Knowledge::Failing { retry_at, .. } => Some(*retry_at),
            Knowledge::Unknown | Knowledge::Open => None,
        };
        if self.rules.discipline == Discipline::Places || !self.has_followers() {
            false // there is nobody else
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
    fn a_waiter_behind_others_attempts_again_while_a_copy_can_run_late() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        for may_run_late in [true, false] {
            let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Exclusive, poll));
            let [_front, behind] = [machine.join(true, false, now), machine.join(true, false, now)];
            let _ = machine.attempts(behind, now);
            machine.refused(behind, Some(poll * 10), may_run_late, now);
            let until = now.plus(if may_run_late { poll } else { poll * 2 });
            assert_eq!(machine.next(behind, None, now, |time| time), Next::Wait { until, subscribes: false });
        }
    }

    #[test]
    fn of_those_behind_a_front_that_nobody_polls_the_earlier_ones_attempt_first() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Permits, poll));
        let [front, second, third] = [(); 3].map(|()| machine.join(true, false, now));
        let _ = machine.attempts(front, now);
        machine.refused(front, Some(poll * 10), false, now);
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
        machine.refused(first, None, false, now);
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
            machine.failed(front, (), second, false, at(now));
        }
        // The attempt after that is under way.
        assert!(!gives_up(&machine, behind, 11));
        machine.failed(front, (), second, false, at(11));
        assert_eq!([front, behind, late].map(|one| gives_up(&machine, one, 12)), [false, true, false]);
        // After that, the process stood still.
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
        machine.refused(front, Some(poll * 10), false, now);
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

    /// It was refused outside of the queue. Meanwhile a permit came back, which was too few for the waiter in the queue.
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
                machine.refused(wants_two, Some(poll * 10), false, now);
            }
            let first = machine.join(true, true, now);
            machine.refused(first, Some(poll * 10), false, now);
            assert_eq!(
                machine.next(first, None, now, |time| time) == Next::Act,
                discipline == Discipline::Permits
            );
        }
    }

    /// The time of a waiter behind the front is up, so it attempts, too. It wants more permits than came back.
    #[test]
    fn an_attempt_behind_the_front_uses_up_no_wake_up_about_permits() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        for discipline in [Discipline::Permits, Discipline::Exclusive] {
            let mut machine = Machine::<(), ()>::new(Rules::new(discipline, poll));
            let [front, behind] = [machine.join(true, false, now), machine.join(true, false, now)];
            let _ = machine.attempts(front, now);
            machine.refused(front, Some(poll * 10), false, now);
            let _ = machine.wakes(now);
            let _ = machine.attempts(behind, now);
            machine.refused(behind, Some(poll * 10), false, now);
            let _ = machine.leaves(behind);
            assert_eq!(
                machine.next(front, None, now, |time| time) == Next::Act,
                discipline == Discipline::Permits
            );
        }
    }

    /// The leases of two permits end, and two waiters take these permits. When the next lease ends was not said yet.
    #[test]
    fn the_next_waiter_asks_when_the_next_permit_ends() {
        let (now, poll) = (Moment::from_nanos(1_000_000_000), Duration::from_secs(3));
        for (is_known, end) in [(false, poll), (true, poll * 2)] {
            let mut machine = Machine::<(), ()>::new(Rules::new(Discipline::Permits, poll * 10));
            let [first, second, third] = [(); 3].map(|()| machine.join(true, false, now));
            let _ = machine.attempts(first, now);
            machine.refused(first, Some(end), false, now);
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
        machine.refused(early, Some(poll * 10), false, now);
        assert_eq!(machine.next(early, None, now, |time| time), Next::Act);
    }
}

#[cfg(test)]
#[path = "explorer.rs"]
mod explorer;
