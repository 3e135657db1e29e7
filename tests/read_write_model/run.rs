//! One run: what happens at random, done in Redis and in the model.

use redis::Value;

use crate::client::{Client, Hold};
use crate::command::{ANY_GRANT, Command, JAVA, JAVA_GRANT, Owner, Side, What};
use crate::dice::Dice;
use crate::model::Model;
use crate::state::State;
use crate::wire::{Wire, Words};
use crate::{STEPS, USUAL_MS};

const LEASES_MS: [u64; 8] = [10_000, 20_000, 30_000, 30_000, 30_000, 60_000, 120_000, 300_000];
const PAUSES_MS: [u64; 8] = [10_000, 10_000, 10_000, 20_000, 20_000, 30_000, 60_000, 130_000];
const MOST_HOLDS: u32 = 4;
const MOST_CLIENTS: u64 = 3;

pub struct Run<'a> {
    pub seed: u64,
    pub dice: Dice,
    pub wire: Wire<'a>,
    pub model: Model,
    pub clients: Vec<Client>,
    /// Holds of the dead. They count until they end.
    pub left_behind: Vec<Hold>,
    pub last_number: u64,
    pub sent: Vec<Command>,
    pub log: Vec<String>,
}

impl<'a> Run<'a> {
    pub fn new(seed: u64, wire: Wire<'a>) -> Self {
        Self {
            seed,
            dice: Dice(seed),
            wire,
            model: Model::default(),
            // One alone comes into deeper nests.
            clients: (0..=seed % MOST_CLIENTS).map(|_| Client::default()).collect(),
            left_behind: Vec::new(),
            last_number: 1000,
            sent: Vec::new(),
            log: Vec::new(),
        }
    }

    pub fn step(&mut self) {
        match self.dice.below(100) {
            0..12 => self.time_passes(),
            12..32 => self.late_copy(),
            32..35 => self.death(),
            35..40 => self.java(),
            _ => self.act(),
        }
    }

    fn time_passes(&mut self) {
        let ms = self.dice.one_of(&PAUSES_MS);
        self.log.push(format!("{} s pass", ms / 1000));
        // What is set to its lease is what was there before, so that it ends in Redis as well.
        let before = self.model.state.clone();
        self.model.pass(ms);
        let now = self.model.now;
        self.left_behind.retain(|hold| hold.until > now);
        let seen = self.wire.perform(&before, now, &[]);
        self.compare(&seen);
    }

    /// Any command of this run is delivered once more, or for the first time.
    fn late_copy(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let oldest = self.sent.len().saturating_sub(self.dice.one_of(&[5, 20, STEPS]));
        let command = self.sent[oldest + self.dice.below(self.sent.len() - oldest)];
        self.send("late copy", command);
        if matches!(command.what, What::Acquire { .. }) && self.dice.percent(70) {
            self.undo_later(command);
        }
    }

    fn death(&mut self) {
        let dead = self.dice.below(self.clients.len());
        self.log.push(format!("client {dead} dies"));
        let Client { holds, .. } = std::mem::take(&mut self.clients[dead]);
        self.left_behind.extend(holds);
    }

    fn java(&mut self) {
        if self.seed.is_multiple_of(4) {
            return;
        }
        match self.dice.below(4) {
            0 => self.java_renews(),
            1 => {
                let what = What::Release { keep: u32::from(self.dice.percent(50)) };
                self.send("by force", Command { side: Side::Read, owner: JAVA, grant: ANY_GRANT, what });
            }
            _ => self.java_reads(),
        }
    }

    fn java_reads(&mut self) {
        let lease_ms = self.dice.one_of(&LEASES_MS);
        let before = self.model.state.clone();
        if !self.model.java_reads(lease_ms) {
            return;
        }
        self.log.push(format!("Java reads for {lease_ms}"));
        let number = self.model.state.count(JAVA);
        let lock_ms = self.model.state.ends() - self.model.now;
        let (key, name) = (self.wire.key((JAVA, number)), self.wire.name);
        self.command_by_hand(
            &before,
            &[
                format!("HSET {name} mode read"),
                format!("HINCRBY {name} {JAVA} 1"),
                format!("SET {key} {JAVA_GRANT} PX {lease_ms}"),
                format!("PEXPIRE {name} {lock_ms}"),
            ],
        );
    }

    /// What is promised to others does not last longer than the lock, until they renew it.
    fn java_renews(&mut self) {
        let before = self.model.state.clone();
        if !self.model.java_renews() {
            return;
        }
        self.log.push("Java renews".to_owned());
        let ends = self.model.state.ends();
        let promises = self.clients.iter_mut().flat_map(|client| &mut client.holds);
        for hold in promises.chain(&mut self.left_behind) {
            hold.until = hold.until.min(ends);
        }
        let mut commands = vec![format!("PEXPIRE {} {USUAL_MS}", self.wire.name)];
        for number in 1..=self.model.state.count(JAVA) {
            commands.push(format!("PEXPIRE {} {USUAL_MS}", self.wire.key((JAVA, number))));
        }
        self.command_by_hand(&before, &commands);
    }

    fn command_by_hand(&mut self, before: &State, commands: &[String]) {
        let split = |command: &String| command.split(' ').map(str::to_owned).collect();
        let commands: Vec<Words> = commands.iter().map(split).collect();
        let seen = self.wire.perform(before, self.model.now, &commands);
        self.compare(&seen);
    }

    /// One of the clients does something that a user may ask for, or cleans up.
    fn act(&mut self) {
        let who = self.dice.below(self.clients.len());
        if !self.clients[who].undos.is_empty() && self.dice.percent(35) {
            return self.undo(who);
        }
        if self.dice.percent(50) {
            self.give_up_what_ended(who);
        }
        let reads = if self.clients[who].on(Side::Write).is_some() { 70 } else { 40 };
        let side = if self.dice.percent(reads) { Side::Read } else { Side::Write };
        let Some(hold) = self.clients[who].on(side) else {
            return self.acquire(who, side);
        };
        match self.dice.below(10) {
            0..3 if hold.count < MOST_HOLDS => self.reenter(who, hold),
            0..6 => self.release(who, hold),
            6..9 => self.renew(who, hold),
            // As if a re-entry had not been answered.
            _ => self.undo_later(hold.command(What::Release { keep: hold.count })),
        }
    }

    fn give_up_what_ended(&mut self, who: usize) {
        let now = self.model.now;
        let ended: Vec<Hold> =
            self.clients[who].holds.iter().copied().filter(|hold| hold.until <= now).collect();
        for hold in ended {
            self.clients[who].forget(hold);
            self.clients[who].undos.push(hold.command(What::Release { keep: 0 }));
        }
    }

    fn acquire(&mut self, who: usize, side: Side) {
        self.give_up_what_ended(who);
        let within = match (side, self.clients[who].on(Side::Read), self.clients[who].on(Side::Write)) {
            (Side::Write, None, None) | (Side::Read, None, _) => self.clients[who].on(Side::Write),
            _ => return, // it would wait for itself
        };
        self.last_number += 1;
        let number = self.last_number;
        let client = u8::try_from(who).expect("few");
        let owner = within.map_or(Owner { client, number }, |writing| writing.owner);
        let lease_ms = self.dice.one_of(&LEASES_MS);
        let hold = Hold { side, owner, grant: number, count: 1, most: 1, until: self.model.now + lease_ms };
        match self.deliver(hold.command(What::Acquire { lease_ms })) {
            Some(Value::Nil) => self.clients[who].holds.push(hold),
            Some(_) => {}
            None => self.undo_later(hold.command(What::Release { keep: 0 })),
        }
    }

    fn reenter(&mut self, who: usize, mut hold: Hold) {
        let (want, lease_ms) = (hold.count + 1, self.dice.one_of(&LEASES_MS));
        hold.most = hold.most.max(want);
        self.clients[who].update(hold);
        match self.deliver(hold.command(What::Reenter { want, lease_ms })) {
            Some(Value::Nil) => {
                hold.count = want;
                hold.until = hold.until.max(self.model.now + lease_ms);
                self.clients[who].update(hold);
            }
            Some(_) => self.lost(who, hold),
            None => self.undo_later(hold.command(What::Release { keep: hold.count })),
        }
    }

    /// The owner does not rely on it any more from here on, whatever becomes of the command.
    fn release(&mut self, who: usize, mut hold: Hold) {
        let keep = u32::try_from(self.dice.below(hold.count as usize)).expect("few");
        hold.count = keep;
        self.clients[who].update(hold);
        if keep == 0 {
            self.clients[who].forget(hold);
        }
        let command = hold.command(What::Release { keep });
        match self.deliver(command) {
            None => self.undo_later(command),
            Some(answer) if answer == Value::Int(-2) && keep > 0 => self.lost(who, hold),
            Some(_) => {}
        }
    }

    fn renew(&mut self, who: usize, mut hold: Hold) {
        let only_the_lock = hold.side == Side::Read && self.dice.percent(30);
        let lease_ms = if only_the_lock { 0 } else { self.dice.one_of(&LEASES_MS) };
        match self.deliver(hold.command(What::Renew { lease_ms })) {
            Some(Value::Array(renewed)) if renewed == [Value::Int(1)] => {
                hold.until = hold.until.max(self.model.now + lease_ms);
                self.clients[who].update(hold);
            }
            Some(_) => self.lost(who, hold),
            None => {}
        }
    }

    /// Redis may only say so when the time is over.
    fn lost(&mut self, who: usize, hold: Hold) {
        assert!(hold.until <= self.model.now, "lost before its time: {hold:?}");
        self.clients[who].forget(hold);
    }

    fn undo_later(&mut self, command: Command) {
        self.clients[usize::from(command.owner.client)].undos.push(command);
    }

    /// Brings the server down to what the client has, as after a command without an answer.
    fn undo(&mut self, who: usize) {
        let next = self.dice.below(self.clients[who].undos.len());
        let command = self.clients[who].undos.swap_remove(next);
        if self.left_behind.iter().any(|hold| hold.is_of(command)) {
            return; // nobody is left to do it
        }
        let hold = self.clients[who].holds.iter().find(|hold| hold.is_of(command));
        let keep = hold.map_or(0, |hold| hold.count);
        let command = Command { what: What::Release { keep }, ..command };
        self.sent.push(command);
        self.send("undo", command);
    }

    /// The answer, if it comes back; and the command itself may stay on the way.
    fn deliver(&mut self, command: Command) -> Option<Value> {
        self.sent.push(command);
        if self.dice.percent(10) {
            self.log.push(format!("on its way: {command:?}"));
            return None;
        }
        let is_answered = self.dice.percent(92);
        let answer = self.send(if is_answered { "" } else { "unanswered" }, command);
        is_answered.then_some(answer)
    }

    fn send(&mut self, how: &str, command: Command) -> Value {
        self.log.push(format!("{how} {command:?}"));
        let words = self.wire.call(command);
        let before = self.model.state.clone();
        let expected = self.model.run(command);
        let seen = self.wire.perform(&before, self.model.now, &[words]);
        self.compare_answer(&expected, &seen);
        self.compare(&seen);
        if command.what == (What::Release { keep: 0 }) {
            let is_left = match command.side {
                Side::Read => {
                    seen.state.living(command.owner).is_some_and(|left| left.grant == command.grant)
                }
                Side::Write => seen.state.writes(command.owner) > 0,
            };
            assert!(!is_left, "one release is enough");
        }
        seen.answer
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, lock {}:\n{}", self.seed, self.wire.name, self.log.join("\n"));
        }
    }
}
