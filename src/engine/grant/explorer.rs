//! Explores the life of an id: a client, two connections, and copies of commands that arrive late.
//!
//! A call attempts, perhaps again, and perhaps with the same id after an unknown outcome, as a waiter with a place does. It is granted the
//! lock or gives up at any await, and then its [`OnServer`] alone says what is released, and when nothing more can be left.

use std::collections::BTreeSet;
use std::time::Duration;

use super::on_server::OnServer;
use crate::base::clock::Moment;
use crate::engine::visit::{Model, Name, Step, visit};

/// An acquire can run for so many ticks after somebody stopped to wait for its answer, and a little longer until the client is sure.
const VALID: u64 = 2;

/// No call attempts, and no connection breaks, after this time.
const LAST: u64 = 6;

/// The connection to another server.
const ELSEWHERE: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Command {
    /// It runs until then, by the server's clock.
    Acquire {
        until: u64,
    },
    Release {
        sent: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    Rests,
    Asks,
    Holds,
    /// The id is owed. `true`: a release is under way.
    Owes(bool),
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    on_server: OnServer,
    does: Does,
    /// The server has a hold of the id.
    is_held: bool,
    /// Another owner has the lock.
    is_taken: bool,
    /// A release was answered.
    was_released: bool,
    /// The number of the connection in use, and what is on its way on each, in order.
    connection: u64,
    wire: Vec<(u64, Command)>,
    attempts: u8,
    breaks: u8,
    delays: u8,
}

fn at(tick: u64) -> Moment {
    Moment::from_nanos(1_000 + 10 * tick)
}

impl World {
    fn new(attempts: u8, breaks: u8, delays: u8) -> Self {
        Self {
            now: 0,
            on_server: OnServer::default(),
            does: Does::Rests,
            is_held: false,
            is_taken: false,
            was_released: false,
            connection: 1,
            wire: Vec::new(),
            attempts,
            breaks,
            delays,
        }
    }

    /// Lets the server run a command. Returns whether it created or found a hold. `None`: it came too late.
    fn runs(&mut self, index: usize) -> Option<bool> {
        match self.wire.remove(index).1 {
            Command::Acquire { until } if until < self.now => None,
            Command::Acquire { .. } => {
                self.is_held |= !self.is_taken;
                Some(self.is_held)
            }
            Command::Release { .. } => Some(std::mem::take(&mut self.is_held)),
        }
    }

    /// Until when an acquire can run for whose answer nobody waits from now on.
    fn late(&self) -> Moment {
        let now = self.now.min(LAST + VALID); // what was sent at the latest can run no longer
        at(now + VALID).plus(Duration::from_nanos(5))
    }

    fn waits_no_more(&mut self) {
        self.on_server.waits_no_more(self.late());
    }

    fn gives_up(&mut self) {
        self.waits_no_more();
        self.does = if self.on_server.may_exist() { Does::Owes(false) } else { Does::Over };
    }
}

impl Model for World {
    fn steps(&self) -> Vec<Step<Self>> {
        let mut steps = Vec::new();
        let mut add = |name, step: &dyn Fn(&mut Self)| {
            let mut world = Box::new(self.clone());
            step(&mut world);
            world.normalize();
            steps.push(Step { name: Name(name, 0, 0), world });
        };
        // The second release waits until no copy can run.
        let may_release =
            !self.was_released || self.on_server.late_until().is_none_or(|until| at(self.now) > until);
        match self.does {
            // Also if the future of an attempt was dropped.
            Does::Rests | Does::Asks if self.attempts > 0 && self.now <= LAST => add("attempts", &|w| {
                w.attempts -= 1;
                w.on_server.sends(w.connection, w.late());
                w.wire.push((w.connection, Command::Acquire { until: w.now + VALID }));
                w.does = Does::Asks;
            }),
            Does::Owes(false) if may_release => add("releases", &|w| {
                w.wire.push((w.connection, Command::Release { sent: w.now }));
                w.does = Does::Owes(true);
            }),
            _ => {}
        }
        if matches!(self.does, Does::Rests | Does::Asks | Does::Holds) {
            add("ends", &Self::gives_up);
        }
        // The server runs the first command of a connection.
        let firsts: BTreeSet<u64> = self.wire.iter().map(|(connection, _)| *connection).collect();
        for connection in firsts {
            let index = self.wire.iter().position(|(other, _)| *other == connection).expect("just found");
            let is_last =
                index + 1 == self.wire.len() || !self.wire[index + 1..].iter().any(|(c, _)| *c == connection);
            let is_awaited = connection == self.connection && is_last;
            match (self.wire[index].1, self.does) {
                (Command::Acquire { .. }, Does::Asks) if is_awaited => add("is answered", &|w| {
                    let granted = w.runs(index);
                    w.on_server.answered(connection, |before| granted.unwrap_or(before));
                    w.does = if granted == Some(true) { Does::Holds } else { Does::Rests };
                }),
                (Command::Release { sent }, Does::Owes(true)) if is_awaited => add("is released", &|w| {
                    let _ = w.runs(index);
                    let is_over = w.on_server.released(connection, at(sent));
                    w.was_released = true;
                    w.does = if is_over { Does::Over } else { Does::Owes(false) };
                }),
                _ => add("a copy runs", &|w| _ = w.runs(index)),
            }
        }
        if self.breaks > 0 && self.now <= LAST && matches!(self.does, Does::Asks | Does::Owes(true)) {
            // What was sent can still arrive.
            add("the connection breaks", &|w| {
                w.breaks -= 1;
                w.connection += 1;
                w.waits_no_more();
                w.does = if w.does == Does::Asks { Does::Rests } else { Does::Owes(false) };
            });
        }
        let acquires = |(_, command): &(u64, Command)| matches!(command, Command::Acquire { .. });
        if let Some(index) = self.wire.iter().position(acquires)
            && self.breaks > 0
            && self.now <= LAST
            && matches!(self.does, Does::Owes(_))
        {
            // A shutdown gave the call up, and its future is polled once more. The other server has a connection of its own.
            add("it is sent on after it was given up", &|w| {
                w.breaks -= 1;
                w.wire.remove(index);
                w.on_server.sends_on(ELSEWHERE, w.late());
                w.wire.push((ELSEWHERE, Command::Acquire { until: w.now + VALID }));
            });
        }
        if self.breaks > 0 && self.now <= LAST && self.does == Does::Asks {
            // The call goes on after that, when its time is up.
            add("its future is dropped before the connection breaks", &|w| {
                w.breaks -= 1;
                w.connection += 1;
                w.does = Does::Rests;
            });
        }
        add("another owner takes the lock", &|w| w.is_taken = !w.is_held);
        add("another owner leaves", &|w| w.is_taken = false);
        steps
    }

    fn is_quiet(name: &str) -> bool {
        matches!(
            name,
            "a copy runs" | "another owner takes the lock" | "another owner leaves" | "ends" | "attempts"
        )
    }

    fn delays(&mut self) -> &mut u8 {
        &mut self.delays
    }

    fn passes(&mut self) {
        self.now += 1;
    }

    fn normalize(&mut self) {
        self.now = self.now.min(LAST + 2 * VALID + 2); // nothing changes any more
    }

    fn check(&self, _: &[Step<Self>]) {
        if self.does == Does::Over {
            assert!(!self.is_held, "the server has a hold that nobody releases");
            let late = |(_, command): &(u64, Command)| matches!(command, Command::Acquire { until } if *until >= self.now);
            assert!(!self.wire.iter().any(late), "a copy can still acquire, and nobody would release it");
        }
        if self.is_held {
            assert!(self.on_server.may_exist(), "the server has a hold of which the client does not know");
        }
    }

    fn is_over(&self) -> bool {
        self.does == Does::Over
    }
}

#[test]
fn every_state_of_an_id_keeps_the_rules() {
    let seen = visit([
        ("one attempt", World::new(1, 2, 1)),
        ("an id that keeps its place", World::new(2, 2, 1)),
        ("three attempts", World::new(3, 1, 0)),
    ]);
    for step in [
        "is answered",
        "is released",
        "a copy runs",
        "the connection breaks",
        "its future is dropped before the connection breaks",
        "it is sent on after it was given up",
    ] {
        assert!(seen.contains(step), "{step} never happens");
    }
}
