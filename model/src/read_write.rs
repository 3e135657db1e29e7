//! `read/` and `write/`

use crate::{Fault, Hash, Holder, Intent, Lock, Message, Mode, Ms, Owner, Read, Reply, Run};

/// Milliseconds for which a free lock is kept for somebody on whose behalf readers were stopped.
const COME: Ms = 10;

/// A release of a read hold looks at all fields only if there are no more.
const MANY: usize = 4;

impl Run<'_> {
    /// The mode of the read-write lock, `None` if it is free, or the reply of a script that finds something else.
    fn mode(&self) -> Result<Option<Mode>, Reply> {
        match &self.state.locks[0] {
            None => Ok(None),
            Some(Lock::Other) => Err(Reply::Error),
            Some(Lock::Hash(hash)) => match hash.mode {
                None if hash.is_single() => Err(Reply::OtherKind),
                None => Err(Reply::NotALock),
                mode => Ok(mode),
            },
        }
    }

    /// The reply to an owner that finds the lock written by another one.
    fn written(&self, hash: &Hash) -> Reply {
        let is_written = hash.holders.keys().any(|holder| matches!(holder, Holder::Writer(_)));
        if is_written { self.left(hash.ends) } else { Reply::NotALock }
    }

    /// The end of the lease of a living reader other than `one`: that of any of them.
    fn other_reader(&self, one: Option<Owner>) -> Option<Ms> {
        let others: Vec<_> =
            self.state.readers().into_iter().filter(|(owner, _)| Some(*owner) != one).collect();
        Some(others.get(self.state.pick % others.len().max(1))?.1)
    }

    fn grant_of(&self, owner: Owner) -> Option<i64> {
        Some(self.state.reads.get(&(owner, 1))?.grant)
    }

    /// Whether the owner has the hold of this grant.
    fn is_reader(&self, owner: Owner, grant: i64) -> bool {
        self.state.hash(0).is_some_and(|hash| hash.has(owner)) && self.grant_of(owner) == Some(grant)
    }

    /// `includes/read_write/keep_hold`: makes the lease of a read hold longer, and with it that of the lock.
    fn keep(&mut self, owner: Owner, lease: Ms) {
        let read = self.state.reads.get_mut(&(owner, 1)).expect("the hold of a grant");
        read.ends = read.ends.max(self.now + lease);
        let ends = read.ends.max(self.now + 1);
        self.state.hash_mut(0).raise(ends);
    }

    /// `read/acquire`: creates a read hold, unless another owner writes, or a waiting writer stops new readers.
    pub(crate) fn read_acquire(&mut self, owner: Owner, grant: i64, lease: Ms) -> Reply {
        let mode = match self.mode() {
            Ok(mode) => mode,
            Err(reply) => return reply,
        };
        let hash = self.state.hash(0).cloned().unwrap_or_default();
        if mode == Some(Mode::Write) && !hash.holders.contains_key(&Holder::Writer(owner)) {
            return self.written(&hash);
        }
        let found = self.grant_of(owner).filter(|_| mode.is_some());
        let ends = self.now + lease;
        // This call is a late copy: the owner, which writes, has read again since.
        if found > Some(grant) {
            return Reply::Lost;
        }
        if mode != Some(Mode::Write) && found.is_none() {
            let stopped = self.stopped(mode);
            if stopped > 0 {
                return Reply::Left(stopped);
            }
        }
        if mode == Some(Mode::Read) && hash.ends.is_none() && hash.fields() == 1 {
            return Reply::NotALock;
        }
        self.state.reads.insert((owner, 1), Read { grant, ends });
        let hash = self.state.hash_mut(0);
        hash.mode = Some(mode.unwrap_or(Mode::Read));
        hash.holders.insert(Holder::Owner(owner), 1);
        if mode.is_some() {
            hash.raise(ends);
        } else {
            hash.ends = Some(ends);
        }
        Reply::Done
    }

    /// For how long the intent of a writer stops new readers.
    fn stopped(&mut self, mode: Option<Mode>) -> Ms {
        let Some(intent) = &mut self.state.intent else { return 0 };
        let wait = (intent.ends - self.now - intent.calm).max(0);
        if wait > COME && mode.is_none() && intent.writer.is_none() {
            // The lock is free, and its release has woken the waiters.
            intent.ends = self.now + intent.calm + COME;
            return COME;
        }
        wait
    }

    /// `read/show`: shows the hold count of a hold that exists, and makes its lease longer.
    pub(crate) fn read_show(&mut self, owner: Owner, grant: i64, count: i64, lease: Ms) -> Reply {
        if self.state.locks[0] == Some(Lock::Other) {
            return Reply::Error;
        }
        if !self.is_reader(owner, grant) {
            return Reply::Lost;
        }
        self.keep(owner, lease);
        self.state.hash_mut(0).holders.insert(Holder::Owner(owner), count);
        Reply::Done
    }

    /// `read/renew`: makes the lease of a hold that exists longer. A lease of 0 only asks whether it exists.
    pub(crate) fn read_renew(&mut self, owner: Owner, grant: i64, lease: Ms) -> Reply {
        if !self.is_reader(owner, grant) {
            return Reply::Lost;
        }
        if lease > 0 {
            self.keep(owner, lease);
        }
        Reply::Renewed
    }

    /// `read/confirm`: renews a hold, and says whether somebody waits. If nobody stops new readers for him, stops them.
    pub(crate) fn read_confirm(
        &mut self,
        owner: Owner,
        grant: i64,
        lease: Ms,
        stop: Ms,
        calm: Ms,
        is_gap: bool,
    ) -> Reply {
        if self.state.locks[0] == Some(Lock::Other) {
            return Reply::Error;
        }
        if !self.is_reader(owner, grant) {
            return Reply::Lost;
        }
        self.keep(owner, lease);
        let mut is_wanted = is_gap || self.state.listeners > 0;
        match self.state.intent {
            None if is_wanted => {
                let ends = self.now + stop + calm;
                self.state.intent = Some(Intent { calm, writer: None, ends });
            }
            None => {}
            Some(intent) => is_wanted |= intent.ends - self.now > intent.calm,
        }
        if is_wanted { Reply::Wanted } else { Reply::Renewed }
    }

    /// `read/release`: ends a read hold. The last living reader frees the lock and wakes a waiter.
    pub(crate) fn read_release(&mut self, owner: Owner, grant: i64, usual: Ms) -> Reply {
        let found = self.grant_of(owner);
        let hash = match &self.state.locks[0] {
            Some(Lock::Other) => return Reply::Error,
            Some(Lock::Hash(hash)) if hash.has(owner) => hash.clone(),
            _ => {
                if found == Some(grant) {
                    self.state.reads.remove(&(owner, 1));
                }
                return Reply::Lost;
            }
        };
        if found.is_some_and(|found| found != grant) && grant != 0 {
            return Reply::Lost;
        }
        let reply = if found.is_some() { Reply::Number(0) } else { Reply::Lost };
        let other = self.other_reader(Some(owner));
        let read = self.state.reads.remove(&(owner, 1));
        self.state.hash_mut(0).holders.remove(&Holder::Owner(owner));
        if hash.mode == Some(Mode::Write) {
            return reply;
        }
        let Some(other) = other else {
            self.state.locks[0] = None;
            self.publish(Message::ReadWrite(0));
            return reply;
        };
        // A long lease that ended early must not delay Java's writers, which wait for the end of the hash.
        let left = hash.ends.map_or(-1, |ends| ends - self.now);
        let was_longest = read.is_some_and(|read| read.ends - self.now > left - 5);
        let readers = self.state.readers();
        if left > usual && was_longest && 2 * (other - self.now) < left && readers.len() < MANY {
            self.state.hash_mut(0).ends = readers.iter().map(|(_, ends)| *ends).max();
        }
        reply
    }

    /// `read/state`
    pub(crate) fn read_state(&self) -> Reply {
        match self.mode() {
            Err(reply) => reply,
            Ok(_) => {
                self.other_reader(None).map_or(Reply::Free, |ends| Reply::Left((ends - self.now).max(1)))
            }
        }
    }

    /// `write/acquire`: creates a write hold if no other owner writes, and no reader lives. If readers refuse, an intent stops new ones.
    pub(crate) fn write_acquire(&mut self, owner: Owner, lease: Ms, turn: Ms) -> Reply {
        let mode = match self.mode() {
            Ok(mode) => mode,
            Err(reply) => return reply,
        };
        let ends = self.now + lease;
        let hash = self.state.hash(0).cloned().unwrap_or_default();
        if mode == Some(Mode::Write) {
            if hash.holders.contains_key(&Holder::Writer(owner)) {
                self.state.hash_mut(0).raise(ends);
                return Reply::Done;
            }
            return self.written(&hash);
        }
        if mode == Some(Mode::Read) && hash.fields() == 1 {
            return Reply::NotALock;
        }
        if let Some(reader) =
            self.other_reader(None).filter(|_| self.fault != Some(Fault::WriterBesideReader))
        {
            if turn > 0 && self.state.intent.is_none_or(|intent| intent.writer.is_none()) {
                let ends = self.now + 10 * turn;
                self.state.intent = Some(Intent { calm: 9 * turn, writer: Some(owner), ends });
            }
            return Reply::Left((reader - self.now).max(1));
        }
        self.state.intent = None;
        let holders = [(Holder::Writer(owner), 1)].into();
        let written = Hash { mode: Some(Mode::Write), holders, has_data: false, ends: Some(ends) };
        self.state.locks[0] = Some(Lock::Hash(written));
        Reply::Done
    }

    /// `write/release`: frees the lock, or leaves it to the owner's read hold, and wakes all waiters. A writer that gives up removes its
    /// intent.
    pub(crate) fn write_release(&mut self, owner: Owner) -> Reply {
        let hash = match &self.state.locks[0] {
            Some(Lock::Other) => return Reply::Error,
            Some(Lock::Hash(hash)) if hash.holders.contains_key(&Holder::Writer(owner)) => hash.clone(),
            _ => {
                if self.state.intent.is_some_and(|intent| intent.writer == Some(owner)) {
                    self.state.intent = None;
                    self.publish(Message::ReadWrite(1));
                }
                return Reply::Lost;
            }
        };
        let reads_until = self.state.reader_ends(owner);
        self.state.locks[0] = reads_until.map(|ends| {
            let mut hash = hash;
            hash.holders.remove(&Holder::Writer(owner));
            Lock::Hash(Hash { mode: Some(Mode::Read), ends: Some(ends), ..hash })
        });
        self.publish(Message::ReadWrite(1))
    }

    /// `write/state`
    pub(crate) fn write_state(&self) -> Reply {
        match (self.mode(), self.state.hash(0)) {
            (Err(reply), _) => reply,
            (Ok(Some(Mode::Write)), Some(hash)) => self.written(hash),
            _ => Reply::Free,
        }
    }
}
