//! The calls of one client that wait for one lock, as a pure state machine. No clock, no future and no mutex: events come in with the
//! time, and what is to be done goes out as [`Effects`].
//!
//! **A waiting call sends no commands.** The task of the line attempts for all of them, one attempt at a time, and [`State::step`] says
//! what it does next. What the server grants is *open*:
//!
//! - An exclusive hold is offered to the first call that is awake, if the hold has its terms. After [`STALLED`] without a taker, twice
//!   as many calls can take it, and so on. If nobody is left, it is released after [`KEPT`].
//! - A read hold is open to all who can share it, until those who were woken have joined, or for [`KEPT`].
//!
//! A call is awake while it has a waker. A call that was woken and not polled since is asleep: the line does nothing for it. So a future
//! that nobody polls delays others once, and needs no flag.

use std::collections::BTreeMap;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::clock::Moment;

/// The number of a call in its line. Those behind it have greater ones.
pub(crate) type Ticket = u64;

/// How long a call may take to take what it was woken for, before others can have it.
pub(crate) const STALLED: Duration = Duration::from_millis(10);

/// If nobody else can have it, it is kept for this time: the runtime of a call is perhaps busy.
pub(crate) const KEPT: Duration = Duration::from_millis(100);

/// After a release whose message reached other clients, the line does not ask for this time. Otherwise this client would mostly win,
/// because it needs no message.
const YIELD: Duration = Duration::from_millis(1);

/// The line yields for this time while the release is under way: a message can be faster than the reply.
const YIELD_BEFORE_REPLY: Duration = Duration::from_millis(10);

/// How often the line asks by itself while no messages arrive.
const POLL_WITHOUT_MESSAGES: Duration = Duration::from_millis(250);

/// Longer than any wait.
const NEVER: Moment = Moment::from_nanos(u64::MAX);

/// What the calls of a line wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A lock that one owner holds.
    Exclusive,
    /// A lock that several owners can hold together.
    Readers,
    /// Permits of a semaphore.
    Permits,
    /// The turn in the queue of the server. Each such call has a line of its own, and a heartbeat says when its turn has come.
    Place,
}

/// How a call wants to hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// How many permits.
    pub(crate) count: u32,
    /// Holds of other owners of this client serve the call, too.
    pub(crate) is_usual: bool,
    /// How long a read hold stays for readers that come later.
    pub(crate) linger: Option<Duration>,
}

/// What the client knows about the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Knowledge<E> {
    Unknown,
    /// Another owner holds the lock, at most until then, if the time is known.
    Held {
        until: Option<Moment>,
    },
    /// Attempts have been failing since then. The next one comes at `retry_at`.
    Failing {
        since: Moment,
        retry_at: Moment,
        error: E,
        was_held: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter<W, E> {
    terms: Terms,
    arrived: Moment,
    /// For how long attempts may fail before the call gives up. `None`: the call has a time limit.
    patience: Option<Duration>,
    waker: Option<W>,
    /// Why the call ends.
    error: Option<E>,
    /// A read hold was opened that the call has not tried to join.
    joins: bool,
}

/// A hold that calls can have without a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Open<O> {
    hold: O,
    terms: Terms,
    /// A read hold: all who can share it join, and nobody takes it.
    is_shared: bool,
    /// The calls before this one can take it.
    end: Ticket,
    /// How many calls it reached last. Of a read hold: how many readers were woken, and have not joined yet.
    size: usize,
    /// When it was opened, and when it reached the last calls.
    opened: Moment,
    since: Moment,
}

/// Whether messages about the lock arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Messages {
    NotSubscribed,
    Subscribed,
    Arrive,
}

/// What the task of a line does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<O> {
    /// Nobody stands in the line.
    End,
    /// Waits until then, or until it is woken. `subscribes`: the line needs messages.
    Wait { until: Moment, subscribes: bool },
    /// Attempts to acquire a hold with these terms.
    Attempt(Terms),
    /// Releases a hold that nobody took.
    Release(O),
}

/// What a call finds when it is polled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Polled<O, E> {
    Ends(E),
    Takes(O),
    /// Tries to join the readers of this client.
    Joins,
}

type Opened<O> = SmallVec<[O; 1]>;

/// What has to be done after an event, with no mutex locked: to wake and to drop can run any code.
#[must_use]
#[derive(Debug)]
pub(crate) struct Effects<O, W> {
    pub(crate) wakes: SmallVec<[W; 1]>,
    pub(crate) drops: Opened<O>,
    /// A waker of no more use.
    pub(crate) old: Option<W>,
    /// The task looks again.
    pub(crate) wakes_task: bool,
}

impl<O, W> Default for Effects<O, W> {
    fn default() -> Self {
        Self { wakes: SmallVec::new(), drops: Opened::new(), old: None, wakes_task: false }
    }
}

impl<O, W> Effects<O, W> {
    fn wake_task() -> Self {
        Self { wakes_task: true, ..Self::default() }
    }
}

/// `O`: a hold that can be had. `W`: wakes a call. `E`: why a call ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<O, W, E> {
    kind: Kind,
    /// How often the line asks by itself while messages arrive.
    poll: Duration,
    waiting: BTreeMap<Ticket, Waiter<W, E>>,
    next_ticket: Ticket,
    /// Several only of permits.
    open: SmallVec<[Open<O>; 1]>,
    /// A reader attempts beside the line. Readers that come meanwhile wait for its answer.
    is_asking: bool,
    /// The task attempts.
    is_attempting: bool,
    knowledge: Knowledge<E>,
    messages: Messages,
    /// The lock is perhaps free, and no attempt has begun since.
    is_news: bool,
    polls_at: Moment,
    /// Holds that were granted before are perhaps gone: then a message came, or the server granted this client a newer one.
    fresh_since: Moment,
    /// The message about the last release reached other clients.
    others_wait: bool,
    /// Until then, other clients come first.
    yields_until: Moment,
    /// When the task looks at the line, if nothing wakes it.
    looks_at: Moment,
}

impl<O, W, E: Clone> State<O, W, E> {
    pub(crate) fn new(kind: Kind, poll: Duration) -> Self {
        Self {
            kind,
            poll,
            waiting: BTreeMap::new(),
            next_ticket: 0,
            open: SmallVec::new(),
            is_asking: false,
            is_attempting: false,
            knowledge: Knowledge::Unknown,
            messages: Messages::NotSubscribed,
            is_news: false,
            polls_at: NEVER,
            fresh_since: Moment::PAST,
            others_wait: false,
            yields_until: Moment::PAST,
            looks_at: NEVER,
        }
    }

    /// Adds a call at the end. It stands there until it leaves.
    pub(crate) fn stand(&mut self, terms: Terms, patience: Option<Duration>, now: Moment) -> Ticket {
        let joins = self.kind == Kind::Readers && terms.is_usual;
        let waiter = Waiter { terms, arrived: now, patience, waker: None, error: None, joins };
        self.waiting.insert(self.next_ticket, waiter);
        self.next_ticket += 1;
        self.next_ticket - 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the line is of no use to anybody.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty() && !self.is_asking
    }

    /// Records that a reader attempts beside the line. False: it has to stand in the line, because others wait or attempt.
    pub(crate) fn asks(&mut self) -> bool {
        let asks = self.waiting.is_empty() && !self.is_asking;
        self.is_asking |= asks;
        asks
    }

    /// Records that the attempt of that reader has ended.
    pub(crate) fn asked(&mut self) -> Effects<O, W> {
        self.is_asking = false;
        Effects::wake_task()
    }

    /// A call looks for what it waits for. `None`: it waits on, and `waker` wakes it.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: W) -> (Option<Polled<O, E>>, Effects<O, W>) {
        let mut effects = Effects::default();
        let waiter = self.waiting.get_mut(&ticket);
        let is_for_it = |open: &Open<O>, terms| !open.is_shared && ticket < open.end && open.terms == terms;
        let found = waiter.and_then(|waiter| {
            if let Some(error) = waiter.error.take() {
                return Some(Polled::Ends(error));
            }
            if std::mem::take(&mut waiter.joins) {
                return Some(Polled::Joins);
            }
            let index = self.open.iter().position(|open| is_for_it(open, waiter.terms))?;
            Some(Polled::Takes(self.open.remove(index).hold))
        });
        if found.is_some() {
            effects.old = Some(waker); // dropped with nothing locked
            return (found, effects);
        }
        self.is_not_awaited(ticket);
        let Some(waiter) = self.waiting.get_mut(&ticket) else { return (None, effects) };
        // Perhaps the task sleeps, because nobody was awake.
        effects.wakes_task = waiter.waker.is_none();
        effects.old = waiter.waker.replace(waker);
        (None, effects)
    }

    /// A reader that the open read hold woke has joined it, could not, or leaves.
    fn is_not_awaited(&mut self, ticket: Ticket) {
        let was_woken =
            self.waiting.get(&ticket).is_some_and(|waiter| waiter.terms.is_usual && waiter.waker.is_none());
        if let Some(open) = self.open.iter_mut().find(|open| open.is_shared && was_woken && ticket < open.end)
        {
            open.size = open.size.saturating_sub(1);
        }
    }

    /// Removes a call.
    pub(crate) fn leaves(&mut self, ticket: Ticket) -> Effects<O, W> {
        let mut effects = Effects::default();
        // The first one perhaps wanted more permits than there were, and the next one wants fewer.
        let was_first = !self.waiting.range(..ticket).any(|(_, waiter)| waiter.waker.is_some());
        self.is_news |= was_first && self.kind == Kind::Permits;
        self.is_not_awaited(ticket);
        effects.old = self.waiting.remove(&ticket).and_then(|waiter| waiter.waker);
        for index in (0..self.open.len()).rev() {
            let Open { end, is_shared, .. } = self.open[index];
            if !is_shared
                && ticket < end
                && !self.offers_to(index, 1, &mut effects)
                && self.waiting.range(..end).next().is_none()
            {
                effects.drops.push(self.open.remove(index).hold);
            }
        }
        effects.wakes_task = self.is_news || !effects.drops.is_empty() || self.waiting.is_empty();
        effects
    }

    /// Lets so many more calls take an open hold. False: there is none that is awake and has its terms.
    fn offers_to(&mut self, index: usize, size: usize, effects: &mut Effects<O, W>) -> bool {
        let begin = self.open.iter().map(|open| open.end).max().unwrap_or_default();
        let open = &mut self.open[index];
        let awake = self.waiting.range_mut(begin..).filter(|(_, waiter)| waiter.waker.is_some());
        for (ticket, waiter) in awake.take(size) {
            if waiter.terms != open.terms {
                break;
            }
            open.end = ticket + 1;
            effects.wakes.extend(waiter.waker.take());
        }
        open.end > begin
    }

    /// Whether another hold can be opened.
    fn can_open(&self) -> bool {
        self.open.is_empty() || self.kind == Kind::Permits
    }

    /// Offers an exclusive hold. Returns it if nobody can take it.
    pub(crate) fn offers(&mut self, hold: O, terms: Terms, now: Moment) -> (Option<O>, Effects<O, W>) {
        let mut effects = Effects::default();
        if !self.can_open() {
            return (Some(hold), effects);
        }
        // While holds go round, the task looks once in this time.
        effects.wakes_task = self.looks_at > now.plus(STALLED);
        self.open.push(Open { hold, terms, is_shared: false, end: 0, size: 1, opened: now, since: now });
        let is_offered = self.offers_to(self.open.len() - 1, 1, &mut effects);
        let left = if is_offered { None } else { self.open.pop().map(|open| open.hold) };
        (left, effects)
    }

    /// Records that the server granted a reader of this client the lock, so others can have it, too. `hold`: opens it to all who wait.
    pub(crate) fn opens(&mut self, hold: Option<O>, terms: Terms, now: Moment) -> Effects<O, W> {
        self.is_news = true;
        let Some(hold) = hold else { return Effects::wake_task() };
        if self.waiting.is_empty() {
            return Effects { drops: [hold].into(), ..Effects::default() };
        }
        let drops = self.open.drain(..).map(|open| open.hold).collect();
        let sharing = self.waiting.values_mut().filter(|waiter| waiter.terms.is_usual);
        let wakes: SmallVec<_> = sharing
            .filter_map(|waiter| {
                waiter.joins = true;
                waiter.waker.take()
            })
            .collect();
        let (end, size) = (self.next_ticket, wakes.len());
        self.open.push(Open { hold, terms, is_shared: true, end, size, opened: now, since: now });
        Effects { wakes, drops, old: None, wakes_task: true }
    }

    /// Whether an owner can pass its hold on instead of releasing it. Returns how old the hold may be, of this time, and since when it
    /// must have been granted.
    pub(crate) fn takes_over(&self, terms: Terms, time: Duration) -> Option<(Duration, Moment)> {
        // While an attempt is under way, the server has perhaps granted it, and then the hold is gone. Permits are many.
        let is_certain = !self.is_attempting || self.kind == Kind::Permits;
        let is_wanted = self.front().is_some_and(|front| front.terms == terms);
        let time = if self.others_wait { time * 2 / 5 } else { time };
        let since = if self.kind == Kind::Permits { Moment::PAST } else { self.fresh_since };
        (is_certain && is_wanted && self.can_open()).then_some((time, since))
    }

    /// The first call that is awake.
    fn front(&self) -> Option<&Waiter<W, E>> {
        self.waiting.values().find(|waiter| waiter.waker.is_some())
    }

    /// Decides what the task does. `by`: when it asks at the latest.
    pub(crate) fn step(&mut self, by: Option<Moment>, now: Moment) -> (Step<O>, Effects<O, W>) {
        self.is_attempting = false; // only the task attempts, and now it looks
        let (step, effects) = self.next(by, now);
        self.looks_at = if let Step::Wait { until, .. } = step { until } else { NEVER };
        (step, effects)
    }

    fn next(&mut self, by: Option<Moment>, now: Moment) -> (Step<O>, Effects<O, W>) {
        let mut effects = Effects::default();
        let wait = |until| Step::Wait { until, subscribes: false };
        if let Some(index) = (0..self.open.len()).min_by_key(|index| self.open[*index].since) {
            let open = &mut self.open[index];
            let end = open.since.plus(STALLED);
            if open.is_shared {
                let kept = open.opened.plus(KEPT);
                if now < kept && open.size > 0 {
                    return (wait(kept), effects);
                }
                return (Step::Release(self.open.remove(index).hold), effects);
            }
            if now < end {
                return (wait(end), effects);
            }
            let (size, kept) = (open.size * 2, open.opened.plus(KEPT));
            if self.offers_to(index, size, &mut effects) {
                (self.open[index].size, self.open[index].since) = (size, now);
                return (wait(now.plus(STALLED)), effects);
            }
            if now < kept && self.front().is_none() {
                return (wait(kept), effects);
            }
            return (Step::Release(self.open.remove(index).hold), effects);
        }
        let Some(front) = self.front() else {
            let step = if self.waiting.is_empty() { Step::End } else { wait(NEVER) };
            return (step, effects);
        };
        let asked = front.arrived.plus(STALLED);
        if self.is_asking && now < asked {
            return (wait(asked), effects);
        }
        let terms = front.terms;
        self.is_asking = false; // perhaps nobody polls that reader, and the next one does not wait for it
        let at = match &self.knowledge {
            _ if self.is_news => Moment::PAST,
            Knowledge::Unknown => Moment::PAST,
            Knowledge::Held { until } => until.unwrap_or(NEVER).min(self.polls_at).min(by.unwrap_or(NEVER)),
            Knowledge::Failing { retry_at, .. } => *retry_at,
        };
        let until = at.max(self.yields_until);
        if until > now {
            // Right after `yields_until` it asks, and needs no messages.
            let subscribes = at > now && self.messages == Messages::NotSubscribed;
            return (Step::Wait { until, subscribes }, effects);
        }
        (self.is_attempting, self.is_news) = (true, false);
        (Step::Attempt(terms), effects)
    }

    /// Records that the task has ended, whatever became of its attempt. Returns what is open.
    pub(crate) fn task_ends(&mut self) -> Opened<O> {
        self.is_attempting = false;
        self.open.drain(..).map(|open| open.hold).collect()
    }

    /// Records that the server granted the task a hold with this lease, at `now`. `leaves_permits`: more permits are free.
    pub(crate) fn granted(&mut self, lease: Duration, leaves_permits: bool, now: Moment) {
        self.is_attempting = false;
        self.fresh_since = now;
        let left = match self.kind {
            Kind::Exclusive => Some(lease),
            // The next permit comes back when the first lease ends: this one, or that of another owner. If the line does not know the
            // other lease, it asks.
            Kind::Permits => match self.knowledge {
                Knowledge::Held { until: Some(until) } if until > now => Some(lease.min(until.since(now))),
                _ => None,
            },
            // Who cannot share this hold can have one beside it. And if the call with a place takes its hold too late, no message comes:
            // its place is gone.
            Kind::Readers | Kind::Place => None,
        };
        self.is_news |= leaves_permits || left.is_none();
        self.is_held(left, now, |poll| poll);
    }

    /// Records that the server granted a call of this client the lock, which asked at `sent` beside the line. Returns whether its hold is
    /// perhaps gone already.
    pub(crate) fn granted_beside(&mut self, sent: Moment, now: Moment) -> bool {
        let is_perhaps_gone = self.fresh_since >= sent || self.is_attempting;
        self.fresh_since = now;
        is_perhaps_gone
    }

    /// Records that another owner holds the lock. Its lease lasts at most for `left`, if the time is known. `jitter`: draws a time that
    /// is not longer.
    pub(crate) fn is_held(
        &mut self,
        left: Option<Duration>,
        now: Moment,
        jitter: impl FnOnce(Duration) -> Duration,
    ) {
        self.knowledge = Knowledge::Held { until: left.map(|left| now.plus(left)) };
        let poll = match self.messages {
            Messages::Arrive => self.poll,
            _ => self.poll.min(POLL_WITHOUT_MESSAGES),
        };
        self.polls_at = if self.kind == Kind::Place { NEVER } else { now.plus(jitter(poll)) };
    }

    /// Records that an attempt failed. The next one comes after `pause`. Calls for which that is too late give up.
    pub(crate) fn failed(&mut self, error: &E, pause: Duration, now: Moment) -> Effects<O, W> {
        let (since, was_held) = match &self.knowledge {
            Knowledge::Failing { since, was_held, .. } => (*since, *was_held),
            knowledge => (now, matches!(knowledge, Knowledge::Held { .. })),
        };
        self.knowledge =
            Knowledge::Failing { since, retry_at: now.plus(pause), error: error.clone(), was_held };
        let mut effects = Effects::default();
        for waiter in self.waiting.values_mut() {
            let failing = now.plus(pause).since(since.max(waiter.arrived));
            if waiter.patience.is_some_and(|patience| failing > patience) {
                waiter.error = Some(error.clone());
                effects.wakes.extend(waiter.waker.take());
            }
        }
        effects
    }

    /// Ends the first call that is awake and has these terms: the server refused what it asks for.
    pub(crate) fn fails_front(&mut self, terms: Terms, error: E) -> Effects<O, W> {
        let mut effects = Effects::default();
        self.is_news = true; // the others attempt for themselves
        let is_it = |waiter: &&mut Waiter<W, E>| waiter.waker.is_some() && waiter.terms == terms;
        if let Some(front) = self.waiting.values_mut().find(is_it) {
            front.error = Some(error);
            effects.wakes.extend(front.waker.take());
        }
        effects
    }

    /// Records that the lock is perhaps free: a message came, or a call could not take what was offered to it.
    pub(crate) fn hears(&mut self, now: Moment) -> Effects<O, W> {
        // Also a hold that was granted at this very moment.
        (self.is_news, self.fresh_since) = (true, now.plus(Duration::from_nanos(1)));
        Effects::wake_task()
    }

    /// Records that the line is subscribed. False: it was subscribed before.
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

    /// Records that the line has another channel, to which it is not subscribed.
    pub(crate) const fn has_new_channel(&mut self) {
        self.messages = Messages::NotSubscribed;
    }

    /// Records whether messages arrive from now on. In both cases, one was perhaps missed.
    pub(crate) fn has_messages(&mut self, has_messages: bool, now: Moment) -> Effects<O, W> {
        match self.messages {
            // The news is about a subscription of calls that have left.
            Messages::NotSubscribed => return Effects::default(),
            Messages::Subscribed if !has_messages => return Effects::default(),
            _ => {}
        }
        self.messages = if has_messages { Messages::Arrive } else { Messages::Subscribed };
        self.is_news = true;
        if !has_messages {
            self.fresh_since = now.plus(Duration::from_nanos(1));
        }
        Effects::wake_task()
    }

    /// Whether messages about the lock reach this line.
    pub(crate) fn gets_messages(&self) -> bool {
        self.messages == Messages::Arrive
    }

    /// Records that a release of the lock by this client is about to be sent.
    pub(crate) fn release_begins(&mut self, now: Moment) {
        self.yields_until = if self.others_wait { now.plus(YIELD_BEFORE_REPLY) } else { Moment::PAST };
    }

    /// Records how the release ended. `others_wait`: whether its message reached other clients. `None`: the release released nothing, or
    /// its outcome is unknown.
    pub(crate) fn release_ended(&mut self, others_wait: Option<bool>, now: Moment) -> Effects<O, W> {
        self.others_wait = others_wait.unwrap_or(self.others_wait);
        self.yields_until = if others_wait == Some(true) { now.plus(YIELD) } else { Moment::PAST };
        self.is_news |= !self.gets_messages();
        Effects::wake_task()
    }

    /// Whether it is known that another owner holds or held the lock.
    pub(crate) const fn is_answered(&self) -> bool {
        match &self.knowledge {
            Knowledge::Unknown => false,
            Knowledge::Held { .. } => true,
            Knowledge::Failing { was_held, .. } => *was_held,
        }
    }

    /// When the next attempt comes, if the last one failed.
    pub(crate) const fn retry_at(&self) -> Option<Moment> {
        match &self.knowledge {
            Knowledge::Failing { retry_at, .. } => Some(*retry_at),
            _ => None,
        }
    }

    /// Why there is no answer.
    pub(crate) fn error(&self) -> Option<E> {
        match &self.knowledge {
            Knowledge::Failing { error, .. } => Some(error.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const USUAL: Terms = Terms { lease: SECOND, count: 1, is_usual: true, linger: None };

    type Line = State<&'static str, Ticket, ()>;

    /// A line in which so many calls stand that were polled.
    fn line(kind: Kind, calls: u64) -> Line {
        let mut line = State::new(kind, 3 * SECOND);
        for _ in 0..calls {
            let ticket = line.stand(USUAL, None, NOW);
            let is_joining = |line: &mut Line| line.poll(ticket, ticket).0 == Some(Polled::Joins);
            assert!(kind != Kind::Readers || is_joining(&mut line));
            assert_eq!(line.poll(ticket, ticket).0, None);
        }
        line
    }

    fn step(line: &mut Line, now: Moment) -> Step<&'static str> {
        line.step(None, now).0
    }

    fn takes(line: &mut Line, ticket: Ticket) -> bool {
        line.poll(ticket, ticket).0 == Some(Polled::Takes("hold"))
    }

    #[test]
    fn what_the_first_does_not_take_twice_as_many_can_have() {
        let mut line = line(Kind::Exclusive, 5);
        let (left, effects) = line.offers("hold", USUAL, NOW);
        assert!(left.is_none() && effects.wakes[..] == [0]);
        let mut now = NOW;
        for woken in [&[1, 2][..], &[3, 4]] {
            assert_eq!(step(&mut line, now), Step::Wait { until: now.plus(STALLED), subscribes: false });
            now = now.plus(STALLED);
            assert_eq!(line.step(None, now).1.wakes[..], *woken);
        }
        // Nobody else can have it. It is kept for a moment, also for a call that comes now.
        now = now.plus(STALLED);
        assert_eq!(step(&mut line, now), Step::Wait { until: NOW.plus(KEPT), subscribes: false });
        let late = line.stand(USUAL, None, now);
        assert!(line.poll(late, late).1.wakes_task);
        assert_eq!(line.step(None, now).1.wakes[..], [late]);
        assert!(takes(&mut line, late) && !takes(&mut line, 0));
        // Who was woken in vain is awake again once it was polled, and until then asleep.
        assert_eq!(line.offers("hold", USUAL, now).1.wakes[..], [0]);
        let end = now.plus(KEPT);
        assert_eq!(step(&mut line, end), Step::Release("hold"));
        assert_eq!(step(&mut line, end), Step::Wait { until: NEVER, subscribes: false }, "all are asleep");
    }

    #[test]
    fn a_place_whose_call_takes_its_hold_too_late_queues_again() {
        let mut line = line(Kind::Place, 1);
        assert_eq!(step(&mut line, NOW), Step::Attempt(USUAL));
        line.granted(SECOND, false, NOW);
        assert_eq!(line.offers("hold", USUAL, NOW).1.wakes[..], [0]);
        let late = NOW.plus(KEPT);
        assert_eq!(step(&mut line, late), Step::Release("hold"));
        assert!(matches!(step(&mut line, late), Step::Wait { .. }), "asleep");
        assert!(line.poll(0, 0).1.wakes_task);
        assert_eq!(step(&mut line, late), Step::Attempt(USUAL));
    }

    #[test]
    fn what_a_call_leaves_the_next_one_can_have() {
        let mut line = line(Kind::Exclusive, 2);
        let _ = line.offers("hold", USUAL, NOW);
        assert_eq!(line.leaves(0).wakes[..], [1]);
        assert_eq!(line.leaves(1).drops[..], ["hold"]);
    }

    #[test]
    fn what_the_first_does_not_take_is_not_kept_from_a_call_with_other_terms() {
        let mut line = line(Kind::Permits, 1);
        let two = Terms { count: 2, ..USUAL };
        let other = line.stand(two, None, NOW);
        assert_eq!(line.poll(other, other).0, None);
        let _ = line.offers("hold", USUAL, NOW);
        assert_eq!(step(&mut line, NOW.plus(STALLED)), Step::Release("hold"));
        // The first call sleeps. The next one gives up, and the one behind it wants fewer.
        let last = line.stand(USUAL, None, NOW);
        assert_eq!(line.poll(last, last).0, None);
        line.is_held(Some(10 * SECOND), NOW, |poll| poll);
        assert!(line.leaves(other).wakes_task);
        assert_eq!(step(&mut line, NOW), Step::Attempt(USUAL));
    }

    #[test]
    fn an_error_is_for_the_call_that_asked() {
        let mut line = line(Kind::Permits, 1);
        let five = Terms { count: 5, ..USUAL };
        let other = line.stand(five, None, NOW);
        assert_eq!(line.poll(other, other).0, None);
        assert_eq!(line.fails_front(five, ()).wakes[..], [other]);
        assert_eq!(line.poll(0, 0).0, None);
    }

    /// It is polled once, and never again.
    #[test]
    fn a_reader_who_asks_and_is_not_polled_delays_others_once() {
        let mut line = line(Kind::Readers, 0);
        assert!(line.asks());
        let first = line.stand(USUAL, None, NOW);
        let _ = (line.poll(first, first), line.poll(first, first));
        let later = NOW.plus(STALLED);
        assert_eq!(step(&mut line, later), Step::Attempt(USUAL));
        let _ = line.leaves(first);
        assert!(line.asks(), "the next one asks for itself");
        let _ = (line.asked(), line.asked());
    }

    #[test]
    fn an_open_read_hold_waits_for_those_who_were_woken_and_not_for_others() {
        let mut line = line(Kind::Readers, 2);
        let _ = line.opens(Some("hold"), USUAL, NOW);
        let end = Step::Wait { until: NOW.plus(KEPT), subscribes: false };
        assert_eq!(step(&mut line, NOW.plus(STALLED)), end, "perhaps their runtime is busy");
        assert_eq!(line.poll(0, 0).0, Some(Polled::Joins));
        let _ = line.leaves(0);
        assert_eq!(step(&mut line, NOW), Step::Wait { until: NOW.plus(KEPT), subscribes: false });
        assert_eq!(step(&mut line, NOW.plus(KEPT)), Step::Release("hold"));
        // Who was woken then sleeps, and is not waited for again.
        let _ = line.opens(Some("hold"), USUAL, NOW);
        assert_eq!(step(&mut line, NOW), Step::Release("hold"));
    }

    #[test]
    fn a_hold_with_other_terms_is_not_offered() {
        let mut line = line(Kind::Exclusive, 2);
        let longer = Terms { lease: 2 * SECOND, ..USUAL };
        assert_eq!(line.takes_over(longer, SECOND), None);
        assert_eq!(line.offers("hold", longer, NOW).0, Some("hold"));
    }

    #[test]
    fn a_hold_that_is_perhaps_gone_is_not_passed_on() {
        let since = |line: &Line| line.takes_over(USUAL, SECOND).map(|(_, since)| since);
        let mut line = line(Kind::Exclusive, 1);
        line.granted(SECOND, false, NOW);
        assert_eq!(since(&line), Some(NOW), "a hold that was granted before is gone");
        let later = NOW.plus(SECOND);
        assert!(!line.granted_beside(later, later), "nothing came after it was sent");
        let _ = line.hears(later);
        assert!(since(&line) > Some(later), "perhaps the message said that it is gone");
        assert!(line.granted_beside(later, later), "the message came during the attempt");
        assert_eq!(step(&mut line, later), Step::Attempt(USUAL));
        assert_eq!(since(&line), None, "the server has perhaps granted the attempt");
        assert!(line.granted_beside(later.plus(SECOND), later.plus(SECOND)));
    }

    #[test]
    fn news_of_a_subscription_that_has_ended_counts_for_nothing() {
        let mut line = line(Kind::Exclusive, 1);
        line.is_held(None, NOW, |poll| poll);
        let _ = line.has_messages(true, NOW);
        let until = NOW.plus(POLL_WITHOUT_MESSAGES);
        assert_eq!(step(&mut line, NOW), Step::Wait { until, subscribes: true });
        assert!(line.subscribes() && !line.subscribes());
        let _ = line.has_messages(true, NOW);
        assert_eq!(step(&mut line, NOW), Step::Attempt(USUAL), "the lock perhaps became free before");
        line.is_held(None, NOW, |poll| poll);
        assert_eq!(step(&mut line, NOW), Step::Wait { until: NOW.plus(3 * SECOND), subscribes: false });
    }

    /// The leases of two permits end, and the line acquires these permits. Unless an answer said so before, the line does not know when
    /// the next lease ends.
    #[test]
    fn the_line_attempts_again_while_permits_are_left_or_when_the_next_one_ends() {
        for (end, leaves_permits, attempts) in
            [(SECOND, false, true), (2 * SECOND, false, false), (2 * SECOND, true, true)]
        {
            let mut line = line(Kind::Permits, 1);
            line.is_held(Some(end), NOW, |poll| poll);
            let later = NOW.plus(SECOND);
            line.granted(10 * SECOND, leaves_permits, later);
            assert_eq!(step(&mut line, later) == Step::Attempt(USUAL), attempts);
        }
    }

    #[test]
    fn a_hold_goes_round_for_less_time_while_other_clients_wait() {
        let mut line = line(Kind::Exclusive, 1);
        for (others_wait, time) in [(Some(false), 5), (Some(true), 2), (None, 2)] {
            let _ = line.release_ended(others_wait, NOW);
            let found = line.takes_over(USUAL, Duration::from_millis(5));
            assert_eq!(found, Some((Duration::from_millis(time), Moment::PAST)));
        }
    }

    #[test]
    fn readers_who_wait_are_called_together_and_a_reader_asks_for_those_who_come() {
        let mut line = line(Kind::Readers, 0);
        assert!(line.asks() && !line.asks(), "one asks");
        let others = [(); 2].map(|()| line.stand(USUAL, None, NOW));
        for ticket in others {
            assert_eq!(line.poll(ticket, ticket).0, Some(Polled::Joins), "perhaps there is a hold by now");
            assert_eq!(line.poll(ticket, ticket).0, None);
        }
        assert_eq!(step(&mut line, NOW), Step::Wait { until: NOW.plus(STALLED), subscribes: false });
        assert_eq!(line.opens(Some("hold"), USUAL, NOW).wakes[..], others);
        for ticket in others {
            assert_eq!(line.poll(ticket, ticket).0, Some(Polled::Joins));
            let _ = line.leaves(ticket);
        }
        assert_eq!(step(&mut line, NOW), Step::Release("hold"), "nobody is left who could join");
    }

    #[test]
    fn calls_give_up_when_attempts_failed_for_too_long_since_they_came() {
        let mut line = line(Kind::Exclusive, 0);
        let patient = [NOW, NOW.plus(9 * SECOND)].map(|now| line.stand(USUAL, Some(10 * SECOND), now));
        let limited = line.stand(USUAL, None, NOW);
        for seconds in [0, 11] {
            let _ = line.failed(&(), SECOND, NOW.plus(SECOND * seconds));
        }
        let ends = |line: &mut Line, ticket| line.poll(ticket, ticket).0 == Some(Polled::Ends(()));
        assert_eq!(
            [patient[0], patient[1], limited].map(|ticket| ends(&mut line, ticket)),
            [true, false, false]
        );
    }
}

#[cfg(test)]
#[path = "explorer.rs"]
mod explorer;
