//! What is on the server about one name.

use std::collections::BTreeMap;

/// Milliseconds: a time of the server, or a duration.
pub type Ms = i64;
/// The number of an owner. On the server, it is a UUID and a number.
pub type Owner = u8;
/// The number of a permit. On the server, it has 16 bytes.
pub type Permit = u8;

/// The end of a lease that has no end: what Redisson writes for a permit.
pub const ENDLESS: Ms = 922_337_203_685_477;

/// All keys of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The hashes of the locks. The first one is that of the lock, whatever its kind is. Claims use them as a list of names.
    pub locks: [Option<Lock>; 3],
    /// The keys of read holds (`rwlock_timeout`). The number of a key is 1, except for further holds of a reader of Redisson.
    pub reads: BTreeMap<(Owner, u8), Read>,
    /// The intent of a writer that waits.
    pub intent: Option<Intent>,
    /// The four keys of the queue of a fair lock.
    pub queue: Queue,
    /// The counter of a fenced lock.
    pub counter: Option<Counter>,
    /// The counter of claims.
    pub claims: Option<Counter>,
    /// How many permits of a semaphore are available.
    pub available: Option<Counter>,
    /// The permits in use, and the ends of their leases.
    pub permits: BTreeMap<Permit, Ms>,
    /// What a leader announces.
    pub announcement: Option<Announcement>,
    /// Connections that listen to the messages of the lock.
    pub listeners: i64,
    /// Which one of several readers a script looks at: the server picks at random.
    pub pick: usize,
}

/// What the key of a lock holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lock {
    /// A hash.
    Hash(Hash),
    /// Another type: no lock.
    Other,
}

/// The hash of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hash {
    /// Only a read-write lock has a mode.
    pub mode: Option<Mode>,
    /// The hold counts.
    pub holders: BTreeMap<Holder, i64>,
    /// Whether there is a field of another program.
    pub has_data: bool,
    /// The end of the lease.
    pub ends: Option<Ms>,
}

/// A field of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// The holder of a lock, or a reader.
    Owner(Owner),
    /// The field with `:write`.
    Writer(Owner),
}

/// The mode of a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Readers hold it.
    Read,
    /// A writer holds it, and perhaps reads.
    Write,
}

/// The key of a read hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    /// The number of the grant.
    pub grant: i64,
    /// The end of the lease.
    pub ends: Ms,
}

/// The key with which a waiting writer stops new readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Intent {
    /// Readers are stopped until the intent lasts no longer than this.
    pub calm: Ms,
    /// The writer. `None`: somebody, for whom the client of a reader set it.
    pub writer: Option<Owner>,
    /// When the key expires.
    pub ends: Ms,
}

/// A key of the queue, and when it expires. An empty key does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the line above says it")]
pub struct Key<T> {
    pub value: T,
    pub ends: Option<Ms>,
}

/// The queue of a fair lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queue {
    /// The waiters, in order.
    pub list: Key<Vec<Owner>>,
    /// Until when Java considers each waiter alive.
    pub scores: Key<BTreeMap<Owner, Ms>>,
    /// A waiter with a record is ours. Others are Java's.
    pub records: Key<BTreeMap<Owner, Record>>,
    /// When each waiter of ours queued, in µs.
    pub tickets: Key<BTreeMap<Owner, i64>>,
}

/// What is known of a waiter of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Until when it counts as alive.
    pub until: Ms,
    /// How many Java clients queued before it.
    pub java_before: i64,
}

/// The text of a key that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// A number.
    Number(i64),
    /// No number.
    Text,
}

/// What a leader announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// It counts only while this owner holds the lock.
    pub owner: Owner,
    /// What it announces.
    pub text: u8,
    /// When the key expires.
    pub ends: Ms,
}

impl State {
    /// Removes the keys that have expired.
    pub fn expire(&mut self, now: Ms) {
        let is_over = |ends: Option<Ms>| ends.is_some_and(|ends| ends < now);
        for lock in &mut self.locks {
            if matches!(lock, Some(Lock::Hash(hash)) if is_over(hash.ends)) {
                *lock = None;
            }
        }
        self.reads.retain(|_, read| read.ends >= now);
        self.intent = self.intent.filter(|intent| intent.ends >= now);
        self.announcement = self.announcement.filter(|said| said.ends >= now);
        let Queue { list, scores, records, tickets } = &mut self.queue;
        for (is_over, clear) in [
            (is_over(list.ends), &mut (|| list.value.clear()) as &mut dyn FnMut()),
            (is_over(scores.ends), &mut || scores.value.clear()),
            (is_over(records.ends), &mut || records.value.clear()),
            (is_over(tickets.ends), &mut || tickets.value.clear()),
        ] {
            if is_over {
                clear();
            }
        }
        self.queue.tidy();
    }

    /// The hash of a lock.
    pub fn hash(&self, lock: usize) -> Option<&Hash> {
        match &self.locks[lock] {
            Some(Lock::Hash(hash)) => Some(hash),
            _ => None,
        }
    }

    /// The hash of a lock, which is created if there is none.
    pub(crate) fn hash_mut(&mut self, lock: usize) -> &mut Hash {
        match self.locks[lock].get_or_insert_with(|| Lock::Hash(Hash::default())) {
            Lock::Hash(hash) => hash,
            Lock::Other => unreachable!("scripts fail before they change a key of another type"),
        }
    }

    /// Redis deletes a key with its last field.
    pub(crate) fn tidy(&mut self, lock: usize) {
        if self.hash(lock).is_some_and(|hash| hash.fields() == 0) {
            self.locks[lock] = None;
        }
    }

    /// The end of the lease of a reader that lives: the latest of its keys.
    pub fn reader_ends(&self, owner: Owner) -> Option<Ms> {
        let count = self.hash(0)?.holders.get(&Holder::Owner(owner))?;
        (1..=*count)
            .filter_map(|number| Some(self.reads.get(&(owner, u8::try_from(number).ok()?))?.ends))
            .max()
    }

    /// The living readers.
    pub fn readers(&self) -> Vec<(Owner, Ms)> {
        let holders = self.hash(0).into_iter().flat_map(|hash| hash.holders.keys());
        let readers = holders.filter_map(|holder| match *holder {
            Holder::Owner(owner) => Some((owner, self.reader_ends(owner)?)),
            Holder::Writer(_) => None,
        });
        readers.collect()
    }
}

impl Hash {
    /// How many fields it has.
    pub fn fields(&self) -> usize {
        self.holders.len() + usize::from(self.mode.is_some()) + usize::from(self.has_data)
    }

    pub(crate) fn has(&self, owner: Owner) -> bool {
        self.holders.contains_key(&Holder::Owner(owner))
    }

    /// Whether one owner holds the lock alone: then it is no read-write lock.
    pub(crate) fn is_single(&self) -> bool {
        self.fields() == 1 && matches!(self.holders.keys().next(), Some(Holder::Owner(_)))
    }

    /// `extend_lease`: at least until then. A lease that another program removed is set again.
    pub(crate) fn extend(&mut self, ends: Ms) {
        self.ends = Some(self.ends.map_or(ends, |before| before.max(ends)));
    }

    /// `PEXPIRE … GT`: the same, but a key without expiry keeps none.
    pub(crate) fn raise(&mut self, ends: Ms) {
        self.ends = self.ends.map(|before| before.max(ends));
    }
}

impl Queue {
    /// Redis deletes a key with its last item, and its expiry with it.
    pub(crate) fn tidy(&mut self) {
        let Self { list, scores, records, tickets } = self;
        list.ends = list.ends.filter(|_| !list.value.is_empty());
        scores.ends = scores.ends.filter(|_| !scores.value.is_empty());
        records.ends = records.ends.filter(|_| !records.value.is_empty());
        tickets.ends = tickets.ends.filter(|_| !tickets.value.is_empty());
    }
}
