//! The rules: what each command must answer, change and publish.

use std::collections::BTreeMap;

use crate::read_write_model::USUAL_MS;
use crate::read_write_model::command::{ANY_GRANT, Command, JAVA, JAVA_GRANT, Owner, Side, What};
use crate::read_write_model::state::{Hash, Key, State};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted,
    /// One of `lua/includes/replies.lua`.
    Named(&'static str),
    Number(i64),
    Renewed(bool),
    /// Another owner holds the lock, until one of these times.
    Until(Vec<u64>),
}

/// A script looks at so many fields one by one. The mode is one of them.
const MANY: usize = 4;

pub const RELEASED: Answer = Answer::Number(0);
/// The release of a write hold counts the listeners of its message: here one, the test.
pub const RELEASED_AND_HEARD: Answer = Answer::Number(1);
pub const LOST: Answer = Answer::Named("LOST");

#[derive(Default)]
pub struct Model {
    pub now: u64,
    pub state: State,
    pub published: Vec<&'static str>,
    /// The other moment at which the hash may end, if that depends on which reader a script looks at.
    pub or_ends: Option<u64>,
}

impl Model {
    pub fn run(&mut self, command: Command) -> Answer {
        let Command { side, owner, grant, what } = command;
        match (side, what) {
            (Side::Read, What::Acquire { lease_ms }) => self.acquire_read(owner, grant, self.now + lease_ms),
            (Side::Read, What::Show { count, lease_ms }) => {
                self.show_read(owner, grant, count, self.now + lease_ms)
            }
            (Side::Read, What::Release) => self.release_read(owner, grant),
            (Side::Read, What::Renew { lease_ms }) => self.renew_read(owner, grant, self.now + lease_ms),
            (Side::Write, What::Acquire { lease_ms }) => self.acquire_write(owner, self.now + lease_ms),
            (Side::Write, What::Show { count, lease_ms }) => {
                self.show_write(owner, count, self.now + lease_ms)
            }
            (Side::Write, What::Release) => self.release_write(owner),
            (Side::Write, What::Renew { lease_ms }) => {
                let count = self.state.writes(owner);
                Answer::Renewed(self.show_write(owner, count, self.now + lease_ms) == Answer::Granted)
            }
        }
    }

    /// Lets time pass, and removes what has ended.
    pub fn advance(&mut self, ms: u64) {
        self.now += ms;
        let now = self.now;
        self.state.keys.retain(|_, key| key.ends > now);
        if self.state.ends() <= now {
            self.state.hash = None;
        }
    }

    pub fn hash(&mut self, mode: Side) -> &mut Hash {
        let fresh = || Hash { mode, writers: BTreeMap::new(), readers: BTreeMap::new(), ends: 0 };
        self.state.hash.get_or_insert_with(fresh)
    }

    pub fn extend_lock(&mut self, ends: u64) {
        if let Some(hash) = &mut self.state.hash {
            hash.ends = hash.ends.max(ends);
        }
    }

    pub fn extend_key(&mut self, owner: Owner, ends: u64) {
        if let Some(key) = self.state.keys.get_mut(&(owner, 1)) {
            key.ends = key.ends.max(ends);
        }
    }

    pub fn free(&mut self, message: &'static str) {
        self.state.hash = None;
        self.published.push(message);
    }

    pub fn acquire_read(&mut self, owner: Owner, grant: u64, ends: u64) -> Answer {
        if self.state.mode() == Some(Side::Write) && self.state.writes(owner) == 0 {
            return Answer::Until(vec![self.state.ends()]);
        }
        match self.state.living(owner) {
            Some(living) if living.grant > grant => return LOST,
            Some(living) if living.grant == grant => self.extend_key(owner, ends),
            _ => {
                self.state.keys.insert((owner, 1), Key { grant, ends });
                self.hash(Side::Read).readers.insert(owner, 1);
            }
        }
        self.extend_lock(ends);
        Answer::Granted
    }

    pub fn show_read(&mut self, owner: Owner, grant: u64, count: u32, ends: u64) -> Answer {
        let answer = self.renew_read(owner, grant, ends);
        if answer != Answer::Renewed(true) {
            return LOST;
        }
        self.hash(Side::Read).readers.insert(owner, count);
        Answer::Granted
    }

    pub fn renew_read(&mut self, owner: Owner, grant: u64, ends: u64) -> Answer {
        let Some(living) = self.state.living(owner).filter(|living| living.grant == grant) else {
            return Answer::Renewed(false);
        };
        if ends == self.now {
            return Answer::Renewed(true); // only asked whether it is there
        }
        self.extend_key(owner, ends);
        self.extend_lock(living.ends.max(ends));
        Answer::Renewed(true)
    }

    /// A reader of Java keeps its other keys.
    pub fn release_read(&mut self, owner: Owner, grant: u64) -> Answer {
        let key = self.state.keys.get(&(owner, 1)).copied();
        if self.state.count(owner) == 0 {
            self.state.keys.retain(|id, key| *id != (owner, 1) || key.grant != grant);
            return LOST;
        }
        if key.is_some_and(|key| grant != key.grant && grant != ANY_GRANT) {
            return LOST;
        }
        self.state.keys.remove(&(owner, 1));
        self.hash(Side::Read).readers.remove(&owner);
        self.reader_leaves(key.map_or(0, |key| key.ends));
        if key.is_some() { RELEASED } else { LOST }
    }

    /// A reader that lasted until then no longer reads.
    pub fn reader_leaves(&mut self, lasted_until: u64) {
        if self.state.mode() == Some(Side::Write) {
            return;
        }
        let others: Vec<u64> = self.state.readers().iter().map(|(_, living)| living.ends).collect();
        let Some(longest) = others.iter().copied().max() else {
            self.free("0");
            return;
        };
        let ends = self.state.ends();
        if ends <= self.now + USUAL_MS || lasted_until < ends {
            return;
        }
        // The lock then ends with the readers that are left, if they end within half of its time. Which of them a script
        // looks at is random.
        let half = self.now + (ends - self.now) / 2;
        if others.len() >= MANY {
            return;
        }
        if others.iter().all(|&other| other < half) {
            // A dead reader counts until a script finds it.
            if self.hash(Side::Read).readers.len() < MANY {
                self.hash(Side::Read).ends = longest;
            } else {
                self.or_ends = Some(longest);
            }
        } else if others.iter().any(|&other| other <= half) {
            self.or_ends = Some(longest);
        }
    }

    pub fn acquire_write(&mut self, owner: Owner, ends: u64) -> Answer {
        if self.state.writes(owner) > 0 {
            self.extend_lock(ends);
            return Answer::Granted;
        }
        if self.state.mode() == Some(Side::Write) {
            return Answer::Until(vec![self.state.ends()]);
        }
        let readers = self.state.readers();
        if !readers.is_empty() {
            return Answer::Until(readers.iter().map(|(_, living)| living.ends).collect());
        }
        self.state.hash = None;
        self.hash(Side::Write).writers.insert(owner, 1);
        self.extend_lock(ends);
        Answer::Granted
    }

    pub fn show_write(&mut self, owner: Owner, count: u32, ends: u64) -> Answer {
        if self.state.writes(owner) == 0 {
            return LOST;
        }
        self.hash(Side::Write).writers.insert(owner, count);
        self.extend_lock(ends);
        Answer::Granted
    }

    pub fn release_write(&mut self, owner: Owner) -> Answer {
        if self.state.writes(owner) == 0 {
            return LOST;
        }
        if let Some(living) = self.state.living(owner) {
            let hash = self.hash(Side::Read);
            hash.writers.remove(&owner);
            (hash.mode, hash.ends) = (Side::Read, living.ends);
            self.published.push("1");
        } else {
            self.free("1");
        }
        RELEASED_AND_HEARD
    }

    /// Adds a read hold as Redisson does. False: Java is refused.
    pub fn java_reads(&mut self, lease_ms: u64) -> bool {
        if self.state.mode() == Some(Side::Write) {
            return false;
        }
        let (number, ends) = (self.state.count(JAVA) + 1, self.now + lease_ms);
        self.hash(Side::Read).readers.insert(JAVA, number);
        self.state.keys.insert((JAVA, number), Key { grant: JAVA_GRANT, ends });
        self.extend_lock(ends);
        true
    }

    /// Sets the lease of the lock as Redisson's watchdog does, also to less than it is. False: Java holds nothing.
    pub fn java_renews(&mut self) -> bool {
        let ends = self.now + USUAL_MS;
        let Some(living) = self.state.living(JAVA) else {
            return false;
        };
        for number in 1..=living.count {
            self.state.keys.entry((JAVA, number)).and_modify(|key| key.ends = ends);
        }
        self.hash(Side::Read).ends = ends;
        true
    }
}
