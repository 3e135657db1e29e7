//! The floor of the comparison: lockkeeper's own scripts, and Redisson's, with nothing around them. One command acquires, one releases.
//! A waiter does only what it must: it subscribes, and attempts again after a message.
//!
//! It is not a lock to use. It survives no fault, no lost message and no dropped future, and it renews nothing.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::future::join_all;
use lockkeeper_testkit::lua;
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{Client, Cmd, Value, cmd, pipe};
use tokio::sync::Notify;

use crate::connection::{address, connect, load, run};
use crate::peer::{LEASE, Lock, Peer};
use crate::redisson_lua as java;

/// Lockkeeper's defaults: how long a waiter counts as alive, and the longest that a Java client waits.
const ALLOWANCE_MS: u64 = 6_000;
const JAVA_WAIT_MS: u64 = 300_000;

const QUEUE: [&str; 4] =
    ["redisson_lock_queue", "redisson_lock_timeout", "lockkeeper_fair", "lockkeeper_fair_tickets"];

/// As many as a lockkeeper client has by default.
const CONNECTIONS: usize = 2;

const VALID_UNTIL: u64 = 9_999_999_999;
const LEASE_MS: u64 = LEASE.as_millis() as u64;

/// How many permits a semaphore has.
const PERMITS: u64 = 256;

/// What Redisson writes for a lease without an end.
const ENDLESS: u64 = 922_337_203_685_477;

/// How long Redisson keeps the unlock latch, if the unlock is not answered.
const LATCH_MS: u64 = 18_000;

/// A type of lock: the scripts that acquire and release it, and how they are called.
#[derive(Clone, Copy)]
pub struct Kind {
    acquire: fn() -> String,
    release: fn() -> String,
    /// The keys and the arguments of the two scripts, for a lock with this name.
    calls: fn(&str) -> [Call; 2],
    /// The channel on which the lock's waiters listen.
    channel: fn(&str) -> String,
    /// Each waiter has a channel of its own.
    is_fair: bool,
    /// Redisson's unlock with its latch.
    has_latch: bool,
    /// Redisson creates a semaphore before it is used.
    has_permits: bool,
}

/// The keys and the arguments of a script.
type Call = (Vec<Word>, Vec<Word>);

#[derive(Clone)]
enum Word {
    Text(String),
    Number(u64),
    /// The owner of the hold, between these two texts.
    Owner(String, &'static str),
    /// The number of the grant.
    Grant,
    /// The id of the permit: 16 bytes.
    Permit,
    /// Milliseconds of this machine's clock, and so many more.
    Now(u64),
    /// A key that only this unlock has.
    Latch(String),
}
use Word::{Grant, Latch, Now, Number, Owner as Id, Permit};

fn text(text: &str) -> Word {
    Word::Text(text.to_owned())
}

fn owner() -> Word {
    Id(String::new(), "")
}

fn writer() -> Word {
    Id(String::new(), ":write")
}

fn key(prefix: &str, name: &str) -> Word {
    Word::Text(format!("{prefix}:{{{name}}}"))
}

fn lock_channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

fn read_write_channel(name: &str) -> String {
    format!("redisson_rwlock:{{{name}}}")
}

fn permit_channel(name: &str) -> String {
    format!("redisson_sc:{{{name}}}")
}

/// Those of this repository.
const OURS: Kind = Kind {
    acquire: || lua::source("rlock/acquire.lua"),
    release: || lua::source("rlock/release.lua"),
    calls: |name| {
        [
            (vec![text(name)], vec![owner(), Number(LEASE_MS), Number(VALID_UNTIL)]),
            (vec![text(name)], vec![owner(), text(&lock_channel(name))]),
        ]
    },
    channel: lock_channel,
    is_fair: false,
    has_latch: false,
    has_permits: false,
};

const OUR_FENCED: Kind = Kind {
    acquire: || lua::source("fenced/acquire.lua"),
    calls: |name| {
        let [_, release] = (OURS.calls)(name);
        [
            (
                vec![text(name), key("redisson_lock_token", name)],
                vec![owner(), Number(LEASE_MS), Number(VALID_UNTIL)],
            ),
            release,
        ]
    },
    ..OURS
};

const OUR_FAIR: Kind = Kind {
    acquire: || lua::source("fair/acquire.lua"),
    release: || lua::source("fair/release.lua"),
    calls: |name| {
        let queue = QUEUE.map(|prefix| key(prefix, name));
        let keys = [&[text(name)][..], &queue, &[text(&lock_channel(name))]].concat();
        let acquire = vec![owner(), Number(LEASE_MS), Number(ALLOWANCE_MS), Number(VALID_UNTIL)];
        [(keys.clone(), acquire), (keys, vec![owner()])]
    },
    is_fair: true,
    ..OURS
};

const OUR_READ: Kind = Kind {
    acquire: || lua::source("read/acquire.lua"),
    release: || lua::source("read/release.lua"),
    calls: |name| {
        let keys = vec![text(name), text(&read_write_channel(name))];
        [
            (keys.clone(), vec![owner(), Grant, Number(LEASE_MS), Number(VALID_UNTIL)]),
            (keys, vec![owner(), Grant, Number(LEASE_MS)]),
        ]
    },
    channel: read_write_channel,
    ..OURS
};

const OUR_WRITE: Kind = Kind {
    acquire: || lua::source("write/acquire.lua"),
    release: || lua::source("write/release.lua"),
    calls: |name| {
        let keys = vec![text(name), text(&read_write_channel(name))];
        [
            (keys.clone(), vec![writer(), Number(LEASE_MS), Number(0), Number(VALID_UNTIL)]),
            (keys, vec![writer()]),
        ]
    },
    channel: read_write_channel,
    ..OURS
};

const OUR_PERMIT: Kind = Kind {
    acquire: || lua::source("semaphore/acquire.lua"),
    release: || lua::source("semaphore/release.lua"),
    calls: |name| {
        let keys = vec![text(name), Word::Text(format!("{{{name}}}:timeout"))];
        let channel = text(&permit_channel(name));
        let acquire = vec![Permit, Number(PERMITS), Number(LEASE_MS), channel.clone(), Number(VALID_UNTIL)];
        [(keys.clone(), acquire), (keys, vec![Permit, channel])]
    },
    channel: permit_channel,
    ..OURS
};

/// Redisson's, with the unlock latch.
const JAVA: Kind = Kind {
    acquire: || java::LOCK.to_owned(),
    release: || java::UNLOCK.to_owned(),
    calls: |name| {
        let channel = text(&lock_channel(name));
        [
            (vec![text(name)], vec![Number(LEASE_MS), owner()]),
            (
                vec![text(name), channel, latch(name)],
                vec![Number(0), Number(LEASE_MS), owner(), text("publish"), Number(LATCH_MS)],
            ),
        ]
    },
    has_latch: true,
    ..OURS
};

const JAVA_FENCED: Kind = Kind {
    acquire: || java::FENCED_LOCK.to_owned(),
    calls: |name| {
        let [_, release] = (JAVA.calls)(name);
        [(vec![text(name), key("redisson_lock_token", name)], vec![Number(LEASE_MS), owner()]), release]
    },
    ..JAVA
};

const JAVA_FAIR: Kind = Kind {
    acquire: || java::FAIR_LOCK.to_owned(),
    release: || java::FAIR_UNLOCK.to_owned(),
    calls: |name| {
        let [queue, scores, ..] = QUEUE.map(|prefix| key(prefix, name));
        let keys = vec![text(name), queue, scores];
        let release = [&keys[..], &[text(&lock_channel(name)), latch(name)]].concat();
        [
            (keys, vec![Number(LEASE_MS), owner(), Number(JAVA_WAIT_MS), Now(0)]),
            (release, vec![Number(0), Number(LEASE_MS), owner(), Now(0), text("publish"), Number(LATCH_MS)]),
        ]
    },
    ..JAVA
};

const JAVA_READ: Kind = Kind {
    acquire: || java::READ_LOCK.to_owned(),
    release: || java::READ_UNLOCK.to_owned(),
    calls: |name| {
        let (channel, holds) =
            (text(&read_write_channel(name)), Id(format!("{{{name}}}:"), ":rwlock_timeout"));
        let all = Word::Text(format!("{{{name}}}"));
        [
            (vec![text(name), holds.clone()], vec![Number(LEASE_MS), owner(), writer()]),
            (
                vec![text(name), channel, holds, all, latch(name)],
                vec![Number(0), owner(), text("publish"), Number(LATCH_MS)],
            ),
        ]
    },
    channel: read_write_channel,
    ..JAVA
};

const JAVA_WRITE: Kind = Kind {
    acquire: || java::WRITE_LOCK.to_owned(),
    release: || java::WRITE_UNLOCK.to_owned(),
    calls: |name| {
        let channel = text(&read_write_channel(name));
        [
            (vec![text(name)], vec![Number(LEASE_MS), writer()]),
            (
                vec![text(name), channel, latch(name)],
                vec![Number(1), Number(LEASE_MS), writer(), text("publish"), Number(LATCH_MS)],
            ),
        ]
    },
    channel: read_write_channel,
    ..JAVA
};

/// It has no latch.
const JAVA_PERMIT: Kind = Kind {
    acquire: || java::PERMIT_ACQUIRE.to_owned(),
    release: || java::PERMIT_RELEASE.to_owned(),
    calls: |name| {
        let (permits, channel) = (Word::Text(format!("{{{name}}}:timeout")), text(&permit_channel(name)));
        let acquire = vec![Number(1), Now(LEASE_MS), Now(0), Number(ENDLESS), text("publish"), Permit];
        [
            (vec![text(name), permits.clone(), channel.clone()], acquire),
            (vec![text(name), channel, permits], vec![Permit, Number(1), Now(0), text("publish")]),
        ]
    },
    channel: permit_channel,
    has_latch: false,
    has_permits: true,
    ..JAVA
};

fn latch(name: &str) -> Word {
    Latch(format!("redisson_unlock_latch:{{{name}}}"))
}

/// The read lock, of which all tasks use the same one.
pub const SHARED_READ: &str = "ReadLock, one for all";

/// The types of locks: ours, and Redisson's.
pub const KINDS: [(&str, Kind, Kind); 7] = [
    ("RLock", OURS, JAVA),
    ("FencedLock", OUR_FENCED, JAVA_FENCED),
    ("FairLock", OUR_FAIR, JAVA_FAIR),
    ("ReadLock", OUR_READ, JAVA_READ),
    (SHARED_READ, OUR_READ, JAVA_READ),
    ("WriteLock", OUR_WRITE, JAVA_WRITE),
    ("Semaphore", OUR_PERMIT, JAVA_PERMIT),
];

/// The scripts of one type of lock.
#[derive(Clone)]
pub struct Scripts(Arc<Shared>);

struct Shared {
    kind: Kind,
    is_with_latch: bool,
    connections: Vec<MultiplexedConnection>,
    wakes: Wakes,
    /// The hashes by which the server calls the scripts.
    acquire: String,
    release: String,
    id: String,
    next_owner: AtomicU64,
}

pub struct BareLock {
    bare: Scripts,
    connection: MultiplexedConnection,
    calls: [Call; 2],
    channel: String,
}

/// The owner of one hold. No other hold has the same.
pub struct Owner {
    id: String,
    number: u64,
}

/// The scripts of one type of lock, as a peer.
macro_rules! peers {
    ($($(#[$about:meta])* $peer:ident: $kind:expr, $latch:expr;)*) => { $(
        $(#[$about])*
        pub struct $peer(Scripts);

        impl Peer for $peer {
            type Lock = BareLock;

            async fn connect(url: &str) -> Self {
                Self(Scripts::connect(url, $kind, $latch).await)
            }

            fn lock(&self, name: &str) -> BareLock {
                self.0.lock(name)
            }
        }
    )* };
}

peers! {
    /// The scripts of `RLock`.
    Bare: OURS, false;
    /// The scripts of the fair lock. Each waiter has a channel of its own.
    BareFair: OUR_FAIR, false;
    /// The scripts of the read lock.
    BareRead: OUR_READ, false;
    /// Redisson's scripts of its `RLock`, without the unlock latch.
    BareJava: JAVA, false;
    /// The same with the unlock latch.
    BareJavaLatch: JAVA, true;
    /// Redisson's scripts of its read lock, without the unlock latch.
    BareJavaRead: JAVA_READ, false;
    /// The same with the unlock latch.
    BareJavaReadLatch: JAVA_READ, true;
}

impl Scripts {
    /// `latch`: with Redisson's unlock latch, if this type has one.
    pub async fn connect(url: &str, kind: Kind, latch: bool) -> Self {
        let mut connections = join_all((0..CONNECTIONS).map(|_| connect(url))).await;
        let is_with_latch = latch && kind.has_latch;
        let release = match is_with_latch {
            false if kind.has_latch => java::without_latch(&(kind.release)()),
            _ => (kind.release)(),
        };
        let acquire = load(&mut connections[0], &(kind.acquire)()).await;
        let release = load(&mut connections[0], &release).await;
        let wakes = Wakes::connect(url).await;
        let id = format!("00000000-0000-4000-8000-{:012x}", process::id());
        let next_owner = AtomicU64::new(1);
        Self(Arc::new(Shared { kind, is_with_latch, connections, wakes, acquire, release, id, next_owner }))
    }

    /// Creates the semaphore with this name, if that has to be done before it is used.
    pub async fn prepare(&self, name: &str) {
        if self.0.kind.has_permits {
            let () = run(&mut self.0.connections[0].clone(), cmd("SET").arg(name).arg(PERMITS)).await;
        }
    }

    /// A hash of the name chooses the connection, as in lockkeeper.
    pub fn lock(&self, name: &str) -> BareLock {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let connection = self.0.connections[hasher.finish() as usize % CONNECTIONS].clone();
        let (mut calls, channel) = ((self.0.kind.calls)(name), (self.0.kind.channel)(name));
        if self.0.kind.has_latch && !self.0.is_with_latch {
            // The latch is the last key, and its time the last argument.
            calls[1].0.pop();
            calls[1].1.pop();
        }
        BareLock { bare: self.clone(), connection, calls, channel }
    }

    /// The id has the form and length of lockkeeper's: a UUID and a number.
    fn new_owner(&self) -> Owner {
        let number = self.0.next_owner.fetch_add(1, Ordering::Relaxed);
        Owner { id: format!("{}:{number}", self.0.id), number }
    }
}

impl Owner {
    /// A key that only this unlock has, with 32 hexadecimal digits behind the lock.
    fn latch(&self, prefix: &str) -> String {
        format!("{prefix}:{:032x}", self.number)
    }

    fn add(&self, word: &Word, command: &mut Cmd) {
        match word {
            Word::Text(text) => command.arg(text),
            Number(number) => command.arg(number),
            Id(before, behind) => command.arg(format!("{before}{}{behind}", self.id)),
            Grant => command.arg(self.number),
            Permit => command.arg(format!("{:016x}", self.number)),
            Now(more) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis() as u64;
                command.arg(now + more)
            }
            Latch(prefix) => command.arg(self.latch(prefix)),
        };
    }

    fn command(&self, hash: &str, (keys, args): &Call) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(hash).arg(keys.len());
        for word in keys.iter().chain(args) {
            self.add(word, &mut command);
        }
        command
    }
}

impl BareLock {
    async fn acquire(&mut self, owner: &Owner) -> bool {
        let command = owner.command(&self.bare.0.acquire, &self.calls[0]);
        match run(&mut self.connection, &command).await {
            Value::Int(_) => false, // the time that is left
            _ => true,              // nothing, a token, or what is left of a semaphore
        }
    }

    async fn release(&mut self, owner: &Owner) -> i64 {
        let command = owner.command(&self.bare.0.release, &self.calls[1]);
        let Some(Latch(prefix)) = self.calls[1].0.last() else {
            return run(&mut self.connection, &command).await;
        };
        // Redisson removes the latch without waiting for it.
        let mut both = pipe();
        both.add_command(command).cmd("DEL").arg(owner.latch(prefix)).ignore();
        let (answer,): (i64,) = both.query_async(&mut self.connection).await.expect("an answer");
        answer
    }
}

impl Lock for BareLock {
    type Guard = Owner;

    async fn lock(&mut self) -> Owner {
        let owner = self.bare.new_owner();
        let own_channel = self.bare.0.kind.is_fair.then(|| format!("{}:{}", self.channel, owner.id));
        while !self.acquire(&owner).await {
            let channel = own_channel.as_ref().unwrap_or(&self.channel);
            self.bare.0.wakes.wait(channel).await;
        }
        if let Some(channel) = &own_channel {
            self.bare.0.wakes.forget(channel);
        }
        owner
    }

    async fn unlock(&mut self, owner: Owner) {
        assert!(self.release(&owner).await >= 0, "the lock was held"); // the number of waiters that were told
    }
}

/// One connection that receives the messages for all waiters. A subscription lasts until it is forgotten.
struct Wakes {
    sink: PubSubSink,
    channels: Arc<Mutex<HashMap<String, Arc<Notify>>>>,
}

impl Wakes {
    async fn connect(url: &str) -> Self {
        let client = Client::open(address(url)).expect("a valid address");
        let (sink, mut stream) = client.get_async_pubsub().await.expect("a connection").split();
        let channels = Arc::new(Mutex::new(HashMap::<String, Arc<Notify>>::new()));
        let waited_for = Arc::clone(&channels);
        tokio::spawn(async move {
            while let Some(message) = stream.next().await {
                let channels = waited_for.lock().expect("no panic");
                if let Some(waiting) = channels.get(message.get_channel_name()) {
                    waiting.notify_one();
                }
            }
        });
        Self { sink, channels }
    }

    /// Returns when it is time to attempt again: after a message, or after the first subscription to the channel.
    async fn wait(&self, channel: &str) {
        match self.waiting(channel) {
            Some(waiting) => waiting.notified().await,
            None => self.sink.clone().subscribe(channel).await.expect("a subscription"),
        }
    }

    /// Unsubscribes in the background from a channel that no waiter will use again.
    fn forget(&self, channel: &str) {
        let known = self.channels.lock().expect("no panic").remove(channel);
        if known.is_some() {
            let (mut sink, channel) = (self.sink.clone(), channel.to_owned());
            tokio::spawn(async move { sink.unsubscribe(channel).await.expect("an answer") });
        }
    }

    /// The waiters of a channel. `None`: the channel is new, and the caller has to subscribe.
    fn waiting(&self, channel: &str) -> Option<Arc<Notify>> {
        let mut channels = self.channels.lock().expect("no panic");
        let known = channels.get(channel).cloned();
        if known.is_none() {
            channels.insert(channel.to_owned(), Arc::default());
        }
        known
    }
}
