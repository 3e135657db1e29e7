//! Visits every state that the machine, a model of the server and a model of the futures can reach, and checks rules in
//! each.
//!
//! Two clients have up to three waiters each, and one of them an attempt outside of the queue. They want one lock, or
//! one or two of the two permits of a semaphore. Or one client has readers, and the other a writer. The steps of all of
//! them come in every order, and time passes between any two steps. A configuration says how often something goes
//! wrong: a waiter is cancelled, or not polled any more, a reply is lost before or after the server ran the attempt, a
//! message connection breaks, a holder dies, or somebody deletes the lock's key. Times are counted in ticks, and kept
//! relative to now.
//!
//! Not modelled: readers that join a hold of their client, time limits, places in a fair
//! queue, and the reply of a release that is lost.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Discipline, Effects, Knowledge, Machine, Next, Rules, State, Ticket, Wakes};
use crate::base::clock::Moment;
use crate::engine::visit::{Model, Name, Step, TIME_PASSES, visit};

const TICK: Duration = Duration::from_millis(1);
const NOW: Moment = Moment::from_nanos(1_000_000_000);
/// Times that are more ticks ago than this are treated as equal.
const FLOOR: u32 = 7;
const LEASE: u8 = 3;
const HAND_OVER: Duration = Duration::from_millis(2);
const CLIENTS: usize = 2;

/// The owner of a hold: a client, and the number of its actor.
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
    /// The owners on the server, and how many ticks their leases last without renewal.
    holders: Holders,
    /// How many permits there are. A lock is like one permit. A read-write lock has one for each reader, and a writer
    /// wants all.
    total: u8,
    is_read_write: bool,
    clients: [Client; CLIENTS],
    budget: Budget,
    /// The lock became free because a lease ended, so there was no message.
    is_free_in_silence: bool,
    /// A call for another lock in the same row can make a call queue although nobody waits for its lock.
    shares_row: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    machine: Machine<Id, ()>,
    actors: Vec<Actor>,
    /// The server sends this client messages.
    is_subscribed: bool,
    /// The client wants messages.
    wants_messages: bool,
    is_connected: bool,
    /// Under way to the client: a message, and the confirmation of a subscription.
    message: bool,
    confirmation: bool,
    /// A message came after the hold of this client was removed.
    is_told: bool,
    /// The ids that the background has to release.
    undo: Vec<usize>,
    /// Attempts of which a copy can still run.
    late: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Actor {
    does: Does,
    ticket: Option<Ticket>,
    /// How many permits the actor wants.
    wants: u8,
    /// The actor attempts outside of the queue, and does not wait.
    is_try: bool,
    /// Nobody polls the actor's future any more.
    is_stalled: bool,
    /// The server granted the actor a hold. Before the actor saw the answer, the hold was removed, and the message
    /// came.
    is_told: bool,
    /// Another actor joined the queue while this one attempted outside of it.
    has_followers: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Does {
    Nothing,
    /// The actor waits until then, or until it is woken.
    Waits {
        until: Moment,
        is_woken: bool,
    },
    Asks,
    /// The server has answered. `Ok`: granted, and whether permits are left. `Err`: refused, and after how many ticks
    /// the first lease ends.
    Answered(Result<bool, u8>),
    /// The actor holds the lock with the id of this actor of its client. `is_removed`: the server no longer has the
    /// hold.
    Holds {
        id: usize,
        since: Moment,
        is_removed: bool,
    },
    Releases {
        id: usize,
    },
    /// The release was answered. `others`: whether other clients got the message. `None`: the hold was gone.
    Released {
        id: usize,
        others: Option<bool>,
    },
    Died,
    Done,
}

type Holders = SmallVec<[(Id, u8); 2]>;

fn ticks(count: u32) -> Duration {
    TICK * count
}

impl World {
    fn new(waiters: [usize; CLIENTS], tries: [usize; CLIENTS], budget: Budget) -> Self {
        let rules = Rules {
            discipline: Discipline::Exclusive,
            poll: ticks(5),
            poll_without_messages: ticks(2),
            overlooked: ticks(6),
            turn: ticks(1),
            answer: ticks(1),
            stalled: ticks(1),
            yield_after_release: ticks(1),
            yield_before_reply: ticks(2),
        };
        let clients = [0, 1].map(|client| {
            let actor = |is_try| Actor {
                does: Does::Nothing,
                ticket: None,
                wants: 1,
                is_try,
                is_stalled: false,
                is_told: false,
                has_followers: false,
            };
            let actors =
                (0..waiters[client]).map(|_| actor(false)).chain((0..tries[client]).map(|_| actor(true)));
            Client {
                machine: Machine::new(rules.clone()),
                actors: actors.collect(),
                is_subscribed: false,
                wants_messages: false,
                is_connected: true,
                message: false,
                confirmation: false,
                is_told: false,
                undo: Vec::new(),
                late: Vec::new(),
            }
        });
        let holders = Holders::new();
        let (is_read_write, is_free_in_silence, shares_row) = (false, false, false);
        Self { holders, total: 1, is_read_write, clients, budget, is_free_in_silence, shares_row }
    }

    /// Makes the lock a read-write lock: the first client reads, and the second writes.
    fn of_readers(mut self) -> Self {
        let [readers, writer] = &mut self.clients;
        self.total = u8::try_from(readers.actors.len()).expect("few");
        self.is_read_write = true;
        readers.machine =
            Machine::new(Rules { discipline: Discipline::Readers, ..readers.machine.rules.clone() });
        writer.actors.iter_mut().for_each(|writer| writer.wants = self.total);
        self
    }

    /// Makes the lock a semaphore of two permits. `wants`: how many permits each actor wants.
    fn of_permits(mut self, wants: [&[u8]; CLIENTS]) -> Self {
        self.total = 2;
        for (client, wants) in self.clients.iter_mut().zip(wants) {
            client.machine =
                Machine::new(Rules { discipline: Discipline::Permits, ..client.machine.rules.clone() });
            for (actor, wants) in client.actors.iter_mut().zip(wants) {
                actor.wants = *wants;
            }
        }
        self
    }

    fn sharing_a_row(self) -> Self {
        Self { shares_row: true, ..self }
    }

    fn has_permits(&self) -> bool {
        self.total > 1 && !self.is_read_write
    }

    fn has(&self, id: Id) -> bool {
        self.holders.iter().any(|(holder, _)| *holder == id)
    }

    /// How many permits this owner wants, or has.
    fn wants(&self, (c, a): Id) -> u8 {
        self.clients[c].actors[a].wants
    }

    fn available(&self) -> u8 {
        self.total - self.holders.iter().map(|(holder, _)| self.wants(*holder)).sum::<u8>()
    }

    /// Runs an acquire. `Ok`: granted, and whether permits are left. `Err`: refused, and after how many ticks the first
    /// lease ends.
    fn acquires(&mut self, id: Id) -> Result<bool, u8> {
        if !self.has(id) {
            if self.available() < self.wants(id) {
                return Err(self.holders.iter().map(|(_, left)| *left).min().expect("somebody has them"));
            }
            // The acquire script first removes permits whose leases have ended, and publishes a message.
            if self.is_free_in_silence && self.has_permits() {
                self.publishes();
            }
            self.is_free_in_silence = false;
            self.holders.push((id, LEASE));
        }
        Ok(self.available() > 0)
    }

    /// Runs a release. Returns which clients get the message. `None`: the server does not have the hold.
    fn releases(&mut self, id: Id) -> Option<[bool; CLIENTS]> {
        if !self.has(id) {
            return None;
        }
        self.holders.retain(|(holder, _)| *holder != id);
        // Readers hold the lock together: only the release of the last one frees the lock and publishes a message.
        let is_told = !self.is_read_write || self.holders.is_empty();
        Some(if is_told { self.publishes() } else { [false; CLIENTS] })
    }

    fn publishes(&mut self) -> [bool; CLIENTS] {
        let receivers = [0, 1].map(|c| self.clients[c].is_subscribed);
        for (client, receives) in self.clients.iter_mut().zip(receivers) {
            client.message |= receives;
        }
        receivers
    }

    /// Ends all holds without a release, as when the key is deleted.
    fn ends_holds(&mut self) {
        for ((c, id), _) in std::mem::take(&mut self.holders) {
            for actor in &mut self.clients[c].actors {
                if let Does::Holds { id: held, is_removed, .. } = &mut actor.does {
                    *is_removed |= *held == id;
                }
            }
        }
    }

    fn has_removed_hold(&self, c: usize) -> bool {
        let client = &self.clients[c];
        client.machine.offered.iter().any(|id| !self.has(*id))
            || client.actors.iter().any(|actor| matches!(actor.does, Does::Holds { is_removed: true, .. }))
    }

    fn joins(&mut self, c: usize, a: usize, comes_first: bool) {
        let client = &mut self.clients[c];
        let can_take_handoff = client.actors[a].wants == 1 || self.is_read_write;
        client.actors[a].ticket = Some(client.machine.join(can_take_handoff, comes_first, NOW));
        for other in client.actors.iter_mut().filter(|other| other.ticket.is_none()) {
            other.has_followers |= matches!(other.does, Does::Asks | Does::Answered(_));
        }
        client.actors[a].does = Does::Waits { until: NOW, is_woken: true };
    }

    fn polls(&mut self, c: usize, a: usize) {
        let client = &mut self.clients[c];
        let ticket = client.actors[a].ticket.expect("it joined");
        let in_front = client.front() == Some(a);
        match client.machine.next(ticket, None, NOW, |time| time) {
            Next::Wait { until, subscribes } => {
                client.actors[a].does = Does::Waits { until, is_woken: false };
                if subscribes && client.machine.subscribes() {
                    // The server confirms every subscription, also one that comes before it has processed the end of
                    // the previous one.
                    client.wants_messages = true;
                    client.confirmation |= client.is_subscribed;
                }
            }
            Next::Act => {
                let (offer, effects) = client.machine.takes_offer(ticket);
                client.performs(effects);
                if let Some((_, id)) = offer {
                    let is_removed = !self.has((c, id));
                    assert!(
                        !is_removed || !self.clients[c].is_told || self.total > 1,
                        "a removed hold was taken after a message"
                    );
                    let since = NOW;
                    // The waiter takes the id of the offered hold, so whatever its own attempts acquired has to be
                    // undone.
                    self.clients[c].undo.push(a);
                    self.holds(c, a, Does::Holds { id, since, is_removed }, false);
                } else {
                    let overlooked = client.machine.rules.overlooked;
                    let is_overlooked =
                        client.machine.attempted_at.is_some_and(|at| NOW.since(at) >= overlooked);
                    assert!(
                        in_front || is_overlooked || client.machine.rules.discipline == Discipline::Readers,
                        "it attempts before those in front of it"
                    );
                    client.tells(|machine| machine.attempts(ticket, NOW));
                    client.actors[a].does = Does::Asks;
                }
            }
        }
    }

    fn holds(&mut self, c: usize, a: usize, does: Does, leaves_permits: bool) {
        let client = &mut self.clients[c];
        let ticket = client.actors[a].ticket.take();
        client.actors[a].does = does;
        if let Some(ticket) = ticket {
            client
                .tells(|machine| machine.leaves_with_lock(ticket, ticks(LEASE.into()), leaves_permits, NOW));
            client.ends_queue();
        }
    }

    fn sees_answer(&mut self, c: usize, a: usize, answer: Result<bool, u8>) {
        let client = &mut self.clients[c];
        match (answer, client.actors[a].ticket) {
            (Ok(leaves_permits), _) if self.total > 1 => {
                let is_removed = !self.has((c, a));
                self.holds(c, a, Does::Holds { id: a, since: NOW, is_removed }, leaves_permits);
            }
            (Ok(_), _) => {
                let is_disturbed = client.machine.granted_anew(client.actors[a].ticket, NOW);
                let is_perhaps_gone = match client.actors[a].ticket {
                    Some(_) => is_disturbed,
                    None => client.actors[a].has_followers,
                };
                let since = if is_perhaps_gone { Moment::PAST } else { NOW };
                client.is_told = std::mem::take(&mut client.actors[a].is_told);
                let is_removed = !self.has((c, a));
                self.holds(c, a, Does::Holds { id: a, since, is_removed }, false);
            }
            (Err(_), None) if client.actors[a].is_try => client.actors[a].does = Does::Done,
            (Err(_), None) => {
                self.joins(c, a, true);
                self.sees_answer(c, a, answer);
            }
            (Err(left), Some(ticket)) => {
                client.machine.refused(ticket, Some(ticks(left.into())), NOW);
                client.actors[a].does = Does::Waits { until: NOW, is_woken: true };
            }
        }
    }

    fn fails(&mut self, c: usize, a: usize) {
        if self.clients[c].actors[a].ticket.is_none() {
            self.joins(c, a, true);
        }
        self.budget.lost_replies -= 1;
        let client = &mut self.clients[c];
        let ticket = client.actors[a].ticket.expect("it joined");
        client.machine.failed(ticket, (), TICK, NOW);
        client.undo.push(a);
        client.actors[a].does = Does::Waits { until: NOW, is_woken: true };
    }

    fn cancels(&mut self, c: usize, a: usize) {
        self.budget.cancels -= 1;
        self.leaves(c, a);
    }

    fn leaves(&mut self, c: usize, a: usize) {
        let client = &mut self.clients[c];
        let actor = &mut client.actors[a];
        actor.does = Does::Done;
        client.undo.push(a);
        if let Some(ticket) = actor.ticket.take() {
            client.tells(|machine| machine.leaves(ticket));
            client.ends_queue();
        }
    }

    fn gives_back(&mut self, c: usize, a: usize, id: usize, since: Moment, is_removed: bool) {
        // A reader offers nothing: others join its hold, or acquire one of their own.
        let is_one = self.wants((c, id)) == 1 && !self.is_read_write;
        let has_permits = self.total > 1;
        let client = &mut self.clients[c];
        let is_offered = is_one
            && client.machine.offers(HAND_OVER, NOW, |time, granted_at| {
                (NOW.since(since) < time && since >= granted_at).then_some((c, id))
            });
        if !is_offered {
            client.machine.release_begins(NOW);
            client.actors[a].does = Does::Releases { id };
            return;
        }
        let attempts =
            |actor: &Actor| actor.ticket.is_some() && matches!(actor.does, Does::Asks | Does::Answered(_));
        assert!(has_permits || !is_removed || !client.is_told, "a removed hold is offered after a message");
        assert!(
            has_permits || !client.actors.iter().any(attempts),
            "a hold is offered while a waiter attempts"
        );
        client.actors[a].does = Does::Done;
        client.performs(Effects::wakes(Wakes::Front));
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
            for a in 0..client.actors.len() {
                let actor = &client.actors[a];
                let at = |what| Name(what, c, a);
                match &actor.does {
                    Does::Nothing if client.has_twin_that_comes_first(a) => {}
                    Does::Nothing if actor.is_try => {
                        add(at("tries"), &mut |w| w.clients[c].actors[a].does = Does::Asks)
                    }
                    Does::Nothing => {
                        // A reader always joins the queue: readers that come during its attempt wait there, and share
                        // its hold.
                        let is_reader = client.machine.rules.discipline == Discipline::Readers;
                        if self.shares_row || is_reader || !client.is_idle() {
                            add(at("joins"), &mut |w| w.joins(c, a, false));
                        }
                        if client.is_idle() && !is_reader {
                            add(at("attempts alone"), &mut |w| w.clients[c].actors[a].does = Does::Asks);
                        }
                    }
                    Does::Waits { until, is_woken } if !actor.is_stalled => {
                        if *is_woken || *until <= NOW {
                            add(at("is polled"), &mut |w| w.polls(c, a));
                        }
                        if self.budget.cancels > 0 {
                            add(at("is cancelled"), &mut |w| w.cancels(c, a));
                        }
                        if self.budget.stalls > 0 {
                            add(at("is not polled any more"), &mut |w| {
                                w.budget.stalls -= 1;
                                w.clients[c].actors[a].is_stalled = true;
                            });
                        }
                    }
                    // A future that nobody polls is dropped in the end, so that every run can end.
                    Does::Waits { .. } => add(at("is dropped"), &mut |w| w.leaves(c, a)),
                    Does::Asks => {
                        add(at("is answered"), &mut |w| {
                            let answer = w.acquires((c, a));
                            w.clients[c].actors[a].does = Does::Answered(answer);
                        });
                        if self.budget.lost_replies > 0 && !actor.is_try {
                            add(at("loses its request for now"), &mut |w| {
                                w.clients[c].late.push(a);
                                w.fails(c, a);
                            });
                            add(at("loses its reply"), &mut |w| {
                                let _ = w.acquires((c, a));
                                w.fails(c, a);
                            });
                        }
                        if self.budget.cancels > 0 {
                            add(at("is cancelled while it asks"), &mut |w| {
                                w.clients[c].late.push(a);
                                w.cancels(c, a);
                            });
                        }
                    }
                    Does::Answered(answer) => {
                        add(at("sees the answer"), &mut |w| w.sees_answer(c, a, *answer));
                        if self.budget.cancels > 0 {
                            add(at("is cancelled before it sees the answer"), &mut |w| w.cancels(c, a));
                        }
                    }
                    Does::Holds { id, since, is_removed } => {
                        add(at("gives its hold back"), &mut |w| w.gives_back(c, a, *id, *since, *is_removed));
                        if self.budget.deaths > 0 {
                            add(at("dies"), &mut |w| {
                                w.budget.deaths -= 1;
                                w.clients[c].actors[a].does = Does::Died;
                            });
                        }
                    }
                    Does::Releases { id } => add(at("is released"), &mut |w| {
                        if w.clients[c].late.contains(id) {
                            w.clients[c].undo.push(*id);
                        }
                        let others = w.releases((c, *id));
                        w.clients[c].actors[a].does =
                            Does::Released { id: *id, others: others.map(|o| o[1 - c]) };
                    }),
                    Does::Released { others, .. } => add(at("sees its release"), &mut |w| {
                        w.clients[c].actors[a].does = Does::Done;
                        w.clients[c].tells(|machine| machine.release_ended(*others, NOW));
                        if others.is_none() {
                            w.clients[c].tells(|machine| machine.wakes(NOW));
                        }
                    }),
                    Does::Died | Does::Done => {}
                }
            }
            for a in client.late.clone() {
                add(Name("a late copy runs", c, a), &mut |w| {
                    w.clients[c].late.retain(|late| *late != a);
                    let _ = w.acquires((c, a));
                });
            }
            // A waiter that attempts again with the same id keeps what a late copy acquired.
            let is_used = |id: usize| {
                client.machine.offered.contains(&(c, id))
                    || client.actors.iter().enumerate().any(|(a, actor)| match actor.does {
                        Does::Asks | Does::Answered(_) => a == id,
                        Does::Holds { id: held, .. } | Does::Releases { id: held } => held == id,
                        _ => false,
                    })
            };
            for a in client.undo.iter().copied().filter(|a| !is_used(*a)) {
                add(Name("is undone", c, a), &mut |w| {
                    w.releases((c, a));
                    // The undo is repeated until no copy of the attempt can run.
                    if !w.clients[c].late.contains(&a) {
                        w.clients[c].undo.retain(|undone| *undone != a);
                    }
                });
            }
            if client.is_connected && client.is_subscribed != client.wants_messages {
                add(Name("(un)subscribes", c, 0), &mut |w| {
                    let client = &mut w.clients[c];
                    client.is_subscribed = client.wants_messages;
                    client.confirmation |= client.wants_messages;
                });
            }
            if client.confirmation {
                add(Name("gets a confirmation", c, 0), &mut |w| {
                    w.clients[c].confirmation = false;
                    w.clients[c].tells(|machine| machine.has_messages(true, NOW));
                });
            }
            if client.message {
                add(Name("gets a message", c, 0), &mut |w| {
                    w.clients[c].message = false;
                    w.clients[c].is_told |= w.has_removed_hold(c);
                    for a in 0..w.clients[c].actors.len() {
                        let is_granted = matches!(w.clients[c].actors[a].does, Does::Answered(Ok(_)));
                        let is_removed = !w.has((c, a));
                        w.clients[c].actors[a].is_told |= is_granted && is_removed;
                    }
                    w.clients[c].tells(|machine| machine.wakes(NOW));
                });
            }
            if client.is_connected && client.is_subscribed && self.budget.breaks > 0 {
                add(Name("loses its message connection", c, 0), &mut |w| {
                    w.budget.breaks -= 1;
                    let client = &mut w.clients[c];
                    (client.is_connected, client.is_subscribed, client.message) = (false, false, false);
                    client.confirmation = false;
                    client.tells(|machine| machine.has_messages(false, NOW));
                });
            }
            if !client.is_connected {
                add(Name("connects again", c, 0), &mut |w| w.clients[c].is_connected = true);
            }
            let machine = &client.machine;
            if machine.has_offer() && machine.offered_at.plus(machine.rules.stalled) <= NOW {
                add(Name("takes its offer back", c, 0), &mut |w| {
                    w.clients[c].tells(|machine| machine.takes_back(NOW));
                });
            }
        }
        if self.budget.removals > 0 && !self.holders.is_empty() {
            add(Name("the key is deleted", 0, 0), &mut |w| {
                w.budget.removals -= 1;
                w.ends_holds();
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
        // A holder renews its lease, and a client renews a hold that it offers. Every other lease runs out.
        let is_renewed = |clients: &[Client; CLIENTS], (c, id): Id| {
            let client = &clients[c];
            client.machine.offered.contains(&(c, id))
                || client.actors.iter().any(|actor| match actor.does {
                    Does::Holds { id: held, .. } | Does::Releases { id: held } => held == id,
                    _ => false,
                })
                || matches!(client.actors[id].does, Does::Answered(Ok(_)))
        };
        let count = self.holders.len();
        for (id, left) in &mut self.holders {
            *left = if is_renewed(&self.clients, *id) { LEASE } else { *left - 1 };
        }
        self.holders.retain(|(_, left)| *left > 0);
        self.is_free_in_silence |= self.holders.len() < count;
    }

    fn normalize(&mut self) {
        self.holders.sort_unstable();
        for client in &mut self.clients {
            client.undo.sort_unstable();
            client.undo.dedup();
            client.late.sort_unstable();
            client.late.dedup();
            client.machine.forget_old_answers();
            client.machine.forget_old_messages();
            for actor in &mut client.actors {
                if !matches!(actor.does, Does::Asks | Does::Answered(_)) {
                    (actor.is_told, actor.has_followers) = (false, false);
                }
            }
            if client.machine.offered.is_empty() {
                client.machine.offered_at = Moment::PAST; // without an offer, its time does not matter
            }
            if client.machine.is_empty() && client.machine.offered.is_empty() {
                client.machine.next = 0;
            }
        }
    }

    fn check(&self, steps: &[Step<Self>]) {
        let mut in_use = 0;
        for (c, client) in self.clients.iter().enumerate() {
            for actor in &client.actors {
                if let Does::Holds { id, is_removed: false, .. } = actor.does {
                    in_use += self.wants((c, id));
                }
            }
        }
        assert!(in_use <= self.total, "two owners");
        for client in &self.clients {
            assert!(
                client.wants_messages || !client.machine.gets_messages(),
                "a queue waits for messages to which nobody subscribed"
            );
        }
        for ((c, id), _) in self.holders.iter().copied() {
            let client = &self.clients[c];
            let is_known = client.undo.contains(&id)
                || client.machine.offered.contains(&(c, id))
                || client.actors.iter().enumerate().any(|(a, actor)| match actor.does {
                    Does::Holds { id: held, .. } | Does::Releases { id: held } => held == id,
                    Does::Died => true,
                    Does::Waits { .. } | Does::Asks | Does::Answered(_) => a == id,
                    _ => false,
                });
            assert!(is_known, "nobody releases a hold");
        }
        // If no step has to come, only time can wake a waiter, so no waiter may sleep beside a free lock. A waiter
        // whose own attempt was perhaps granted may: it looks at its next poll. A reader that could give its hold back
        // does not count as a step that has to come: other readers can acquire meanwhile.
        let is_reading = self.is_read_write && self.available() > 0;
        let is_quiet = |name: Name| QUIET.contains(&name.0) || is_reading && name.0 == "gives its hold back";
        if !self.is_free_in_silence && steps.iter().all(|step| is_quiet(step.name)) {
            for client in &self.clients {
                let Some(front) = client.front() else { continue };
                let gets_messages = client.is_subscribed && client.machine.gets_messages();
                let yields = client.machine.yields_until > NOW;
                let fails = matches!(client.machine.knowledge, Knowledge::Failing { .. });
                if !gets_messages || yields || fails || client.actors[front].is_stalled {
                    continue;
                }
                // A reader that is granted the lock calls all waiting readers, so none of them may sleep.
                let is_reader = client.machine.rules.discipline == Discipline::Readers;
                let waiting = client.actors.iter().enumerate();
                for (_, actor) in
                    waiting.filter(|(a, actor)| *a == front || is_reader && actor.ticket.is_some())
                {
                    assert!(self.available() < actor.wants, "a waiter sleeps beside a free lock");
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.holders.is_empty()
            && self.clients.iter().all(|client| {
                client.undo.is_empty()
                    && client.actors.iter().all(|actor| matches!(actor.does, Does::Done | Does::Died))
            })
    }
}

/// Steps that need not come.
const QUIET: [&str; 14] = [
    TIME_PASSES,
    "joins",
    "attempts alone",
    "tries",
    "is cancelled",
    "is cancelled while it asks",
    "is not polled any more",
    "is cancelled before it sees the answer",
    "is dropped",
    "loses its request for now",
    "loses its reply",
    "loses its message connection",
    "dies",
    "the key is deleted",
];

impl Client {
    /// Whether no call of the client acquires the lock.
    fn is_idle(&self) -> bool {
        !self.actors.iter().any(|a| matches!(a.does, Does::Waits { .. } | Does::Asks | Does::Answered(_)))
    }

    /// Whether an equal actor with a smaller number has not begun. Which of two equal actors begins first makes no
    /// difference, so only the first one begins.
    fn has_twin_that_comes_first(&self, a: usize) -> bool {
        self.actors[..a].contains(&self.actors[a])
    }

    /// Returns the waiter that stands in front.
    fn front(&self) -> Option<usize> {
        let waiters = self.actors.iter().enumerate().filter_map(|(a, actor)| Some((actor.ticket?, a)));
        waiters.min().map(|(_, a)| a)
    }

    fn tells(&mut self, event: impl FnOnce(&mut Machine<Id, ()>) -> Effects<Id>) {
        let effects = event(&mut self.machine);
        self.performs(effects);
    }

    fn performs(&mut self, Effects { wakes, dropped }: Effects<Id>) {
        let front = self.machine.front();
        for actor in &mut self.actors {
            let is_it = match wakes {
                Wakes::Nobody => false,
                Wakes::Front => actor.ticket == front,
                Wakes::All => true,
            };
            if let Does::Waits { is_woken, .. } = &mut actor.does {
                *is_woken |= is_it;
            }
        }
        self.undo.extend(dropped.into_iter().map(|(_, id)| id));
    }

    /// Ends the queue and its subscription, if the last waiter has left.
    fn ends_queue(&mut self) {
        if self.machine.is_empty() {
            self.machine = Machine::new(self.machine.rules.clone());
            self.wants_messages = false;
        }
    }

    fn shift(&mut self) {
        let floor = NOW.minus(ticks(FLOOR));
        let shift = |moment: &mut Moment| {
            if *moment != Moment::PAST && *moment != super::NEVER {
                *moment = moment.minus(TICK).max(floor);
            }
        };
        let machine = &mut self.machine;
        machine.woken_at.as_mut().map(shift);
        machine.attempted_at.as_mut().map(shift);
        shift(&mut machine.granted_at);
        shift(&mut machine.yields_until);
        if machine.yields_until <= NOW {
            machine.yields_until = Moment::PAST;
        }
        shift(&mut machine.offered_at);
        match &mut machine.knowledge {
            Knowledge::Held { until: Some(until) } => {
                shift(until);
                *until = (*until).max(NOW);
            }
            Knowledge::Failing { since, failed_at, retry_at, .. } => {
                (*since, *failed_at) = (NOW, NOW);
                shift(retry_at);
                *retry_at = (*retry_at).max(NOW);
            }
            Knowledge::Unknown | Knowledge::Open | Knowledge::Held { until: None } => {}
        }
        if let Some(at) = &mut machine.polls_at {
            shift(at);
            *at = (*at).max(NOW);
        }
        let front = machine.waiters.front.as_mut().map(|(_, waiter)| waiter);
        for waiter in front.into_iter().chain(machine.waiters.behind.values_mut()) {
            shift(&mut waiter.joined_at);
            if let State::ForAnswer { until, .. } = &mut waiter.state {
                shift(until);
                *until = (*until).max(NOW);
            }
        }
        for actor in &mut self.actors {
            match &mut actor.does {
                Does::Waits { until, .. } => {
                    shift(until);
                    *until = (*until).max(NOW);
                }
                Does::Holds { since, .. } => shift(since),
                _ => {}
            }
        }
    }
}

impl Machine<Id, ()> {
    /// Reduces the counts of answers to what matters: whether an answer came since a reader began to wait for one.
    fn forget_old_answers(&mut self) {
        let front = self.waiters.front.as_mut().map(|(_, waiter)| waiter);
        for waiter in front.into_iter().chain(self.waiters.behind.values_mut()) {
            if let State::ForAnswer { answers, .. } = &mut waiter.state {
                *answers = u64::from(*answers == self.answers);
            }
        }
        self.answers = 1;
    }

    /// Reduces the counts of messages to what matters: whether a message came during an attempt.
    fn forget_old_messages(&mut self) {
        let front = self.waiters.front.as_mut().map(|(_, waiter)| waiter);
        for waiter in front.into_iter().chain(self.waiters.behind.values_mut()) {
            let is_quiet = waiter.disturbances == self.disturbances || waiter.state != State::Attempting;
            waiter.disturbances = u64::from(is_quiet);
        }
        self.disturbances = 1;
    }
}

const NOTHING: Budget =
    Budget { delays: 0, cancels: 0, stalls: 0, lost_replies: 0, breaks: 0, deaths: 0, removals: 0 };

/// Visits small configurations as a whole, in each run of the tests.
#[test]
fn every_state_of_the_small_configurations_keeps_the_rules() {
    visit([
        ("delays", World::new([2, 0], [0, 1], Budget { delays: 1, ..NOTHING })),
        ("cancels", World::new([2, 1], [0, 0], Budget { cancels: 1, ..NOTHING }).sharing_a_row()),
        ("stalls", World::new([2, 1], [0, 0], Budget { stalls: 1, ..NOTHING })),
        ("lost replies", World::new([2, 0], [0, 1], Budget { lost_replies: 1, ..NOTHING }).sharing_a_row()),
        ("breaks", World::new([2, 1], [0, 0], Budget { breaks: 1, ..NOTHING })),
        ("deaths", World::new([2, 1], [0, 0], Budget { deaths: 1, ..NOTHING })),
        ("removals", World::new([2, 0], [0, 1], Budget { removals: 1, ..NOTHING })),
        ("tries", World::new([2, 0], [1, 1], NOTHING).sharing_a_row()),
        ("permits, delays", permits([2, 0], Budget { delays: 1, ..NOTHING })),
        ("permits, cancels", permits([2, 1], Budget { cancels: 1, ..NOTHING }).sharing_a_row()),
        ("permits, stalls", permits([2, 1], Budget { stalls: 1, ..NOTHING })),
        ("permits, deaths", permits([2, 1], Budget { deaths: 1, ..NOTHING })),
        ("permits, removals", permits([2, 0], Budget { removals: 1, ..NOTHING })),
    ]);
}

/// A reader whose attempt began before the call to all readers, and was refused after it, acts at once.
#[test]
fn every_state_of_readers_and_a_writer_keeps_the_rules() {
    visit([
        ("readers, delays", World::new([2, 1], [0, 0], Budget { delays: 1, ..NOTHING }).of_readers()),
        ("readers, cancels", World::new([2, 1], [0, 0], Budget { cancels: 1, ..NOTHING }).of_readers()),
    ]);
}

/// Two permits, and a call that wants both.
fn permits(waiters: [usize; CLIENTS], budget: Budget) -> World {
    let tries = [0, 1 - waiters[1]];
    World::new(waiters, tries, budget).of_permits([&[2, 1], &[1]])
}

/// Visits the larger configurations of `scripts/nightly`.
#[test]
#[ignore = "takes minutes"]
fn every_state_of_the_large_configurations_keeps_the_rules() {
    visit([
        ("three waiters", World::new([3, 0], [0, 1], Budget { cancels: 1, ..NOTHING })),
        ("delays", World::new([2, 1], [0, 0], Budget { delays: 1, ..NOTHING })),
        ("removals", World::new([2, 1], [0, 0], Budget { removals: 1, ..NOTHING })),
        ("three and one", World::new([3, 1], [0, 0], NOTHING)),
        ("two cancels", World::new([2, 1], [0, 0], Budget { cancels: 2, ..NOTHING })),
        ("two lost replies", World::new([2, 1], [0, 0], Budget { lost_replies: 2, ..NOTHING })),
        (
            "a lost reply and a cancel",
            World::new([2, 1], [0, 0], Budget { lost_replies: 1, cancels: 1, ..NOTHING }),
        ),
        ("a break and a removal", World::new([2, 1], [0, 0], Budget { breaks: 1, removals: 1, ..NOTHING })),
        ("a death and a stall", World::new([2, 1], [0, 0], Budget { deaths: 1, stalls: 1, ..NOTHING })),
        ("three readers", World::new([3, 1], [0, 0], NOTHING).of_readers()),
        ("readers, breaks", World::new([2, 1], [0, 0], Budget { breaks: 1, ..NOTHING }).of_readers()),
        ("permits, breaks", permits([2, 1], Budget { breaks: 1, ..NOTHING })),
        ("permits, lost replies", permits([2, 0], Budget { lost_replies: 1, ..NOTHING }).sharing_a_row()),
        ("permits, three and one", World::new([3, 1], [0, 0], NOTHING).of_permits([&[1, 2, 1], &[1]])),
        ("permits, a death and a cancel", permits([2, 1], Budget { deaths: 1, cancels: 1, ..NOTHING })),
        (
            "permits, a lost reply and a stall",
            permits([2, 1], Budget { lost_replies: 1, stalls: 1, ..NOTHING }),
        ),
    ]);
}
