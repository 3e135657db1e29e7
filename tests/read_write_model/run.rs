//! Does the steps of one scenario, in Redis and in the model.

use proptest::prop_assert;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use redis::Value;

use crate::read_write_model::USUAL_MS;
use crate::read_write_model::client::{Client, Hold};
use crate::read_write_model::command::{ANY_GRANT, Command, JAVA, JAVA_GRANT, Owner, Side, What};
use crate::read_write_model::model::Model;
use crate::read_write_model::scenario::{Fate, MOST_HOLDS, Numbered, Otherwise, Scenario, Step};
use crate::read_write_model::state::State;
use crate::read_write_model::wire::{Wire, Words};
use crate::support::lua;

type Checked<T> = Result<T, TestCaseError>;

pub struct Run<'a> {
    pub wire: Wire<'a>,
    pub model: Model,
    pub clients: Vec<Client>,
    /// Holds of the dead. They count until they end.
    pub left_behind: Vec<Hold>,
    has_java: bool,
    /// The number of the step.
    step: usize,
    /// Commands with the step that sent them.
    sent: Vec<(usize, Command)>,
    /// What happened, one line for each event.
    events: Vec<String>,
}

impl<'a> Run<'a> {
    pub fn new(scenario: &Scenario, wire: Wire<'a>) -> Self {
        Self {
            wire,
            model: Model::default(),
            clients: (0..scenario.clients).map(|_| Client::default()).collect(),
            left_behind: Vec::new(),
            has_java: scenario.has_java,
            step: 0,
            sent: Vec::new(),
            events: Vec::new(),
        }
    }

    pub fn perform(mut self, steps: Vec<Numbered>) -> TestCaseResult {
        for (number, step) in steps {
            self.step = number;
            self.take(step).map_err(|error| self.with_events(error))?;
        }
        Ok(())
    }

    fn take(&mut self, step: Step) -> TestCaseResult {
        let clients = self.clients.len();
        match step {
            Step::Use { client, side, side_if_writing, lease_ms, otherwise, fate, drops_expired } => {
                let client = client % clients;
                if drops_expired {
                    self.clients[client].drop_expired(self.model.now);
                }
                let is_writing = self.clients[client].on(Side::Write).is_some();
                let side = if is_writing { side_if_writing } else { side };
                match self.clients[client].on(side) {
                    None => self.acquire(client, side, lease_ms, fate),
                    Some(hold) => self.go_on(client, hold, otherwise, lease_ms, fate),
                }
            }
            Step::Undo { client, skip } => self.undo(client % clients, skip),
            Step::TimePasses { ms } => self.time_passes(ms),
            Step::LateCopy { of, is_undone } => self.late_copy(of, is_undone),
            Step::ClientDies { client } => {
                self.client_dies(client % clients);
                Ok(())
            }
            Step::JavaReads { .. } | Step::JavaRenews | Step::JavaIsForced if !self.has_java => Ok(()),
            Step::JavaReads { lease_ms } => self.java_reads(lease_ms),
            Step::JavaRenews => self.java_renews(),
            Step::JavaIsForced => {
                let what = What::Release;
                self.send("by force", Command { side: Side::Read, owner: JAVA, grant: ANY_GRANT, what })?;
                Ok(())
            }
        }
    }

    fn time_passes(&mut self, ms: u64) -> TestCaseResult {
        // Leases are set to what they were before, with the new time. So what has ended also ends in Redis.
        let before = self.model.state.clone();
        self.model.advance(ms);
        let now = self.model.now;
        self.note(format!("{} s pass, it is {} s", ms / 1000, now / 1000));
        self.left_behind.retain(|hold| hold.until > now);
        let seen = self.wire.perform(&before, now, &[])?;
        self.compare(&seen)
    }

    /// A copy of an acquire may leave an orphan. Its client undoes it, or it stays until its lease ends.
    fn late_copy(&mut self, of: usize, is_undone: bool) -> TestCaseResult {
        let Some(&(_, command)) = self.sent.iter().rev().find(|&&(step, _)| step <= of) else {
            return Ok(());
        };
        self.send("late copy", command)?;
        if matches!(command.what, What::Acquire { .. }) && is_undone {
            self.undo_later(command);
        }
        Ok(())
    }

    fn client_dies(&mut self, client: usize) {
        self.note(format!("client {client} dies"));
        let Client { holds, .. } = std::mem::take(&mut self.clients[client]);
        self.left_behind.extend(holds);
    }

    fn java_reads(&mut self, lease_ms: u64) -> TestCaseResult {
        let before = self.model.state.clone();
        if !self.model.java_reads(lease_ms) {
            return Ok(());
        }
        self.note(format!("Java reads, for {} s", lease_ms / 1000));
        let number = self.model.state.count(JAVA);
        let lock_ms = self.model.state.ends() - self.model.now;
        let (key, name) = (self.wire.key((JAVA, number)), self.wire.name);
        self.send_as_java(
            &before,
            &[
                format!("HSET {name} mode read"),
                format!("HINCRBY {name} {JAVA} 1"),
                format!("SET {key} {JAVA_GRANT} PX {lease_ms}"),
                format!("PEXPIRE {name} {lock_ms}"),
            ],
        )
    }

    /// A promise to another owner then lasts no longer than the lock, until that owner renews it.
    fn java_renews(&mut self) -> TestCaseResult {
        let before = self.model.state.clone();
        if !self.model.java_renews() {
            return Ok(());
        }
        self.note("Java renews".to_owned());
        let ends = self.model.state.ends();
        let promises = self.clients.iter_mut().flat_map(|client| &mut client.holds);
        for hold in promises.chain(&mut self.left_behind) {
            hold.until = hold.until.min(ends);
        }
        let mut commands = vec![format!("PEXPIRE {} {USUAL_MS}", self.wire.name)];
        for number in 1..=self.model.state.count(JAVA) {
            commands.push(format!("PEXPIRE {} {USUAL_MS}", self.wire.key((JAVA, number))));
        }
        self.send_as_java(&before, &commands)
    }

    fn send_as_java(&mut self, before: &State, commands: &[String]) -> TestCaseResult {
        let split = |command: &String| command.split(' ').map(str::to_owned).collect();
        let commands: Vec<Words> = commands.iter().map(split).collect();
        let seen = self.wire.perform(before, self.model.now, &commands)?;
        self.compare(&seen)
    }

    fn acquire(&mut self, client: usize, side: Side, lease_ms: u64, fate: Fate) -> TestCaseResult {
        self.clients[client].drop_expired(self.model.now);
        let (reading, writing) = (self.clients[client].on(Side::Read), self.clients[client].on(Side::Write));
        if side == Side::Write && reading.is_some() {
            return Ok(()); // it would wait for itself
        }
        let number = self.step as u64;
        let fresh = Owner { client: u8::try_from(client).expect("few"), number };
        let owner = writing.map_or(fresh, |writing| writing.owner);
        let hold = Hold { side, owner, grant: number, count: 1, most: 1, until: self.model.now + lease_ms };
        match self.deliver(hold.command(What::Acquire { lease_ms }), fate)? {
            Some(Value::Nil) => self.clients[client].holds.push(hold),
            Some(_) => {}
            None => self.undo_later(hold.command(What::Release)),
        }
        Ok(())
    }

    fn go_on(
        &mut self,
        client: usize,
        hold: Hold,
        otherwise: Otherwise,
        lease_ms: u64,
        fate: Fate,
    ) -> TestCaseResult {
        match otherwise {
            Otherwise::Reenter if hold.count < MOST_HOLDS => {
                self.show(client, hold, hold.count + 1, lease_ms, fate)
            }
            Otherwise::Leave | Otherwise::Reenter if hold.count > 1 => {
                let left = hold.until.saturating_sub(self.model.now).max(1);
                self.show(client, hold, hold.count - 1, left, fate)
            }
            Otherwise::Release | Otherwise::Leave | Otherwise::Reenter => self.release(client, hold, fate),
            Otherwise::RenewLock if hold.side == Side::Read => self.renew(client, hold, 0, fate),
            Otherwise::Renew | Otherwise::RenewLock => self.renew(client, hold, lease_ms, fate),
        }
    }

    /// Shows another count, after a re-entry or an inner release.
    fn show(
        &mut self,
        client: usize,
        mut hold: Hold,
        count: u32,
        lease_ms: u64,
        fate: Fate,
    ) -> TestCaseResult {
        hold.most = hold.most.max(count);
        let is_reentry = count > hold.count;
        hold.count = hold.count.min(count);
        self.clients[client].update(hold);
        match self.deliver(hold.command(What::Show { count, lease_ms }), fate)? {
            Some(Value::Nil) if is_reentry => {
                hold.count = count;
                hold.until = hold.until.max(self.model.now + lease_ms);
                self.clients[client].update(hold);
            }
            Some(Value::Nil) | None => {}
            Some(_) => self.lose(client, hold)?,
        }
        Ok(())
    }

    /// From here on, the owner does not rely on the hold, whatever happens to the command.
    fn release(&mut self, client: usize, hold: Hold, fate: Fate) -> TestCaseResult {
        self.clients[client].forget(hold);
        let command = hold.command(What::Release);
        if self.deliver(command, fate)?.is_none() {
            self.undo_later(command);
        }
        Ok(())
    }

    fn renew(&mut self, client: usize, mut hold: Hold, lease_ms: u64, fate: Fate) -> TestCaseResult {
        match self.deliver(hold.command(What::Renew { lease_ms }), fate)? {
            Some(Value::Array(renewed)) if renewed == [Value::Int(lua::reply("RENEWED"))] => {
                hold.until = hold.until.max(self.model.now + lease_ms);
                self.clients[client].update(hold);
            }
            Some(_) => self.lose(client, hold)?,
            None => {}
        }
        Ok(())
    }

    fn lose(&mut self, client: usize, hold: Hold) -> TestCaseResult {
        prop_assert!(hold.until <= self.model.now, "lost before its lease ended: {hold:?}");
        self.clients[client].forget(hold);
        Ok(())
    }

    fn undo_later(&mut self, command: Command) {
        self.clients[usize::from(command.owner.client)].undos.push(command);
    }

    /// Releases what a command without an answer left, unless the client has it.
    fn undo(&mut self, client: usize, skip: usize) -> TestCaseResult {
        let Some(last) = self.clients[client].undos.len().checked_sub(1) else {
            return Ok(());
        };
        let command = self.clients[client].undos.remove(skip.min(last));
        if self.left_behind.iter().any(|hold| hold.is_of(command)) {
            return Ok(()); // its client has died
        }
        if self.clients[client].holds.iter().any(|hold| hold.is_of(command)) {
            return Ok(());
        }
        let command = Command { what: What::Release, ..command };
        self.sent.push((self.step, command));
        self.send("undo", command)?;
        Ok(())
    }

    /// Returns the answer, if one arrives.
    fn deliver(&mut self, command: Command, fate: Fate) -> Checked<Option<Value>> {
        self.sent.push((self.step, command));
        match fate {
            Fate::Answered => Ok(Some(self.send("", command)?)),
            Fate::Unanswered => self.send("unanswered", command).map(|_| None),
            Fate::Delayed => {
                self.note(format!("delayed {command}"));
                Ok(None)
            }
        }
    }

    fn send(&mut self, how: &str, command: Command) -> Checked<Value> {
        self.note(format!("{how} {command}"));
        let words = self.wire.call(command);
        let before = self.model.state.clone();
        let expected = self.model.run(command);
        let seen = self.wire.perform(&before, self.model.now, &[words])?;
        *self.events.last_mut().expect("the command") += &format!(" -> {:?}", seen.answer);
        self.compare_answer(&expected, &seen)?;
        self.compare(&seen)?;
        if command.what == What::Release {
            let is_left = match command.side {
                Side::Read => {
                    seen.state.living(command.owner).is_some_and(|left| left.grant == command.grant)
                }
                Side::Write => seen.state.writes(command.owner) > 0,
            };
            prop_assert!(!is_left, "one release does not end the hold");
        }
        Ok(seen.answer)
    }

    fn note(&mut self, event: String) {
        self.events.push(format!("{:>4}  {}", self.step, event.trim()));
    }

    fn with_events(&self, error: TestCaseError) -> TestCaseError {
        let events = self.events.join("\n");
        TestCaseError::fail(format!(
            "{error}\n\nThe lock is `{}`. What happened, by step:\n{events}\n",
            self.wire.name
        ))
    }
}
