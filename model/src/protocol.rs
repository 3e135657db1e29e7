//! The protocol: clients, a network that loses and delays, deaths, expiries and a clock, as a model that [`stateright`] explores.
//!
//! A client keeps to these rules. It uses a new owner for each acquire, except a fair waiter and a writer, which attempt again. It relies on a hold until the lease is over, counted from
//! before it sent the command. An acquire that it gave up is released, and once more when no copy of the acquire can run any more.

use stateright::{Model, Property};

use crate::{Call, Counter, Fault, Hash, Holder, Mode, Ms, Owner, Permit, Reply, State, step_with};

/// Seconds of the server's time. The first one is 1.
pub type Second = i64;

/// How long a lease lasts, and for how long after its sending an acquire can take effect.
const LEASE: Second = 2;
const VALID: Second = 1;
/// How long a waiter counts as alive after it was heard: `ALLOWANCE` and a third of it.
const ALLOWANCE: Ms = 1_500;
const ALIVE: Ms = 2_000;
/// When all that has an expiry is gone.
const DAYS: Ms = 3 * 86_400_000;

/// What a client acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Role {
    Lock,
    /// Claims the lock as the one name of a list.
    Claim,
    Fenced,
    Fair,
    Reader,
    Writer,
    /// So many permits of a semaphore.
    Permits(u8),
}

/// What is explored: who takes part, and how much goes wrong at most.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Its name on the command line.
    pub name: &'static str,
    /// One client each.
    pub roles: Vec<Role>,
    /// How often each client acquires.
    pub acquires: u8,
    /// The permits of the semaphore.
    pub total: i64,
    /// The last second of the clock.
    pub end: Second,
    /// How much goes wrong at most: commands and replies that are lost, commands that are sent again although the first copy can still
    /// run, and clients that die.
    pub faults: u8,
    /// What is wrong with the scripts.
    pub fault: Option<Fault>,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The clock of the server, which all clients share.
    pub now: Second,
    /// What the server has.
    pub server: State,
    /// The clients, in the order of their roles.
    pub clients: Vec<Client>,
    /// Commands that the server has not run yet.
    pub network: Vec<Packet>,
    /// How much can still go wrong.
    pub faults: u8,
    /// The waiters in the order in which they reached the server, and until when they count as alive.
    pub order: Vec<(Owner, Ms)>,
    /// The last token.
    pub token: i64,
    /// The rule that the last command broke.
    pub broken: Option<Rule>,
}

/// What a client knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// What it does.
    pub phase: Phase,
    /// How often it has acquired.
    pub attempt: u8,
    /// Copies of its acquire without an answer, and the last second in which one can take effect.
    pub open: u8,
    /// See `open`.
    pub open_until: Second,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has nothing on the server.
    Idle,
    /// It sent an acquire.
    Asks,
    /// Its acquire was refused.
    Waits,
    /// It relies on its hold before this second.
    Holds(Second),
    /// It has sent a release, or has to.
    Ends,
    /// It is gone.
    Dead,
}

/// A command on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// The client.
    pub client: usize,
    /// Of which acquire the command is part.
    pub attempt: u8,
    /// When it was sent.
    pub sent: Second,
    /// What it does.
    pub what: What,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum What {
    Acquire,
    Renew,
    Heartbeat,
    Release,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client sends a command.
    Send(usize, What, Fate),
    /// The server runs a command that was delayed, or a copy of one that was sent again.
    Run(Packet),
    /// A command that was delayed does not arrive.
    Drop(Packet),
    /// A client dies.
    Die(usize),
    /// A second passes.
    Tick,
}

/// What happens to a command. All but the first are faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The server runs it, and the client gets the reply.
    Answered,
    /// The server runs it, and the reply is lost.
    Unanswered,
    /// It is still on its way.
    Delayed,
}

/// A rule about one command, as `docs/guarantees.md` states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of the properties say it")]
pub enum Rule {
    StaleRelease,
    Revived,
    Token,
    Order,
    DeadWaiter,
}

impl Protocol {
    /// All that `check` explores.
    pub fn all() -> Vec<Self> {
        use Role::{Claim, Fair, Fenced, Lock, Permits, Reader, Writer};
        let of = |name, roles: &[Role], acquires, end, faults| Self {
            name,
            roles: roles.to_vec(),
            acquires,
            total: 2,
            end,
            faults,
            fault: None,
        };
        vec![
            of("lock", &[Lock, Lock], 1, 6, 2),
            of("claim", &[Claim, Claim, Lock], 1, 4, 1),
            of("fenced", &[Fenced, Fenced], 2, 5, 1),
            of("fair", &[Fair, Fair], 1, 5, 1),
            of("queue", &[Fair, Fair, Fair], 1, 4, 1),
            of("reader", &[Reader, Writer], 1, 6, 2),
            of("readers", &[Reader, Reader, Writer], 1, 4, 1),
            of("writers", &[Reader, Writer, Writer], 1, 4, 1),
            of("semaphore", &[Permits(1), Permits(1), Permits(2)], 1, 4, 1),
        ]
    }

    fn owner(&self, client: usize, attempt: u8) -> Owner {
        Owner::try_from(client).expect("few clients") * 10 + attempt
    }

    fn ids(&self, client: usize, attempt: u8, count: u8) -> Vec<Permit> {
        (0..count).map(|number| self.owner(client, attempt) * 2 + number).collect()
    }

    /// The call of a script that a packet is.
    fn call(&self, packet: &Packet) -> Call {
        let Packet { client, attempt, sent, what } = *packet;
        let (owner, grant, lock) = (self.owner(client, attempt), i64::from(attempt), 0);
        let (lease, valid_until, holder) = (LEASE * 1000, sent + VALID, Holder::Owner(owner));
        let allowance = ALLOWANCE;
        match (what, self.roles[client]) {
            (What::Heartbeat, _) => Call::Heartbeat { owners: vec![owner], allowance, valid_until },
            (What::Acquire, Role::Lock) => Call::Acquire { lock, owner, lease, valid_until },
            (What::Acquire, Role::Claim) => Call::Claim { locks: vec![lock], owner, lease, valid_until },
            (What::Acquire, Role::Fenced) => Call::Fence { owner, lease, valid_until },
            (What::Acquire, Role::Fair) => Call::Queue { owner, lease, allowance, valid_until },
            (What::Acquire, Role::Reader) => Call::Read { owner, grant, lease, valid_until },
            (What::Acquire, Role::Writer) => Call::Write { owner, lease, turn: 1000, valid_until },
            (What::Renew, Role::Reader) => Call::ReadRenew { owner, grant, lease, keep: 0 },
            (What::Renew, Role::Writer) => Call::Renew { lock, holder: Holder::Writer(owner), lease },
            (What::Renew, Role::Lock | Role::Claim | Role::Fenced | Role::Fair) => {
                Call::Renew { lock, holder, lease }
            }
            (What::Release, Role::Lock | Role::Claim | Role::Fenced) => Call::Release { lock, owner },
            (What::Release, Role::Fair) => Call::Leave { owner },
            (What::Release, Role::Reader) => Call::ReadRelease { owner, grant, usual: lease },
            (What::Release, Role::Writer) => Call::WriteRelease { owner },
            (_, Role::Permits(count)) => {
                let ids = self.ids(client, attempt, count);
                match what {
                    What::Acquire => Call::Take { ids, total: self.total, lease, valid_until },
                    What::Renew => Call::TakeRenew { ids, lease },
                    _ => Call::Give { ids },
                }
            }
        }
    }

    /// What a client does before it sends a command.
    fn send(&self, world: &mut World, number: usize, what: What) -> Packet {
        let (client, sent) = (&mut world.clients[number], world.now);
        match what {
            What::Acquire => {
                client.attempt += u8::from(client.phase == Phase::Idle);
                client.open_until = sent + VALID;
                client.phase = Phase::Asks;
                client.open += 1;
            }
            What::Release => client.phase = Phase::Ends,
            _ => {}
        }
        Packet { client: number, attempt: client.attempt, sent, what }
    }

    /// The server runs a command. Returns the reply, after it was looked at whether the command broke a rule.
    fn run(&self, world: &mut World, packet: &Packet) -> Reply {
        let (before, now) = (world.server.clone(), world.now * 1000);
        let call = self.call(packet);
        let (reply, _) = step_with(self.fault, &mut world.server, &call, now * 1000);
        let owner = self.owner(packet.client, packet.attempt);
        let (had, has) = (holds(&before, now), holds(&world.server, now));
        let is_mine = |hold: &Hold| match (hold, &call) {
            (Hold::Permit(id), Call::Take { ids, .. } | Call::Give { ids } | Call::TakeRenew { ids, .. }) => {
                ids.contains(id)
            }
            (Hold::Lock(Holder::Owner(other) | Holder::Writer(other)), _) => *other == owner,
            _ => false,
        };
        let others =
            |all: &[(Hold, Ms)]| all.iter().copied().filter(|(hold, _)| !is_mine(hold)).collect::<Vec<_>>();
        let is_grant =
            has.iter().any(|(hold, _)| is_mine(hold)) && !had.iter().any(|(hold, _)| is_mine(hold));
        let mut broken = None;
        if others(&had) != others(&has) {
            broken = Some(Rule::StaleRelease);
        }
        if packet.what != What::Acquire && is_grant {
            broken = Some(Rule::Revived);
        }
        if let Reply::Token(token) | Reply::Claimed(_, token) = reply {
            if is_grant && token <= world.token {
                broken = Some(Rule::Token);
            }
            world.token = world.token.max(token);
        }
        if self.roles[packet.client] == Role::Fair {
            broken = self.order(world, packet, &reply, is_grant, had.is_empty()).or(broken);
        }
        world.broken = broken;
        reply
    }

    /// Keeps the order of the waiters for a fair lock, and looks whether a grant keeps to it.
    fn order(
        &self,
        world: &mut World,
        packet: &Packet,
        reply: &Reply,
        is_grant: bool,
        was_free: bool,
    ) -> Option<Rule> {
        let (owner, now) = (self.owner(packet.client, packet.attempt), world.now * 1000);
        let in_front = world.order.iter().take_while(|(other, _)| *other != owner);
        let is_first = in_front.into_iter().all(|(_, until)| *until <= now);
        let place = world.order.iter().position(|(other, _)| *other == owner);
        let is_late = *reply == Reply::Late;
        let broken = match packet.what {
            What::Acquire if is_grant && !is_first => Some(Rule::Order),
            What::Acquire if was_free && is_first && !is_grant && !is_late => Some(Rule::DeadWaiter),
            _ => None,
        };
        let keeps = match reply {
            Reply::Late => return broken,
            Reply::List(replies) => replies[0] != Reply::Lost,
            _ => packet.what == What::Acquire && !is_grant && *reply != Reply::Done,
        };
        match place {
            // It was dead, and others have removed it.
            Some(place) if *reply == Reply::Queued && world.order[place].1 <= now => {
                world.order.remove(place);
            }
            Some(place) if keeps => {
                world.order[place].1 = now + ALIVE;
                return broken;
            }
            Some(place) if packet.what != What::Heartbeat => {
                world.order.remove(place);
            }
            _ => {}
        }
        if keeps {
            world.order.push((owner, now + ALIVE));
        }
        broken
    }

    /// The client gets a reply.
    fn receive(&self, world: &mut World, packet: &Packet, reply: &Reply) {
        let client = &mut world.clients[packet.client];
        if client.attempt != packet.attempt || matches!(client.phase, Phase::Idle | Phase::Dead) {
            return;
        }
        if packet.what == What::Acquire {
            client.open -= 1;
        }
        let until = packet.sent + LEASE;
        let is_granted = packet.what == What::Acquire
            && match reply {
                Reply::Done => self.roles[packet.client] != Role::Claim, // a claim that finds nothing free
                reply => matches!(reply, Reply::Token(_) | Reply::Claimed(..) | Reply::Permits(..)),
            };
        client.phase = match (client.phase, packet.what, reply) {
            (Phase::Asks | Phase::Waits, ..) if is_granted => Phase::Holds(until),
            (Phase::Asks, What::Acquire, _) => Phase::Waits,
            (Phase::Holds(before), What::Renew, Reply::Renewed) => Phase::Holds(before.max(until)),
            (Phase::Holds(before), ..) if is_granted => Phase::Holds(before.max(until)),
            (Phase::Holds(_), What::Renew, _) => Phase::Ends,
            (Phase::Ends, What::Release, _) if client.open == 0 || packet.sent > client.open_until => {
                *client = Client { phase: Phase::Idle, open: 0, open_until: 0, ..*client };
                return;
            }
            (phase, ..) => phase,
        };
    }

    /// Whether nobody does anything any more.
    fn has_ended(&self, world: &World) -> bool {
        let is_over = |client: &Client| match client.phase {
            Phase::Idle => client.attempt == self.acquires,
            phase => phase == Phase::Dead,
        };
        world.network.is_empty() && world.clients.iter().all(is_over)
    }

    /// The clients whose guards are valid.
    fn valid(&self, world: &World) -> Vec<Role> {
        let valid = |client: &Client| matches!(client.phase, Phase::Holds(until) if world.now < until);
        self.roles
            .iter()
            .zip(&world.clients)
            .filter(|(_, client)| valid(client))
            .map(|(role, _)| *role)
            .collect()
    }
}

/// A hold on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Lock(Holder),
    Permit(Permit),
}

/// The holds on the server that have not ended, and their ends.
fn holds(server: &State, now: Ms) -> Vec<(Hold, Ms)> {
    let mut server = server.clone();
    server.expire(now);
    let hash: Option<&Hash> = server.hash(0);
    let is_read = |hash: &Hash| hash.mode == Some(Mode::Read);
    let of_lock = hash.into_iter().flat_map(|hash| {
        hash.holders.keys().filter_map(|holder| match *holder {
            Holder::Owner(owner) if is_read(hash) => Some((Hold::Lock(*holder), server.reader_ends(owner)?)),
            _ => Some((Hold::Lock(*holder), hash.ends?)),
        })
    });
    let of_permits = server.permits.iter().filter(|(_, ends)| **ends >= now);
    of_lock.chain(of_permits.map(|(id, ends)| (Hold::Permit(*id), *ends))).collect()
}

/// Whether only counters are left.
fn is_empty(server: &State) -> bool {
    let State { locks, reads, intent, queue, .. } = server;
    *locks == [None, None, None] && reads.is_empty() && intent.is_none() && *queue == Default::default()
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let client = Client { phase: Phase::Idle, attempt: 0, open: 0, open_until: 0 };
        vec![World {
            now: 1,
            server: State::default(),
            clients: vec![client; self.roles.len()],
            network: Vec::new(),
            faults: self.faults,
            order: Vec::new(),
            token: 0,
            broken: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let can_fail = world.faults > 0;
        let fates =
            if can_fail { &[Fate::Answered, Fate::Unanswered, Fate::Delayed][..] } else { &[Fate::Answered] };
        for (number, client) in world.clients.iter().enumerate() {
            let whats: &[What] = match client.phase {
                Phase::Idle if client.attempt < self.acquires => &[What::Acquire],
                Phase::Waits if self.roles[number] == Role::Fair => {
                    &[What::Acquire, What::Heartbeat, What::Release]
                }
                // Without an answer, only those that have a place or an intent attempt again. Others give up.
                Phase::Asks if !matches!(self.roles[number], Role::Fair | Role::Writer) => &[What::Release],
                Phase::Asks | Phase::Waits => &[What::Acquire, What::Release],
                Phase::Holds(until) if until < world.now + LEASE => &[What::Renew, What::Release],
                Phase::Holds(_) | Phase::Ends => &[What::Release],
                Phase::Idle | Phase::Dead => &[],
            };
            let sends =
                whats.iter().flat_map(|what| fates.iter().map(|fate| Action::Send(number, *what, *fate)));
            actions.extend(sends);
            if can_fail && !matches!(client.phase, Phase::Idle | Phase::Dead) {
                actions.push(Action::Die(number));
            }
        }
        for packet in &world.network {
            actions.extend([Action::Run(packet.clone()), Action::Drop(packet.clone())]);
        }
        if world.now < self.end {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Tick => world.now += 1,
            Action::Die(client) => {
                world.faults -= 1;
                world.clients[client].phase = Phase::Dead;
            }
            Action::Send(number, what, fate) => {
                let packet = self.send(&mut world, number, what);
                if fate != Fate::Answered {
                    world.faults -= 1;
                }
                match fate {
                    Fate::Delayed => world.network.push(packet),
                    Fate::Unanswered => drop(self.run(&mut world, &packet)),
                    Fate::Answered => {
                        let reply = self.run(&mut world, &packet);
                        self.receive(&mut world, &packet, &reply);
                    }
                }
            }
            Action::Run(packet) => {
                take(&mut world.network, &packet);
                let reply = self.run(&mut world, &packet);
                self.receive(&mut world, &packet, &reply);
            }
            Action::Drop(packet) => take(&mut world.network, &packet),
        }
        world.network.sort_by_key(|packet| (packet.client, packet.attempt, packet.sent, packet.what));
        (world != *before).then_some(world)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.broken.is_none() || self.fault.is_some()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one holder, readers or one writer", |model, world: &World| {
                let valid = model.valid(world);
                let is_shared = |role: &Role| matches!(role, Role::Reader | Role::Permits(_));
                valid.len() < 2 || valid.iter().all(is_shared)
            }),
            Property::always("no more permits than the total", |model, world: &World| {
                let valid = model.valid(world);
                let permits = valid
                    .iter()
                    .map(|role| if let Role::Permits(count) = role { i64::from(*count) } else { 0 });
                permits.sum::<i64>() <= model.total
            }),
            Property::always("no permit is lost or added", |model, world: &World| {
                match world.server.available {
                    Some(Counter::Number(available)) => {
                        available + world.server.permits.len() as i64 == model.total
                    }
                    _ => true,
                }
            }),
            Property::always(
                "a command changes no hold of others, and a stale release nothing",
                |_, world: &World| world.broken != Some(Rule::StaleRelease),
            ),
            Property::always("a renewal revives nothing", |_, world: &World| {
                world.broken != Some(Rule::Revived)
            }),
            Property::always("tokens grow", |_, world: &World| world.broken != Some(Rule::Token)),
            Property::always("a fair lock is granted in request order", |_, world: &World| {
                world.broken != Some(Rule::Order)
            }),
            Property::always("no dead waiter stops the queue", |_, world: &World| {
                world.broken != Some(Rule::DeadWaiter)
            }),
            Property::always("after everything ended, nothing is left", |model, world: &World| {
                let mut server = world.server.clone();
                let has_died = world.clients.iter().any(|client| client.phase == Phase::Dead);
                server.expire(world.now * 1000 + if has_died { DAYS } else { 0 });
                !model.has_ended(world) || is_empty(&server) && (has_died || server.permits.is_empty())
            }),
            Property::always("every key has an end", |_, world: &World| {
                let mut server = world.server.clone();
                server.expire(world.now * 1000 + DAYS);
                is_empty(&server)
            }),
            // So that what is above is about something.
            Property::sometimes("everything ends", |model, world: &World| model.has_ended(world)),
            Property::sometimes("the last client holds", |_, world: &World| {
                world
                    .clients
                    .last()
                    .is_some_and(|client| matches!(client.phase, Phase::Holds(until) if world.now < until))
            }),
        ]
    }
}

fn take(network: &mut Vec<Packet>, packet: &Packet) {
    let at = network.iter().position(|other| other == packet).expect("it is under way");
    network.remove(at);
}

#[cfg(test)]
mod tests {
    use stateright::{Checker, HasDiscoveries};

    use super::*;

    /// Explores a protocol with a fault, until this property notices it. Without the fault, `check` explores all of it.
    fn notices(fault: Fault, name: &str, property: &'static str) -> bool {
        let protocol = Protocol::all().into_iter().find(|protocol| protocol.name == name).unwrap();
        let broken = Protocol { fault: Some(fault), ..protocol };
        let until = HasDiscoveries::AnyOf([property].into());
        broken.checker().finish_when(until).spawn_bfs().join().discovery(property).is_some()
    }

    #[test]
    fn planted_faults_are_found() {
        for (fault, name, property) in [
            (Fault::AcquireIgnoresItsEnd, "lock", "after everything ended, nothing is left"),
            (Fault::PermitsComeBackTwice, "semaphore", "no permit is lost or added"),
            (Fault::DeadWaiterStays, "fair", "no dead waiter stops the queue"),
            (Fault::QueuePlaceLost, "queue", "a fair lock is granted in request order"),
            (
                Fault::ReleaseDoesNotCompareOwner,
                "lock",
                "a command changes no hold of others, and a stale release nothing",
            ),
            (Fault::RenewalCreates, "lock", "a renewal revives nothing"),
            (Fault::TokenRepeats, "fenced", "tokens grow"),
            (Fault::TokenRepeats, "claim", "tokens grow"),
            (Fault::WriterBesideReader, "reader", "at most one holder, readers or one writer"),
        ] {
            assert!(notices(fault, name, property), "{fault:?}");
        }
    }
}
