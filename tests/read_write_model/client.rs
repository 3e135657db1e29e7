//! What a client knows that keeps to the protocol: its holds, and the commands that it has to undo.

use crate::read_write_model::command::{Command, Owner, Side, What};

/// A hold that an owner was promised.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub side: Side,
    pub owner: Owner,
    pub grant: u64,
    pub count: u32,
    /// The highest count that was ever asked for.
    pub most: u32,
    pub until: u64,
}

impl Hold {
    pub fn command(&self, what: What) -> Command {
        Command { side: self.side, owner: self.owner, grant: self.grant, what }
    }

    pub fn is_of(&self, command: Command) -> bool {
        (self.side, self.owner, self.grant) == (command.side, command.owner, command.grant)
    }
}

#[derive(Default)]
pub struct Client {
    pub holds: Vec<Hold>,
    /// Commands whose outcome it does not know, oldest first.
    pub undos: Vec<Command>,
}

impl Client {
    pub fn on(&self, side: Side) -> Option<Hold> {
        self.holds.iter().copied().find(|hold| hold.side == side)
    }

    pub fn forget(&mut self, hold: Hold) {
        self.holds.retain(|other| other.side != hold.side);
    }

    pub fn update(&mut self, hold: Hold) {
        self.forget(hold);
        self.holds.push(hold);
    }

    /// Drops the holds whose lease has ended, and undoes them later.
    pub fn drop_expired(&mut self, now: u64) {
        let (valid, expired): (Vec<_>, Vec<_>) = self.holds.iter().partition(|hold| hold.until > now);
        self.holds = valid;
        self.undos.extend(expired.iter().map(|hold| hold.command(What::Release)));
    }
}
