//! Classes of faults and of sizes that only worlds from [`FIRST`] on have, so that earlier ones stay as they are.

use std::time::Duration;

use fastrand::Rng;

use crate::locks::NAMES;
use crate::plan::{FaultKind, Mode, Plan, one};
use crate::trace::Script;

/// The first world that has one of these classes. Mutants and tests begin with earlier ones.
pub const FIRST: u64 = 10_000;

/// Of sixteen worlds, those that have more already, or that a test names.
const OTHERS: [u64; 7] = [2, 3, 5, 10, 11, 12, 14];

/// Of sixteen worlds with a cluster, those that have such classes.
const IN_CLUSTER: [u64; 4] = [1, 6, 9, 15];

/// While nothing else tells them, waiters sleep on for this long.
const RARE_POLL: Duration = Duration::from_secs(60);

/// How many sections of a hundred are long.
const LONG: u32 = 35;

/// What a world has of these classes.
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    /// How many holds one command renews at most. `None`: as many as in production.
    pub batch: Option<usize>,
    /// How many sections of a hundred are long.
    pub long: u32,
    /// Nothing but connections for messages fails, and polls are rare.
    pub only_messages: bool,
    /// Nothing fails but that servers have too few places for connections.
    pub only_limits: bool,
    /// Hosts are suspended.
    pub suspends: bool,
}

impl Default for Classes {
    fn default() -> Self {
        Self { batch: None, long: LONG, only_messages: false, only_limits: false, suspends: false }
    }
}

impl Plan {
    /// Draws from numbers of its own.
    pub fn with_classes(mut self) -> Self {
        if self.seed / FIRST == 7 && !self.can_switch() && self.mode != Mode::Hung {
            return self.steps_clocks();
        }
        let residue = self.seed % 16;
        let has_some =
            if self.can_switch() { IN_CLUSTER.contains(&residue) } else { !OTHERS.contains(&residue) };
        if self.seed < FIRST || !has_some {
            return self;
        }
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(839) ^ 0xc1a5);
        let rng = &mut rng;
        if self.can_switch() {
            self.classes.batch = one(rng, &[Some(1), Some(2), None]);
            match rng.u32(..4) {
                0 => self.suspends(rng),
                1 => self.has_faults_of(FaultKind::MESSAGES, rng),
                2 => self.has_faults_of(&[FaultKind::MaxClients], rng),
                _ => {}
            }
            return self;
        }
        match rng.u32(..10) {
            0..3 => self.crowds(rng),
            3..5 => self.suspends(rng),
            5..7 => self.fails_only_in_messages(rng),
            7 => self.has_faults_of(FaultKind::MESSAGES, rng),
            _ => self.has_too_few_places(rng),
        }
        let is_alone = self.classes.only_messages || self.classes.only_limits;
        if !is_alone && rng.u32(..4) == 0 {
            match rng.u32(..4) {
                0 => self.crowds(rng),
                1 => self.suspends(rng),
                2 => self.has_faults_of(FaultKind::MESSAGES, rng),
                _ => self.has_faults_of(&[FaultKind::MaxClients], rng),
            }
        }
        self
    }

    /// In place of half of the faults, the clocks of servers are set. Of eight worlds from [`FIRST`] on, one, in blocks of so many.
    fn steps_clocks(mut self) -> Self {
        for fault in self.faults.iter_mut().step_by(2) {
            *fault = FaultKind::StepClock;
        }
        self
    }

    /// One process holds many locks, and renews few of them with one command.
    fn crowds(&mut self, rng: &mut Rng) {
        self.classes.batch = one(rng, &[Some(1), Some(2), Some(2), Some(3), None]);
        self.classes.long = 70;
        let least = if self.is_fair() { 1 } else { 3 };
        self.names = rng.usize(least..=NAMES.len());
        self.processes = rng.usize(1..=2);
        self.workers = 7;
    }

    fn suspends(&mut self, rng: &mut Rng) {
        self.has_faults_of(&[FaultKind::Suspend], rng);
        self.classes.suspends = self.mode != Mode::Hung;
    }

    fn fails_only_in_messages(&mut self, rng: &mut Rng) {
        if self.mode == Mode::Hung {
            return;
        }
        if rng.u32(..4) == 0 {
            // The connection for commands is open from the beginning. There is none for messages yet.
            self.faults.fill(FaultKind::NoPlace);
            self.connections = 1;
        } else {
            self.faults.fill_with(|| one(rng, FaultKind::MESSAGES));
        }
        self.parks = false;
        self.safety_poll = RARE_POLL;
        self.classes.only_messages = true;
    }

    fn has_too_few_places(&mut self, rng: &mut Rng) {
        self.has_faults_of(&[FaultKind::MaxClients], rng);
        if rng.u32(..3) > 0 {
            self.faults.fill(FaultKind::MaxClients);
            // It is open from the beginning. Others would be made when they are needed.
            self.connections = 1;
            self.classes.only_limits = true;
        }
    }

    /// In place of some faults, it has such.
    fn has_faults_of(&mut self, kinds: &[FaultKind], rng: &mut Rng) {
        if self.mode == Mode::Hung {
            return;
        }
        let always = rng.usize(..self.faults.len());
        for (number, fault) in self.faults.iter_mut().enumerate() {
            if number == always || rng.u32(..3) == 0 {
                *fault = one(rng, kinds);
            }
        }
    }

    /// Whether a command for several holds or places fills its batch. `None`: batches have no limit here.
    pub fn batch_of(&self, script: &Script<'_>) -> Option<&'static str> {
        let rows = match script.file {
            "read/renew.lua" => script.keys.len() / 2,
            "rlock/renew.lua" | "semaphore/renew.lua" => script.keys.len(),
            "fair/heartbeat.lua" => script.arg(1).split(' ').count(),
            _ => return None,
        };
        Some(if rows == self.classes.batch? { "full batches" } else { "batches that are not full" })
    }

    /// How long waiters are not told of a lock that is free while only connections for messages fail.
    pub fn untold(&self) -> Duration {
        let ms = Duration::from_millis;
        let told = if self.is_fair() {
            // Its next heartbeat tells a waiter that it is in front. After one that was early, that is one and a half periods later.
            self.fair_allowance * 11 / 20 + ms(100)
        } else {
            // A `PING` without an answer tells that a connection is silent. From then on, waiters poll.
            ms(1_000) + self.command_timeout + ms(300)
        };
        // One after the other.
        told * u32::try_from(self.members()).expect("few")
    }
}
