//! Visits every state that the lines of two clients, a model of the server and a model of the calls can reach, and checks rules in
//! each.
//!
//! Each client has up to three calls. A call asks beside the line if nobody waits, and stands in the line if it is refused. The steps of
//! all of them and of the tasks come in every order, and time passes between any two. A configuration says how often something goes
//! wrong. The calls want the lock, or one or two of two permits. Times are counted in ticks, and kept relative to now.
//!
//! Not modelled: readers who share, places in a fair queue, time limits, and the reply of a release that is lost.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Effects, Kind, Knowledge, NEVER, Polled, State, Step as Next, Terms, Ticket};
use crate::base::clock::Moment;
use crate::engine::visit::{Model, Name, Step, TIME_PASSES, visit};

/// The time after which others can have what a call was woken for. The other times of a line are shorter, or set here.
const TICK: Duration = super::STALLED;
const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
/// Times that are more ticks ago than this are treated as equal.
const FLOOR: u8 = 4;
const LEASE: u8 = 3;
const CLIENTS: usize = 2;

/// A client, and the number of an attempt.
type Id = (usize, usize);

/// How often something happens in one run of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    /// Ticks for which a step that has to come is late.
    delays: u8,
    cancels: u8,
    stalls: u8,
    lost_replies: u8,
    breaks: u8,
    deaths: u8,
    removals: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// What the server has: the ids, how many permits they have, and how many ticks their leases last.
    holds: SmallVec<[(Id, u8, u8); 2]>,
    total: u8,
    clients: [Client; CLIENTS],
    budget: Budget,
    /// The lock became free because a lease ended, so there was no message.
    is_free_in_silence: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    line: State<usize, usize, ()>,
    calls: Vec<Call>,
    task: Task,
    /// The server sends messages to this client, which wants them.
    is_subscribed: bool,
    wants_messages: bool,
    is_connected: bool,
    /// Under way to the client: a message, and the confirmation of a subscription.
    message: bool,
    confirmation: bool,
    /// Ids that are to be released, and acquires without an answer that can still run.
    undo: Vec<usize>,
    late: Vec<(usize, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    does: Does,
    wants: u8,
    /// Nobody polls its future any more.
    is_stalled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    Nothing,
    Asks(usize),
    /// `Err`: refused, and after how many ticks the first lease ends.
    Answered(usize, Result<(), u8>),
    Stands {
        ticket: Ticket,
        is_woken: bool,
    },
    /// `is_gone`: the server no longer has the hold. `is_told`: a message came since.
    Holds {
        id: usize,
        since: Moment,
        is_gone: bool,
        is_told: bool,
    },
    Releases(usize),
    Released(Option<bool>),
    Died,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Off,
    Runs,
    Waits(Moment),
    Asks(usize, u8),
    Answered(usize, u8, Result<bool, u8>),
    Releases(usize),
}

fn ticks(count: u8) -> Duration {
    TICK * count.into()
}

/// The number of permits of a call.
fn few(count: u32) -> u8 {
    u8::try_from(count).expect("few")
}

fn terms(wants: u8) -> Terms {
    Terms { lease: ticks(LEASE), count: wants.into(), is_usual: wants == 1, linger: None }
}

impl World {
    fn new(calls: [&[u8]; CLIENTS], budget: Budget) -> Self {
        let clients = calls.map(|wants| Client {
            line: State::new(Kind::Exclusive, ticks(2)),
            calls: wants
                .iter()
                .map(|wants| Call { does: Does::Nothing, wants: *wants, is_stalled: false })
                .collect(),
            task: Task::Off,
            is_subscribed: false,
            wants_messages: false,
            is_connected: true,
            message: false,
            confirmation: false,
            undo: Vec::new(),
            late: Vec::new(),
        });
        Self { holds: SmallVec::new(), total: 1, clients, budget, is_free_in_silence: false }
    }

    /// Makes the lock a semaphore of two permits.
    fn of_permits(mut self) -> Self {
        self.total = 2;
        self.clients.iter_mut().for_each(|client| client.line = State::new(Kind::Permits, ticks(2)));
        self
    }

    fn has(&self, id: Id) -> bool {
        self.holds.iter().any(|(held, ..)| *held == id)
    }

    fn left(&self) -> u8 {
        self.total - self.holds.iter().map(|(_, count, _)| count).sum::<u8>()
    }

    /// Runs an acquire. `Ok`: granted, and whether permits are left. `Err`: refused, and after how many ticks the first lease ends.
    fn acquires(&mut self, id: Id, wants: u8) -> Result<bool, u8> {
        if self.left() < wants {
            return Err(self.holds.iter().map(|(_, _, left)| *left).min().expect("somebody has them"));
        }
        if std::mem::take(&mut self.is_free_in_silence) && self.total > 1 {
            self.publishes(); // the script removes permits whose leases have ended
        }
        self.holds.push((id, wants, LEASE));
        Ok(self.left() > 0)
    }

    /// Runs a release. Returns which clients get the message. `None`: the server does not have the hold.
    fn releases(&mut self, id: Id) -> Option<[bool; CLIENTS]> {
        let had = self.has(id);
        self.holds.retain(|(held, ..)| *held != id);
        had.then(|| self.publishes())
    }

    fn publishes(&mut self) -> [bool; CLIENTS] {
        let receivers = [0, 1].map(|c| self.clients[c].is_subscribed);
        for (client, receives) in self.clients.iter_mut().zip(receivers) {
            client.message |= receives;
        }
        receivers
    }

    /// Records of each hold of a call whether the server still has it.
    fn marks_gone(&mut self) {
        for c in 0..CLIENTS {
            let held: Vec<_> = self.holds.iter().filter(|(id, ..)| id.0 == c).map(|(id, ..)| id.1).collect();
            for call in &mut self.clients[c].calls {
                if let Does::Holds { id, is_gone, .. } = &mut call.does {
                    *is_gone |= !held.contains(id);
                }
            }
        }
    }

    /// An answer with the outcome of an attempt is lost. The client releases its id at once, and once more when it can run no more.
    fn loses(&mut self, c: usize, id: usize) {
        self.budget.lost_replies -= 1;
        self.clients[c].undo.push(id);
    }

    fn stands(&mut self, c: usize, a: usize, answer: Option<Result<u8, ()>>) {
        let client = &mut self.clients[c];
        let ticket = client.line.stand(terms(client.calls[a].wants), None, NOW);
        match answer {
            Some(Ok(left)) => client.line.is_held(Some(ticks(left)), NOW, |time| time),
            Some(Err(())) => client.tells(|line| line.failed(&(), TICK, NOW)),
            None => {}
        }
        client.calls[a].does = Does::Stands { ticket, is_woken: true };
        if client.task == Task::Off {
            client.task = Task::Runs;
        }
    }

    fn polls(&mut self, c: usize, a: usize, ticket: Ticket) {
        let client = &mut self.clients[c];
        let (polled, effects) = client.line.poll(ticket, a);
        client.performs(effects);
        client.calls[a].does = match polled {
            Some(Polled::Takes(id)) => {
                let does = Does::Holds {
                    id,
                    since: NOW,
                    is_gone: !self.holds.iter().any(|(held, ..)| *held == (c, id)),
                    is_told: false,
                };
                client.tells(|line| line.leaves(ticket));
                does
            }
            None => Does::Stands { ticket, is_woken: false },
            Some(Polled::Ends(()) | Polled::Joins) => unreachable!("no call gives up or joins"),
        };
    }

    fn leaves(&mut self, c: usize, a: usize) {
        let client = &mut self.clients[c];
        match std::mem::replace(&mut client.calls[a].does, Does::Done) {
            Does::Stands { ticket, .. } => client.tells(|line| line.leaves(ticket)),
            Does::Asks(id) | Does::Answered(id, _) => client.undo.push(id),
            _ => {}
        }
    }

    fn gives_back(&mut self, c: usize, a: usize, id: usize, since: Moment, (is_gone, is_told): (bool, bool)) {
        let client = &mut self.clients[c];
        let passed_on = terms(client.calls[a].wants);
        let is_young = |(time, fresh): (Duration, Moment)| NOW.since(since) < time && since >= fresh;
        if passed_on.is_usual && client.line.takes_over(passed_on, TICK / 2).is_some_and(is_young) {
            assert!(
                self.total > 1 || !(is_gone && is_told),
                "a hold is passed on after a message said that it is gone"
            );
            let (left, effects) = client.line.offers(id, passed_on, NOW);
            client.performs(effects);
            assert!(left.is_none(), "the front takes it");
            client.calls[a].does = Does::Done;
            return;
        }
        if !client.line.is_empty() {
            client.line.release_begins(NOW);
        }
        client.calls[a].does = Does::Releases(id);
    }

    fn steps_task(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let (next, effects) = client.line.step(None, NOW);
        client.performs(effects);
        client.task = match next {
            Next::End => {
                let _ = client.line.task_ends();
                Task::Off
            }
            Next::Wait { until, subscribes } => {
                if subscribes && client.line.subscribes() {
                    client.wants_messages = true;
                    client.confirmation |= client.is_subscribed;
                }
                Task::Waits(until)
            }
            Next::Attempt(terms) => Task::Asks(client.fresh_id(&self.holds), few(terms.count)),
            Next::Release(id) => Task::Releases(id),
        };
    }

    fn task_sees(&mut self, c: usize, id: usize, wants: u8, answer: Result<bool, u8>) {
        let client = &mut self.clients[c];
        client.task = Task::Runs;
        match answer {
            Ok(leaves_permits) => {
                client.line.granted(ticks(LEASE), leaves_permits, NOW);
                let (left, effects) = client.line.offers(id, terms(wants), NOW);
                client.performs(effects);
                if let Some(id) = left {
                    client.task = Task::Releases(id);
                }
            }
            Err(left) => {
                client.line.is_held(Some(ticks(left)), NOW, |time| time);
            }
        }
    }
}

impl Model for World {
    fn steps(&self) -> Vec<Step<Self>> {
        let mut steps = Vec::new();
        let mut add = |name: Name, step: &mut dyn FnMut(&mut Self)| {
            let mut world = Box::new(self.clone());
            step(&mut world);
            world.normalize();
            steps.push(Step { name, world });
        };
        for c in 0..CLIENTS {
            let client = &self.clients[c];
            for (a, call) in client.calls.iter().enumerate() {
                let at = |what| Name(what, c, a);
                if self.budget.cancels > 0
                    && matches!(call.does, Does::Asks(_) | Does::Answered(..) | Does::Stands { .. })
                {
                    add(at("is cancelled"), &mut |w| {
                        w.budget.cancels -= 1;
                        if let Does::Asks(id) = w.clients[c].calls[a].does {
                            let wants = w.clients[c].calls[a].wants;
                            w.clients[c].late.push((id, wants));
                        }
                        w.leaves(c, a);
                    });
                }
                match call.does {
                    Does::Nothing if client.line.is_empty() => {
                        let id = client.fresh_id(&self.holds);
                        add(at("asks"), &mut |w| w.clients[c].calls[a].does = Does::Asks(id));
                    }
                    Does::Nothing => add(at("stands in the line"), &mut |w| w.stands(c, a, None)),
                    Does::Asks(id) => {
                        let answers = |w: &mut Self| w.acquires((c, id), call.wants).map(|_| ());
                        add(at("is answered"), &mut |w| {
                            let answer = answers(w);
                            w.clients[c].calls[a].does = Does::Answered(id, answer);
                        });
                        if self.budget.lost_replies > 0 {
                            add(at("loses its reply"), &mut |w| {
                                let _ = answers(w);
                                w.loses(c, id);
                                w.stands(c, a, Some(Err(())));
                            });
                        }
                    }
                    Does::Answered(id, Ok(())) => add(at("is granted the lock"), &mut |w| {
                        let is_gone = !w.has((c, id));
                        // It began to ask before any time that the line knows of, at worst.
                        let is_perhaps_gone = w.total == 1
                            && w.clients[c].line.granted_beside(NOW.minus(ticks(FLOOR - 1)), NOW);
                        let since = if is_perhaps_gone { Moment::PAST } else { NOW };
                        w.clients[c].calls[a].does = Does::Holds { id, since, is_gone, is_told: false };
                    }),
                    Does::Answered(_, Err(left)) => {
                        add(at("is refused"), &mut |w| w.stands(c, a, Some(Ok(left))))
                    }
                    Does::Stands { ticket, is_woken } if !call.is_stalled => {
                        if is_woken {
                            add(at("is polled"), &mut |w| w.polls(c, a, ticket));
                        }
                        if self.budget.stalls > 0 {
                            add(at("is not polled any more"), &mut |w| {
                                w.budget.stalls -= 1;
                                w.clients[c].calls[a].is_stalled = true;
                            });
                        }
                    }
                    // So that every run can end.
                    Does::Stands { .. } => add(at("is dropped"), &mut |w| w.leaves(c, a)),
                    Does::Holds { id, since, is_gone, is_told } => {
                        add(at("gives its hold back"), &mut |w| {
                            w.gives_back(c, a, id, since, (is_gone, is_told))
                        });
                        if self.budget.deaths > 0 {
                            add(at("dies"), &mut |w| {
                                w.budget.deaths -= 1;
                                w.clients[c].calls[a].does = Does::Died;
                            });
                        }
                    }
                    Does::Releases(id) => add(at("is released"), &mut |w| {
                        let told = w.releases((c, id));
                        w.clients[c].calls[a].does = Does::Released(told.map(|told| told[1 - c]));
                    }),
                    Does::Released(others) => add(at("sees its release"), &mut |w| {
                        w.clients[c].calls[a].does = Does::Done;
                        if !w.clients[c].line.is_empty() {
                            w.clients[c].tells(|line| line.release_ended(others, NOW));
                        }
                        if others.is_none() {
                            w.clients[c].tells(|line| line.hears(NOW)); // the client wakes its own waiters
                        }
                    }),
                    Does::Died | Does::Done => {}
                }
            }
            let at = |what| Name(what, c, 9);
            match client.task {
                Task::Off => {}
                Task::Waits(until) if until > NOW => {}
                Task::Runs | Task::Waits(_) => add(at("looks"), &mut |w| w.steps_task(c)),
                Task::Asks(id, wants) => {
                    add(at("is answered"), &mut |w| {
                        let answer = w.acquires((c, id), wants);
                        w.clients[c].task = Task::Answered(id, wants, answer);
                    });
                    if self.budget.lost_replies > 0 {
                        add(at("loses its request for now"), &mut |w| {
                            w.clients[c].late.push((id, wants));
                            w.loses(c, id);
                            w.clients[c].tells(|line| line.failed(&(), TICK, NOW));
                            w.clients[c].task = Task::Runs;
                        });
                    }
                }
                Task::Answered(id, wants, answer) => {
                    add(at("sees the answer"), &mut |w| w.task_sees(c, id, wants, answer));
                }
                Task::Releases(id) => add(at("releases what nobody took"), &mut |w| {
                    w.releases((c, id));
                    w.clients[c].task = Task::Runs;
                }),
            }
            for (id, wants) in client.late.clone() {
                add(at("a late acquire runs"), &mut |w| {
                    w.clients[c].late.retain(|late| late.0 != id);
                    let _ = w.acquires((c, id), wants);
                });
            }
            for id in client.undo.clone() {
                add(at("is undone"), &mut |w| {
                    w.releases((c, id));
                    if !w.clients[c].late.iter().any(|late| late.0 == id) {
                        w.clients[c].undo.retain(|undone| *undone != id);
                    }
                });
            }
            if client.is_connected && client.is_subscribed != client.wants_messages {
                add(at("(un)subscribes"), &mut |w| {
                    let client = &mut w.clients[c];
                    client.is_subscribed = client.wants_messages;
                    client.confirmation |= client.wants_messages;
                });
            }
            if client.confirmation {
                add(at("gets a confirmation"), &mut |w| {
                    w.clients[c].confirmation = false;
                    w.clients[c].tells(|line| line.has_messages(true, NOW));
                });
            }
            if client.message {
                add(at("gets a message"), &mut |w| {
                    w.clients[c].message = false;
                    for call in &mut w.clients[c].calls {
                        if let Does::Holds { is_gone: true, is_told, .. } = &mut call.does {
                            *is_told = true;
                        }
                    }
                    w.clients[c].tells(|line| line.hears(NOW));
                });
            }
            if client.is_connected && client.is_subscribed && self.budget.breaks > 0 {
                add(at("loses its message connection"), &mut |w| {
                    w.budget.breaks -= 1;
                    let client = &mut w.clients[c];
                    (client.is_connected, client.is_subscribed, client.message) = (false, false, false);
                    client.confirmation = false;
                    client.tells(|line| line.has_messages(false, NOW));
                });
            }
            if !client.is_connected {
                add(at("connects again"), &mut |w| w.clients[c].is_connected = true);
            }
        }
        if self.budget.removals > 0 && !self.holds.is_empty() {
            add(Name("the key is deleted", 0, 0), &mut |w| {
                w.budget.removals -= 1;
                w.holds.clear();
                w.publishes();
            });
        }
        steps
    }

    fn is_quiet(name: &str) -> bool {
        QUIET.contains(&name)
    }

    fn delays(&mut self) -> &mut u8 {
        &mut self.budget.delays
    }

    fn passes(&mut self) {
        for client in &mut self.clients {
            client.shift();
        }
        let is_renewed = |clients: &[Client; CLIENTS], (c, id): Id| {
            let client = &clients[c];
            let holds = |call: &Call| matches!(call.does, Does::Holds { id: held, .. } | Does::Releases(held) if held == id);
            client.calls.iter().any(holds)
        };
        for (id, _, left) in &mut self.holds {
            if !is_renewed(&self.clients, *id) {
                *left -= 1;
            }
        }
        let before = self.holds.len();
        self.holds.retain(|(_, _, left)| *left > 0);
        self.is_free_in_silence |= self.holds.len() < before;
    }

    fn normalize(&mut self) {
        self.marks_gone();
        for client in &mut self.clients {
            client.undo.sort_unstable();
            client.undo.dedup();
            client.late.sort_unstable();
            if !matches!(client.task, Task::Waits(_)) {
                client.line.looks_at = NEVER;
            }
            if client.line.is_over() && client.task == Task::Off {
                // The line is removed, and its subscription ends.
                let (kind, poll) = (client.line.kind, client.line.poll);
                client.line = State::new(kind, poll);
                client.wants_messages = false;
            }
        }
        self.holds.sort_unstable();
        self.is_free_in_silence &= self.left() > 0;
    }

    fn check(&self, steps: &[Step<Self>]) {
        assert!(self.holds.iter().map(|(_, count, _)| count).sum::<u8>() <= self.total, "too many holds");
        // Who holds the lock has a hold on the server, which nobody else has.
        let mut held: Vec<Id> = Vec::new();
        for (c, client) in self.clients.iter().enumerate() {
            for call in &client.calls {
                if let Does::Holds { id, .. } = call.does {
                    assert!(!held.contains(&(c, id)), "two calls have one hold");
                    held.push((c, id));
                }
            }
        }
        // What nobody has is released by somebody, or its lease ends.
        let is_over = steps.iter().all(|step| Self::is_quiet(step.name.0));
        for client in &self.clients {
            let is_asleep = matches!(client.task, Task::Waits(until) if until > NOW.plus(TICK))
                && client.line.open.is_empty();
            let wanted = client.line.front().map(|front| few(front.terms.count));
            let can_have = wanted.is_some_and(|wanted| self.left() >= wanted);
            assert!(
                !(is_over
                    && is_asleep
                    && can_have
                    && client.line.gets_messages()
                    && !self.is_free_in_silence),
                "the line sleeps beside a free lock"
            );
        }
    }

    fn is_over(&self) -> bool {
        self.clients.iter().all(|client| {
            let ended = |call: &Call| matches!(call.does, Does::Done | Does::Died);
            client.calls.iter().all(ended) && client.task == Task::Off && client.undo.is_empty()
        }) && self.holds.is_empty()
    }
}

/// Steps that need not come.
const QUIET: [&str; 12] = [
    "asks",
    "stands in the line",
    "is cancelled",
    "is not polled any more",
    "is dropped",
    "gives its hold back",
    "dies",
    "loses its reply",
    "loses its request for now",
    "loses its message connection",
    "the key is deleted",
    TIME_PASSES,
];

impl Client {
    fn tells(&mut self, event: impl FnOnce(&mut State<usize, usize, ()>) -> Effects<usize, usize>) {
        let effects = event(&mut self.line);
        self.performs(effects);
    }

    fn performs(&mut self, Effects { wakes, drops, wakes_task, .. }: Effects<usize, usize>) {
        for call in wakes {
            if let Does::Stands { is_woken, .. } = &mut self.calls[call].does {
                *is_woken = true;
            }
        }
        self.undo.extend(drops);
        if wakes_task && matches!(self.task, Task::Waits(_)) {
            self.task = Task::Runs;
        }
    }

    /// The first number that nothing of this client has.
    fn fresh_id(&self, holds: &[(Id, u8, u8)]) -> usize {
        let is_used = |id: &usize| {
            holds.iter().any(|((_, held), ..)| held == id)
                || self.undo.contains(id)
                || self.late.iter().any(|late| late.0 == *id)
                || self.line.open.iter().any(|open| open.hold == *id)
                || matches!(self.task, Task::Asks(at, _) | Task::Answered(at, ..) | Task::Releases(at) if at == *id)
                || self.calls.iter().any(|call| {
                    matches!(
                        call.does,
                        Does::Asks(at) | Does::Answered(at, _) | Does::Holds { id: at, .. } | Does::Releases(at) if at == *id
                    )
                })
        };
        (0..).find(|id| !is_used(id)).expect("there are many numbers")
    }

    fn shift(&mut self) {
        let floor = NOW.minus(ticks(FLOOR));
        let shift = |moment: &mut Moment| {
            if *moment != Moment::PAST && *moment != NEVER {
                *moment = moment.minus(TICK).max(floor);
            }
        };
        let line = &mut self.line;
        shift(&mut line.fresh_since);
        if line.fresh_since == floor {
            line.fresh_since = Moment::PAST;
        }
        for moment in [&mut line.yields_until, &mut line.polls_at, &mut line.looks_at] {
            shift(moment);
            *moment = if *moment <= NOW { NOW } else { *moment };
        }
        for open in &mut line.open {
            open.opened = open.opened.minus(TICK).max(NOW.minus(super::KEPT));
            shift(&mut open.since);
        }
        match &mut line.knowledge {
            Knowledge::Held { until: Some(until) } => {
                shift(until);
                *until = (*until).max(NOW);
            }
            Knowledge::Failing { since, retry_at, .. } => {
                *since = NOW;
                shift(retry_at);
                *retry_at = (*retry_at).max(NOW);
            }
            Knowledge::Unknown | Knowledge::Held { until: None } => {}
        }
        line.waiting.values_mut().for_each(|waiter| waiter.arrived = NOW);
        if let Task::Waits(until) = &mut self.task {
            shift(until);
            *until = (*until).max(NOW);
        }
        for call in &mut self.calls {
            if let Does::Holds { since, .. } = &mut call.does {
                shift(since);
            }
        }
    }
}

const NOTHING: Budget =
    Budget { delays: 0, cancels: 0, stalls: 0, lost_replies: 0, breaks: 0, deaths: 0, removals: 0 };

const ONE: &[u8] = &[1];
const TWO: &[u8] = &[1, 1];

/// Visits small configurations as a whole, in each run of the tests.
#[test]
fn every_state_of_the_small_configurations_keeps_the_rules() {
    let permits = |budget| World::new([&[2, 1], &[]], budget).of_permits();
    visit([
        ("two and one", World::new([TWO, ONE], NOTHING)),
        ("delays", World::new([ONE, ONE], Budget { delays: 1, ..NOTHING })),
        ("cancels", World::new([TWO, &[]], Budget { cancels: 1, ..NOTHING })),
        ("stalls", World::new([TWO, &[]], Budget { stalls: 1, ..NOTHING })),
        ("lost replies", World::new([ONE, ONE], Budget { lost_replies: 1, ..NOTHING })),
        ("breaks", World::new([ONE, ONE], Budget { breaks: 1, ..NOTHING })),
        ("deaths", World::new([ONE, ONE], Budget { deaths: 1, ..NOTHING })),
        ("removals", World::new([TWO, &[]], Budget { removals: 1, ..NOTHING })),
        ("permits", World::new([&[2, 1], ONE], NOTHING).of_permits()),
        ("permits, cancels", permits(Budget { cancels: 1, ..NOTHING })),
        ("permits, stalls", permits(Budget { stalls: 1, ..NOTHING })),
        ("permits, deaths", permits(Budget { deaths: 1, ..NOTHING })),
    ]);
}

/// Visits the larger configurations of `scripts/nightly`.
#[test]
#[ignore = "takes minutes"]
fn every_state_of_the_large_configurations_keeps_the_rules() {
    visit([
        ("delays", World::new([TWO, ONE], Budget { delays: 1, ..NOTHING })),
        ("cancels", World::new([TWO, ONE], Budget { cancels: 1, ..NOTHING })),
        ("stalls", World::new([TWO, ONE], Budget { stalls: 1, ..NOTHING })),
        ("removals", World::new([TWO, ONE], Budget { removals: 1, ..NOTHING })),
        ("three calls", World::new([&[1, 1, 1], ONE], Budget { cancels: 1, ..NOTHING })),
        ("two and two", World::new([TWO, TWO], Budget { delays: 1, ..NOTHING })),
        ("two lost replies", World::new([TWO, ONE], Budget { lost_replies: 2, ..NOTHING })),
        (
            "a lost reply and a cancel",
            World::new([TWO, ONE], Budget { lost_replies: 1, cancels: 1, ..NOTHING }),
        ),
        ("a break and a removal", World::new([TWO, ONE], Budget { breaks: 1, removals: 1, ..NOTHING })),
        ("a death and a stall", World::new([TWO, ONE], Budget { deaths: 1, stalls: 1, ..NOTHING })),
        ("permits, three", World::new([&[1, 2, 1], ONE], NOTHING).of_permits()),
        (
            "permits, lost replies",
            World::new([&[2, 1], ONE], Budget { lost_replies: 1, ..NOTHING }).of_permits(),
        ),
    ]);
}
