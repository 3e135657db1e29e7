//! Visits every state that the machine of one grant, its server and the futures around it can reach, and checks rules
//! in each.
//!
//! Two owners of one client use the grant: the first one acquires, re-enters, and gives back. The second one waits for
//! a hold that is handed over, or joins as a reader. Another client takes the lock whenever it is free. Commands travel
//! on two connections. Each runs commands in their order, and futures learn the answers in any order. The background,
//! the watchdog and the time take their steps at any moment. A configuration says how often something goes wrong: the
//! page of the folder lists what. Times are counted in ticks, and kept relative to now.
//!
//! Not modelled: places in a fair queue, several permits, fixed and longer leases, switches to another master, and
//! a message that tells of a removal.

use std::collections::BTreeSet;
use std::panic::Location;
use std::time::Duration;

use smallvec::SmallVec;

use super::{End, Epoch, Machine, Releasing, Stay};
use crate::base::clock::Moment;
use crate::engine::grant::copies::{Answer, Order};
use crate::engine::grant::lingering::Confirmation;
use crate::engine::grant::part::{Began, OwnerKey};
use crate::engine::hold::deadline::Deadline;
use crate::engine::hold::effects::{Effects, Fate};
use crate::engine::hold::lease::{self, Periods, Rules};
use crate::engine::visit::{Model, Name, Step, TIME_PASSES, visit};

const TICK: Duration = Duration::from_millis(1);
const NOW: Moment = Moment::from_nanos(1_000_000_000);
/// Times that are more ticks ago than this are treated as equal.
const FLOOR: u32 = 6;
const LEASE: u8 = 4;
const LINGER: u8 = 2;
/// For how many ticks a copy can still run.
const LATE: u8 = 2;
/// How many ticks after the first answer the background stops.
const LATE_COPIES: u8 = LATE + 1;
/// The index of the usual connection. The other one carries first acquires that wait for replicas.
const USUAL: usize = 0;
const OF_ACQUIRES: usize = 1;
const EPOCH: Epoch = Epoch { switches: 0, forced: 0 };

/// A hold of a guard, by its number. The guard has no deadline of its own: it looks here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    id: u8,
    until: Moment,
}

impl Deadline for Hold {
    fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    fn relies_on(&self, now: Moment) -> bool {
        now < self.until
    }

    fn at(&self) -> Moment {
        self.until
    }

    fn ends(&self) -> Option<Moment> {
        None
    }

    fn renewed_lease(&self, usual: Duration) -> Option<Duration> {
        Some(usual)
    }

    fn advance(&mut self, now: Moment, to: Moment) {
        if now < self.until {
            self.until = self.until.max(to);
        }
    }

    fn lose(&mut self) {
        self.until = Moment::PAST;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Acquire { order: Order },
    Reenter { want: u32 },
    Release(Releasing<Hold>),
    Renew,
    Confirm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ran {
    Granted,
    /// An acquire found the lock held by another client, or a confirmation found that somebody waits.
    Held,
    Gone,
    Done,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum From {
    Actor(usize),
    Background,
    Watchdog,
    Confirmer,
    /// The future that sent the command was dropped.
    Nobody,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    from: From,
    kind: Kind,
    at: Moment,
    ran: Option<Ran>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    Nothing,
    /// The owner acquires, and sends an attempt next.
    Attempts {
        want: u32,
    },
    /// The attempt is under way.
    Asks {
        want: u32,
    },
    /// The owner's future releases, and sends a release next.
    Releases,
    /// The release is under way.
    Unlocks,
    /// The owner stands in the queue of its client.
    Waits,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Actor {
    owner: OwnerKey,
    does: Does,
    holds: SmallVec<[u8; 2]>,
    /// How often the owner can still acquire.
    calls: u8,
}

/// The background at work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Background {
    seen: u32,
    /// How many ticks the background still rests.
    rests: u8,
    /// How many ticks ago the first release was answered.
    answered: Option<u8>,
    is_sending: bool,
    /// The job has ended, and has not told the machine yet. True: what is left need not be released.
    ends: Option<bool>,
}

/// How often something happens in one run of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    delays: u8,
    drops: u8,
    breaks: u8,
    refusals: u8,
    removals: u8,
    shutdowns: u8,
    leaks: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    machine: Machine<Hold>,
    /// What the server has, and for how many ticks.
    count: u32,
    lease: u8,
    /// Another client has the lock for so many ticks.
    other: Option<u8>,
    wires: [Vec<Sent>; 2],
    numbers: [u64; 2],
    /// Copies that can still run for so many ticks.
    late: Vec<(Kind, u8)>,
    actors: [Actor; 2],
    background: Option<Background>,
    is_renewing: bool,
    confirms: Option<Confirmation>,
    budget: Budget,
    /// Somebody removed the hold on the server.
    was_removed: bool,
    /// The hold was removed, or its lease ended on the server.
    was_lost: bool,
    /// The hold was removed while a guard relied on it, and nothing else went wrong. So the loss has to be reported.
    owes_report: bool,
    /// For how many ticks the lock has to stay held.
    stays: u8,
    /// Acquires take the second connection.
    syncs: bool,
    /// The second owner joins, and does not wait for a hold that is handed over.
    reads: bool,
    /// The minimum hold time, in ticks.
    min_hold: u8,
    /// Read holds linger.
    lingers: bool,
}

fn here() -> Began {
    Began { task: None, at: Location::caller() }
}

fn ticks(count: u8) -> Duration {
    TICK * count.into()
}

fn rules() -> Rules {
    let lease = ticks(LEASE);
    Rules {
        lease,
        periods: Periods::of_lease(lease),
        is_shared: false,
        is_checked: false,
        sharing: ticks(3),
        within: |time| time,
    }
}

impl World {
    /// `calls`: how often the first owner re-enters, and how often the second one acquires.
    fn new(calls: [u8; 2], budget: Budget) -> Self {
        let owners = [(); 2].map(|()| OwnerKey::default());
        let actor =
            |a: usize, does| Actor { owner: owners[a], does, holds: SmallVec::new(), calls: calls[a] };
        let actors = [actor(0, Does::Attempts { want: 1 }), actor(1, Does::Nothing)];
        Self {
            machine: Machine::new(owners[0], here()),
            count: 0,
            lease: 0,
            other: None,
            wires: [Vec::new(), Vec::new()],
            numbers: [1, 2],
            late: Vec::new(),
            actors,
            background: None,
            is_renewing: false,
            confirms: None,
            budget,
            was_removed: false,
            was_lost: false,
            owes_report: false,
            stays: 0,
            syncs: false,
            reads: false,
            min_hold: 0,
            lingers: false,
        }
    }

    fn syncing(self) -> Self {
        Self { syncs: true, ..self }
    }

    fn of_readers(self) -> Self {
        Self { reads: true, ..self }
    }

    fn lingering(self) -> Self {
        Self { lingers: true, ..self.of_readers() }
    }

    fn with_min_hold(self) -> Self {
        Self { min_hold: 3, ..self }
    }

    /// Tells the machine of an event, as `Grant::change` does.
    fn tells<T>(&mut self, event: impl FnOnce(&mut Machine<Hold>, &mut Effects<Hold>) -> T) -> T {
        let mut effects = Effects::default();
        let result = event(&mut self.machine, &mut effects);
        self.machine.due(NOW, &rules());
        if self.machine.asks_background(NOW, &mut effects) {
            match &mut self.background {
                Some(background) => background.rests = 0,
                None => {
                    self.background =
                        Some(Background { seen: 0, rests: 0, answered: None, is_sending: false, ends: None });
                }
            }
        }
        for (_, fate) in effects.holds() {
            assert!(*fate == Fate::Left || self.was_lost, "a loss is told of a hold that was released");
            self.owes_report &= *fate == Fate::Left;
        }
        result
    }

    /// Whether an owner leaked a hold, which ends with its lease.
    fn is_leaked(&self) -> bool {
        self.machine.parts.iter().any(|part| part.first_leaked().is_some())
    }

    fn is_valid(&self, id: u8) -> bool {
        self.machine.all_holds().any(|hold| hold.id == id && hold.relies_on(NOW))
    }

    fn sends(&mut self, wire: usize, from: From, kind: Kind) {
        self.wires[wire].push(Sent { from, kind, at: NOW, ran: None });
    }

    fn attempts(&mut self, a: usize, want: u32) {
        let wire = if self.syncs && want == 1 { OF_ACQUIRES } else { USUAL };
        let (number, lease) = (self.numbers[wire], ticks(LEASE));
        let kind = self.tells(|machine, _| match want {
            1 => Some(Kind::Acquire { order: machine.attempts(number, lease, EPOCH, &rules())? }),
            _ => machine.shows(want, lease, EPOCH, &rules()).then_some(Kind::Reenter { want }),
        });
        match kind {
            Some(kind) => {
                assert!(!self.machine.is_given_up, "an attempt is sent after a shutdown gave it up");
                self.actors[a].does = Does::Asks { want };
                self.sends(wire, From::Actor(a), kind);
            }
            None => self.gives_up(a),
        }
    }

    fn gives_up(&mut self, a: usize) {
        let owner = self.actors[a].owner;
        self.actors[a].does = Does::Nothing;
        self.tells(|machine, _| machine.ends_pending(owner));
    }

    /// Turns a counted acquire into a hold.
    fn holds(&mut self, a: usize, until: Moment) {
        let is_used = |id: u8| self.actors.iter().any(|actor| actor.holds.contains(&id));
        let id = (0..).find(|id| !is_used(*id) && !self.is_valid(*id)).expect("few holds");
        let owner = self.actors[a].owner;
        self.actors[a].does = Does::Nothing;
        if self.tells(|machine, _| machine.holds(owner, Hold { id, until }, (until, NOW), &rules())) {
            self.actors[a].holds.push(id);
            if self.min_hold > 0 {
                self.stays = self.min_hold;
                let until = NOW.plus(ticks(self.min_hold));
                self.tells(|machine, _| machine.stays_until(until, Some(ticks(LEASE))));
            }
            if self.reads {
                let linger = self.lingers.then(|| ticks(LINGER));
                self.tells(|machine, _| machine.opens_to_readers(linger, NOW));
            }
        } else {
            self.gives_up(a);
        }
    }

    /// Ends a guard. Its hold is handed over, or released by a future or by the background.
    fn gives_back(&mut self, a: usize, unlocks: bool) {
        let id = self.actors[a].holds.pop().expect("a hold");
        let hold = Hold { id, until: Moment::PAST };
        let hold = self.machine.all_holds().find(|other| other.id == id).cloned().unwrap_or(hold);
        let until = NOW.plus(TICK);
        if self.actors[1 - a].does == Does::Waits
            && self.tells(|machine, _| {
                machine.offers(&hold, (ticks(3), Moment::PAST), until, EPOCH, NOW, &rules())
            })
        {
            return;
        }
        // A release asks nothing about a hold that lingers, so a removal of that hold need not be reported.
        self.owes_report &= !self.machine.lingers();
        self.tells(|machine, _| machine.gives_back(&hold, true, NOW));
        if unlocks {
            self.actors[a].does = Does::Releases;
        } else {
            self.leaves(a);
        }
    }

    /// Ends the future that releases.
    fn leaves(&mut self, a: usize) {
        self.actors[a].does = Does::Nothing;
        self.tells(|machine, _| machine.no_longer_attended());
    }

    fn sends_release(&mut self, from: From) -> bool {
        let Some(releasing) = self.tells(|machine, _| machine.releases(NOW)) else { return false };
        let is_behind = self.syncs
            && releasing.is_repeated
            && self.machine.copies.may_run_late_on(self.numbers[OF_ACQUIRES]);
        self.sends(if is_behind { OF_ACQUIRES } else { USUAL }, from, Kind::Release(releasing));
        true
    }

    fn background_works(&mut self) {
        let requests = self.machine.requests;
        let is_owed = self.machine.is_owed(NOW);
        let owes_release = self.machine.owes_release(NOW);
        if let Some(background) = &mut self.background {
            background.seen = requests;
            background.answered = background.answered.filter(|_| !owes_release);
            background.is_sending = is_owed;
        }
        if !is_owed {
            self.background_ends(false);
        } else if !self.sends_release(From::Background) {
            unreachable!("it is owed");
        }
    }

    /// Records that the job has decided to end. A later step tells the machine.
    fn background_ends(&mut self, forgets: bool) {
        if let Some(background) = &mut self.background {
            background.ends = Some(forgets);
        }
    }

    fn learns(&mut self, wire: usize, at: usize) {
        let number = self.numbers[wire];
        let Sent { from, kind, at, ran } = self.wires[wire].remove(at);
        let ran = ran.expect("it ran");
        match (from, kind) {
            (From::Actor(a), kind @ (Kind::Acquire { .. } | Kind::Reenter { .. })) => {
                let mut want = 1;
                match kind {
                    Kind::Acquire { order } => {
                        let answer = match ran {
                            Ran::Granted => Answer::Granted,
                            Ran::Refused => Answer::Refused { leaves_trace: false },
                            _ => Answer::Has(false),
                        };
                        self.tells(|machine, _| machine.answered(number, order, answer));
                    }
                    Kind::Reenter { want: count } => want = count,
                    _ => unreachable!(),
                }
                let until = lease::deadline(at, ticks(LEASE));
                match ran {
                    Ran::Granted if NOW < until => self.holds(a, until),
                    Ran::Gone => {
                        self.tells(|machine, effects| machine.loses(effects));
                        self.gives_up(a);
                    }
                    _ => self.actors[a].does = Does::Attempts { want },
                }
            }
            (_, Kind::Release(releasing)) => {
                let shows = releasing.shows.is_some();
                let end = match ran {
                    Ran::Refused => End::NotRun,
                    _ => End::Answered { connection: number, is_gone: ran == Ran::Gone },
                };
                self.tells(|machine, effects| machine.ends_release(releasing, end, effects));
                match (from, &mut self.background) {
                    (From::Actor(a), _) => {
                        let says = self.machine.was_lost() && !self.machine.was_perhaps_lost();
                        assert!(!says || self.was_lost, "a release fails although the hold was there");
                        self.leaves(a);
                    }
                    (_, Some(background)) => {
                        background.is_sending = false;
                        background.rests = 1;
                        if shows {
                            if ran == Ran::Refused {
                                self.tells(|machine, _| machine.shows_no_more(NOW));
                            }
                        } else if ran != Ran::Refused && *background.answered.get_or_insert(0) >= LATE_COPIES
                        {
                            self.background_ends(true);
                        }
                    }
                    _ => unreachable!("the background sent it"),
                }
            }
            (_, Kind::Renew) => {
                self.is_renewing = false;
                self.tells(|machine, effects| match ran {
                    Ran::Done => machine.renewed(at, NOW.plus(ticks(2)), NOW, &rules(), effects),
                    Ran::Gone => machine.renewed_nothing(effects),
                    _ => machine.not_renewed(NOW.plus(TICK), effects),
                });
            }
            (_, Kind::Confirm) => {
                let asked = self.confirms.take().expect("it is under way");
                self.tells(|machine, effects| match ran {
                    Ran::Done | Ran::Held => {
                        machine.confirmed(asked, at, ran == Ran::Held, (EPOCH, NOW), &rules());
                    }
                    Ran::Gone => machine.confirmed_nothing(effects),
                    _ => machine.closes_to_readers(),
                });
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// Ends a command whose answer never comes.
    fn is_not_answered(&mut self, from: From, kind: Kind) {
        self.owes_report = false;
        if let (From::Actor(_) | From::Background, Kind::Release(releasing)) = (from, kind.clone()) {
            self.tells(|machine, effects| machine.ends_release(releasing, End::Unknown, effects));
        }
        match (from, kind) {
            (From::Actor(a), Kind::Acquire { .. }) => self.actors[a].does = Does::Attempts { want: 1 },
            (From::Actor(a), Kind::Reenter { want }) => self.actors[a].does = Does::Attempts { want },
            (From::Actor(a), _) => self.actors[a].does = Does::Releases,
            (From::Background, _) => {
                if let Some(background) = &mut self.background {
                    (background.is_sending, background.rests) = (false, 1);
                }
            }
            (From::Watchdog, _) => {
                self.is_renewing = false;
                self.tells(|machine, effects| machine.not_renewed(NOW.plus(TICK), effects));
            }
            (From::Confirmer, _) => {
                self.confirms = None;
                self.tells(|machine, _| machine.closes_to_readers());
            }
            (From::Nobody, _) => {}
        }
    }

    /// Drops the future of an owner at an await.
    fn is_dropped(&mut self, a: usize) {
        self.owes_report = false;
        for at in 0..2 {
            for index in 0..self.wires[at].len() {
                let sent = &mut self.wires[at][index];
                if sent.from == From::Actor(a) {
                    sent.from = From::Nobody;
                    if let Kind::Release(releasing) = sent.kind.clone() {
                        self.tells(|machine, effects| machine.ends_release(releasing, End::Unknown, effects));
                    }
                }
            }
        }
        match self.actors[a].does {
            Does::Attempts { .. } | Does::Asks { .. } => self.gives_up(a),
            _ => self.leaves(a),
        }
    }

    fn runs(&mut self, kind: &Kind) -> Ran {
        let is_free = self.count == 0;
        match kind {
            Kind::Acquire { .. } if is_free && self.other.is_some() => Ran::Held,
            Kind::Reenter { .. } | Kind::Renew | Kind::Confirm if is_free => Ran::Gone,
            Kind::Acquire { .. } => {
                (self.count, self.lease) = (self.count.max(1), LEASE);
                Ran::Granted
            }
            Kind::Reenter { want } => {
                (self.count, self.lease) = (*want, LEASE);
                Ran::Granted
            }
            Kind::Renew | Kind::Confirm => {
                self.lease = LEASE;
                Ran::Done
            }
            Kind::Release(_) if is_free => Ran::Gone,
            Kind::Release(releasing) => {
                self.count = releasing.shows.map_or(0, |(_, count)| count);
                Ran::Done
            }
        }
    }

    /// Visits the orders that the machine can still compare. The others belong to commands whose answers nobody learns.
    fn each_order(&mut self, change: &mut dyn FnMut(&mut Order)) {
        self.machine.copies.each_order(change);
        for sent in self.wires.iter_mut().flatten().filter(|sent| sent.from != From::Nobody) {
            change_order(&mut sent.kind, change);
        }
    }
}

fn change_order(kind: &mut Kind, change: &mut dyn FnMut(&mut Order)) {
    match kind {
        Kind::Acquire { order } | Kind::Release(Releasing { order, .. }) => change(order),
        Kind::Reenter { .. } | Kind::Renew | Kind::Confirm => {}
    }
}

/// Forgets of a command whose answer nobody learns what does not change what it does.
fn forget_asker(kind: &mut Kind) {
    change_order(kind, &mut |order| *order = 0);
    if let Kind::Release(releasing) = kind {
        (releasing.ends_hold, releasing.is_repeated) = (false, false);
        releasing.asks.clear();
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
        for (a, actor) in self.actors.iter().enumerate() {
            let at = |what| Name(what, 0, a);
            match actor.does {
                Does::Nothing if !actor.holds.is_empty() => {
                    add(at("unlocks"), &mut |w| w.gives_back(a, true));
                    add(at("drops its guard"), &mut |w| w.gives_back(a, false));
                    if self.reads && self.budget.delays > 0 {
                        // The hold is kept for one tick, in which the readers that wait are polled. Each keep uses up a
                        // delay of the budget, so a run has few of them.
                        add(at("keeps its hold for readers"), &mut |w| {
                            w.budget.delays -= 1;
                            let until = NOW.plus(TICK);
                            w.tells(|machine, _| machine.keeps_for_readers(until, EPOCH, NOW, &rules()));
                        });
                    }
                    if actor.calls > 0 {
                        add(at("re-enters"), &mut |w| {
                            w.actors[a].calls -= 1;
                            let want = w.tells(|machine, _| machine.reenters(actor.owner, NOW));
                            if let Some(want) = want {
                                w.actors[a].does = Does::Attempts { want };
                            }
                        });
                    }
                    if self.budget.leaks > 0 {
                        add(at("leaks its guard"), &mut |w| {
                            w.budget.leaks -= 1;
                            w.owes_report = false;
                            let id = w.actors[a].holds.pop();
                            let hold = w.machine.all_holds().find(|hold| Some(hold.id) == id).cloned();
                            w.tells(|machine, _| hold.iter().for_each(|hold| machine.leaks(hold, NOW)));
                        });
                    }
                }
                Does::Nothing if a == 1 && actor.calls > 0 && self.reads => add(at("joins"), &mut |w| {
                    w.actors[a].calls -= 1;
                    let (owner, began) = (actor.owner, here());
                    let until = w.tells(|machine, _| machine.joins(owner, began, EPOCH, NOW, &rules()));
                    if let Some(until) = until {
                        w.holds(a, until);
                    }
                }),
                Does::Nothing if a == 1 && actor.calls > 0 => add(at("waits"), &mut |w| {
                    w.actors[a].calls -= 1;
                    w.actors[a].does = Does::Waits;
                }),
                Does::Nothing => {}
                Does::Waits => {
                    // A thread can read the clock, and lock the mutex a tick later. So the offer is also taken with an
                    // earlier time.
                    for now in [NOW, NOW.minus(TICK)].into_iter().filter(|_| self.machine.is_offered()) {
                        add(at("takes the offer"), &mut |w| {
                            let (owner, began) = (actor.owner, here());
                            let take = |machine: &mut Machine<Hold>, effects: &mut _| {
                                machine.takes_offer(owner, began, EPOCH, now, effects)
                            };
                            match w.tells(take) {
                                Some(until) => w.holds(a, until),
                                None => w.actors[a].does = Does::Nothing,
                            }
                        });
                    }
                    add(at("waits no more"), &mut |w| {
                        w.actors[a].does = Does::Nothing;
                        w.tells(|machine, _| machine.takes_back());
                    });
                }
                Does::Attempts { .. } | Does::Asks { .. }
                    if !actor.holds.is_empty() && self.budget.drops > 0 =>
                {
                    // While the owner re-enters, another task can drop the guard of the outer section.
                    add(at("drops its guard"), &mut |w| {
                        let does = w.actors[a].does;
                        w.budget.drops -= 1;
                        w.gives_back(a, false);
                        w.actors[a].does = does;
                    });
                }
                _ => {}
            }
            match actor.does {
                Does::Attempts { want } => {
                    add(at("attempts"), &mut |w| w.attempts(a, want));
                    add(at("gives up"), &mut |w| w.gives_up(a));
                }
                Does::Releases => add(at("sends a release"), &mut |w| {
                    if w.sends_release(From::Actor(a)) {
                        w.actors[a].does = Does::Unlocks;
                    } else {
                        w.leaves(a);
                    }
                }),
                _ => {}
            }
            if self.budget.drops > 0 && !matches!(actor.does, Does::Nothing | Does::Waits) {
                add(at("is dropped"), &mut |w| {
                    w.budget.drops -= 1;
                    w.is_dropped(a);
                });
            }
        }
        for (c, wire) in self.wires.iter().enumerate() {
            let at = |what, index| Name(what, c, index);
            if let Some(next) = wire.iter().position(|sent| sent.ran.is_none()) {
                let kind = &wire[next].kind;
                add(at("runs", next), &mut |w| w.wires[c][next].ran = Some(w.runs(kind)));
                if *kind == Kind::Confirm && self.count > 0 {
                    add(at("finds somebody who waits", next), &mut |w| {
                        w.runs(kind);
                        w.wires[c][next].ran = Some(Ran::Held);
                    });
                }
                if self.budget.refusals > 0 {
                    add(at("is refused", next), &mut |w| {
                        w.budget.refusals -= 1;
                        w.owes_report = false;
                        w.wires[c][next].ran = Some(Ran::Refused);
                    });
                }
            }
            for (index, _) in wire.iter().enumerate().filter(|(_, sent)| sent.ran.is_some()) {
                add(at("is answered", index), &mut |w| w.learns(c, index));
            }
            if self.budget.breaks > 0 && !wire.is_empty() {
                add(at("breaks", 0), &mut |w| {
                    w.budget.breaks -= 1;
                    w.numbers[c] += 2;
                    for Sent { from, mut kind, ran, .. } in std::mem::take(&mut w.wires[c]) {
                        w.is_not_answered(from, kind.clone());
                        forget_asker(&mut kind);
                        w.late.extend(ran.is_none().then_some((kind, LATE)));
                    }
                });
            }
        }
        for (index, (kind, _)) in self.late.iter().enumerate() {
            add(Name("a copy runs late", 0, index), &mut |w| {
                w.late.remove(index);
                w.runs(kind);
            });
        }
        if let Some(Background { seen, ends: Some(forgets), .. }) = self.background {
            add(Name("the background ends", 0, 0), &mut |w| {
                w.background = None;
                w.tells(|machine, _| machine.background_ends(seen, forgets, NOW));
            });
        } else if let Some(Background { rests: 0, is_sending: false, .. }) = self.background
            && !((self.machine.attended > 0) && self.machine.is_owed(NOW))
        {
            add(Name("the background works", 0, 0), &mut Self::background_works);
        }
        if self.machine.kept_until().is_some_and(|until| until <= NOW) {
            add(Name("the minimum hold time ends", 0, 0), &mut |w| {
                w.tells(|machine, _| machine.ends_stay(NOW))
            });
        }
        let due = self.machine.clone().due(NOW, &rules()).filter(|due| *due <= NOW && !self.is_renewing);
        if let Some(due) = due {
            add(Name("the watchdog works", 0, 0), &mut |w| {
                let begins = |machine: &mut Machine<Hold>, effects: &mut _| {
                    machine.begins_renewal(due, NOW, &rules(), effects)
                };
                w.is_renewing = w.tells(begins).is_some();
                if w.is_renewing {
                    w.sends(USUAL, From::Watchdog, Kind::Renew);
                }
            });
        }
        if self.machine.confirms_at().is_some_and(|at| at <= NOW) && self.confirms.is_none() {
            add(Name("the time to confirm comes", 0, 0), &mut |w| {
                w.confirms = w.tells(|machine, _| machine.begins_confirmation(EPOCH, false, NOW));
                if w.confirms.is_some() {
                    w.sends(USUAL, From::Confirmer, Kind::Confirm);
                }
            });
        }
        if self.machine.lingers() {
            // The writer's call ends the idle hold, and is dropped before it sends the release. So the background has
            // to release.
            add(Name("a writer of the client comes", 0, 0), &mut |w| {
                if w.tells(|machine, _| machine.ends_idle()) {
                    w.tells(|machine, _| machine.no_longer_attended());
                }
            });
        }
        match self.other {
            None if self.count == 0 => add(Name("another client acquires", 1, 0), &mut |w| w.other = Some(2)),
            None => {}
            Some(_) => add(Name("another client releases", 1, 0), &mut |w| w.other = None),
        }
        if self.budget.removals > 0 && self.count > 0 {
            add(Name("somebody removes the hold", 1, 0), &mut |w| {
                w.budget.removals -= 1;
                w.owes_report = w.actors.iter().flat_map(|actor| &actor.holds).any(|id| w.is_valid(*id));
                (w.count, w.was_removed, w.was_lost) = (0, true, true);
            });
        }
        if self.budget.shutdowns > 0 {
            add(Name("a shutdown gives up", 0, 0), &mut |w| {
                w.budget.shutdowns -= 1;
                w.tells(|machine, _| machine.gives_up());
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
        self.lease = self.lease.saturating_sub(1);
        if self.lease == 0 && self.count > 0 {
            (self.count, self.was_lost) = (0, true);
        }
        self.stays = self.stays.saturating_sub(1);
        self.other = self.other.map(|left| left - 1).filter(|left| *left > 0);
        self.late.iter_mut().for_each(|(_, left)| *left -= 1);
        self.late.retain(|(_, left)| *left > 0);
        if let Some(background) = &mut self.background {
            background.rests = background.rests.saturating_sub(1);
            background.answered = background.answered.map(|ago| LATE_COPIES.min(ago + 1));
        }
        let floor = NOW.minus(TICK * FLOOR);
        let shift = &mut |time: &mut Moment| *time = time.minus(TICK).max(floor);
        let Machine { lease, stay, parts, given_back, .. } = &mut self.machine;
        shift(&mut lease.until);
        lease.granted_at.iter_mut().chain(&mut lease.renew_at).for_each(&mut *shift);
        match stay {
            Stay::None => {}
            Stay::Offered { until } | Stay::ForReaders { until } => shift(until),
            Stay::Lingers(lingering) => lingering.each_time(shift),
            Stay::Minimum { until, .. } => shift(until),
        }
        let holds = parts.iter_mut().flat_map(|part| &mut part.holds);
        holds.chain(given_back).for_each(|hold| shift(&mut hold.until));
        parts.iter_mut().for_each(|part| part.each_leaked(shift));
        for Sent { kind, at, .. } in self.wires.iter_mut().flatten() {
            shift(at);
            if let Kind::Release(releasing) = kind {
                releasing.asks.iter_mut().for_each(|hold| shift(&mut hold.until));
            }
        }
        // When the deadline of a guard has passed, the guard finds the loss by the clock. Then no other report is owed.
        self.owes_report &= self.actors.iter().flat_map(|actor| &actor.holds).all(|id| self.is_valid(*id));
    }

    fn normalize(&mut self) {
        for sent in self.wires.iter_mut().flatten().filter(|sent| sent.from == From::Nobody) {
            sent.at = NOW;
            forget_asker(&mut sent.kind);
        }
        self.wires
            .iter_mut()
            .for_each(|wire| wire.retain(|sent| sent.from != From::Nobody || sent.ran.is_none()));
        self.late.sort_by_key(|(kind, left)| (format!("{kind:?}"), *left));
        self.late.dedup();
        // The machine only compares orders. Renumbering them from zero merges worlds that differ only in the numbers.
        let mut orders = BTreeSet::new();
        self.each_order(&mut |order| {
            orders.insert(*order);
        });
        orders.insert(0);
        let orders: Vec<Order> = orders.into_iter().collect();
        self.each_order(&mut |order| *order = orders.binary_search(order).expect("collected") as Order);
        match &mut self.background {
            Some(background) => {
                let is_new = self.machine.requests != background.seen;
                (self.machine.requests, background.seen) = (is_new.into(), 0);
            }
            None => self.machine.requests = 0,
        }
    }

    fn check(&self, _: &[Step<Self>]) {
        let mut guards = self.actors.iter().flat_map(|actor| &actor.holds).filter(|id| self.is_valid(**id));
        let is_held = guards.next().is_some();
        assert!(!is_held || self.was_removed || self.count > 0, "a valid guard, and the server has no hold");
        assert!(!is_held || self.was_removed || self.other.is_none(), "two owners");
        assert!(self.count == 0 || self.machine.copies.may_exist(), "a hold that nobody counts");
        let can_create = |kind: &Kind| matches!(kind, Kind::Acquire { .. });
        let unrun = self.wires.iter().flatten().filter(|sent| sent.ran.is_none()).map(|sent| &sent.kind);
        let is_late = unrun.chain(self.late.iter().map(|(kind, _)| kind)).any(can_create);
        assert!(
            !is_late || self.machine.copies.may_exist(),
            "nobody waits for a copy that can create a hold"
        );
        let is_left = self.machine.is_owed(NOW) && self.machine.attended == 0 && self.background.is_none();
        assert!(
            self.stays == 0 || self.was_lost || self.count > 0,
            "released before its minimum hold time is over"
        );
        let is_checked =
            self.is_renewing || self.machine.clone().due(NOW, &rules()).is_some_and(|due| due <= NOW);
        assert!(
            !is_held || !self.machine.is_gone || is_checked,
            "a valid guard, and the server said that it has nothing"
        );
        assert!(!self.is_over() || !self.owes_report, "nobody is told of a removed hold");
        let is_confirmed = self.confirms.is_some() || self.machine.confirms_at().is_some();
        let is_watched = is_confirmed
            || self.is_renewing
            || self.is_leaked()
            || self.machine.clone().due(NOW, &rules()).is_some();
        assert!(!is_left || is_watched, "nobody releases what is owed");
        assert!(self.machine.attended <= 2, "attended for ever");
    }

    fn is_over(&self) -> bool {
        self.count == 0
            && self.other.is_none()
            && self.late.is_empty()
            && self.wires.iter().all(Vec::is_empty)
            && self.background.is_none()
            && self.actors.iter().all(|actor| actor.does == Does::Nothing && actor.holds.is_empty())
            && self.machine.attended == 0
            && (self.is_leaked() || !self.machine.copies.may_exist() && self.machine.parts.is_empty())
    }
}

/// Steps that need not come.
const QUIET: [&str; 20] = [
    "finds somebody who waits",
    "a writer of the client comes",
    "keeps its hold for readers",
    "unlocks",
    "drops its guard",
    "leaks its guard",
    "re-enters",
    "joins",
    "waits",
    "waits no more",
    "gives up",
    "is dropped",
    "is refused",
    "breaks",
    "a copy runs late",
    "another client acquires",
    "another client releases",
    "somebody removes the hold",
    "a shutdown gives up",
    TIME_PASSES,
];

const NOTHING: Budget =
    Budget { delays: 0, drops: 0, breaks: 0, refusals: 0, removals: 0, shutdowns: 0, leaks: 0 };

/// Visits small configurations as a whole, in each run of the tests. Also checks that each kind of step happens.
#[test]
fn every_state_of_the_small_configurations_keeps_the_rules() {
    let seen = visit([
        ("delays", World::new([0, 1], Budget { delays: 1, ..NOTHING })),
        ("re-entries", World::new([1, 0], Budget { drops: 1, ..NOTHING })),
        ("breaks", World::new([1, 0], Budget { breaks: 1, ..NOTHING })),
        ("breaks and drops", World::new([0, 1], Budget { breaks: 1, drops: 1, ..NOTHING })),
        ("refusals", World::new([1, 0], Budget { refusals: 1, ..NOTHING })),
        ("removals", World::new([0, 1], Budget { removals: 1, delays: 1, ..NOTHING })),
        ("removals and re-entries", World::new([1, 0], Budget { removals: 1, ..NOTHING })),
        ("shutdowns", World::new([1, 0], Budget { shutdowns: 1, ..NOTHING })),
        ("leaks", World::new([1, 0], Budget { leaks: 1, ..NOTHING })),
        ("readers", World::new([0, 1], Budget { drops: 1, delays: 1, ..NOTHING }).of_readers()),
        ("lingering", World::new([0, 1], Budget { drops: 1, ..NOTHING }).lingering()),
        ("lingering, a delay", World::new([0, 1], Budget { delays: 1, ..NOTHING }).lingering()),
        ("lingering, a removal", World::new([0, 1], Budget { removals: 1, ..NOTHING }).lingering()),
        ("lingering, a break", World::new([0, 1], Budget { breaks: 1, ..NOTHING }).lingering()),
        ("minimum hold", World::new([1, 1], Budget { drops: 1, ..NOTHING }).with_min_hold()),
        ("replicas", World::new([0, 1], Budget { breaks: 1, drops: 1, ..NOTHING }).syncing()),
    ]);
    for expected in QUIET.into_iter().chain([
        "attempts",
        "runs",
        "is answered",
        "sends a release",
        "takes the offer",
        "the background works",
        "the background ends",
        "the minimum hold time ends",
        "the watchdog works",
        "the time to confirm comes",
    ]) {
        assert!(seen.contains(expected), "never: {expected}");
    }
}

/// Visits the larger configurations of `scripts/nightly`.
#[test]
#[ignore = "takes minutes"]
fn every_state_of_the_large_configurations_keeps_the_rules() {
    visit([
        ("re-entries, a break and a drop", World::new([1, 0], Budget { breaks: 1, drops: 1, ..NOTHING })),
        ("a break and a delay", World::new([1, 0], Budget { breaks: 1, delays: 1, ..NOTHING })),
        ("two breaks", World::new([0, 0], Budget { breaks: 2, ..NOTHING })),
        ("two re-entries", World::new([2, 1], Budget { drops: 1, ..NOTHING })),
        ("a removal and a re-entry", World::new([1, 1], Budget { removals: 1, ..NOTHING })),
        ("a refusal and a drop", World::new([1, 1], Budget { refusals: 1, drops: 1, ..NOTHING })),
        ("a shutdown and a break", World::new([0, 1], Budget { shutdowns: 1, breaks: 1, ..NOTHING })),
        ("a leak and a drop", World::new([1, 1], Budget { leaks: 1, drops: 1, ..NOTHING })),
        ("readers and re-entries", World::new([1, 1], Budget { drops: 1, ..NOTHING }).of_readers()),
        ("replicas and re-entries", World::new([1, 1], Budget { breaks: 1, drops: 1, ..NOTHING }).syncing()),
        ("readers and delays", World::new([1, 1], Budget { delays: 1, drops: 1, ..NOTHING }).of_readers()),
        ("readers and breaks", World::new([0, 1], Budget { breaks: 1, ..NOTHING }).of_readers()),
        ("readers, a removal", World::new([0, 1], Budget { removals: 1, ..NOTHING }).of_readers()),
        ("lingering and re-entries", World::new([1, 1], Budget { drops: 1, ..NOTHING }).lingering()),
        ("lingering, two delays", World::new([1, 1], Budget { delays: 2, ..NOTHING }).lingering()),
        ("lingering, a refusal", World::new([0, 2], Budget { refusals: 1, drops: 1, ..NOTHING }).lingering()),
        ("lingering, a leak", World::new([0, 1], Budget { leaks: 1, delays: 1, ..NOTHING }).lingering()),
        ("minimum hold and breaks", World::new([1, 0], Budget { breaks: 1, ..NOTHING }).with_min_hold()),
        ("replicas, two breaks", World::new([0, 0], Budget { breaks: 2, ..NOTHING }).syncing()),
        ("replicas and delays", World::new([1, 0], Budget { breaks: 1, delays: 1, ..NOTHING }).syncing()),
    ]);
}
