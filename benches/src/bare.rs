//! The floor of the comparison: lockkeeper's own scripts with nothing around them. One command acquires, one releases. A waiter
//! does only what it must: it subscribes, and attempts again after a message.
//!
//! It is not a lock to use. It survives no fault, no lost message and no dropped future, and it renews nothing.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::future::join_all;
use lockkeeper_testkit::lua;
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{Client, cmd};
use tokio::sync::Notify;

use crate::connection::{address, connect, load, run};
use crate::peer::{LEASE, Lock, Peer};

/// Lockkeeper's defaults: how long a waiter counts as alive, and the longest that a Java client waits.
const ALLOWANCE_MS: u64 = 6_000;
const JAVA_WAIT_MS: u64 = 300_000;

const QUEUE: [&str; 4] =
    ["redisson_lock_queue", "redisson_lock_timeout", "lockkeeper_fair", "lockkeeper_fair_tickets"];

/// As many as a lockkeeper client has by default.
const CONNECTIONS: usize = 2;

const LEASE_MS: u64 = LEASE.as_millis() as u64;

/// The scripts of `RLock`.
#[derive(Clone)]
pub struct Bare(Arc<Shared>);

/// The scripts of the fair lock. Each waiter has a channel of its own.
pub struct BareFair(Bare);

/// The scripts of the read lock.
pub struct BareRead(Bare);

struct Shared {
    connections: Vec<MultiplexedConnection>,
    wakes: Wakes,
    /// The hashes by which the server calls the scripts.
    acquire: String,
    release: String,
    id: String,
    next_owner: AtomicU64,
}

pub struct BareLock {
    bare: Bare,
    connection: MultiplexedConnection,
    name: String,
    channel: String,
    form: Form,
}

/// Which keys and arguments the scripts take.
enum Form {
    Plain,
    /// With the keys of the queue.
    Fair([String; 4]),
    /// With the number of the grant.
    Read,
}

/// The owner of one hold. No other hold has the same.
pub struct Owner {
    id: String,
    number: u64,
}

impl Peer for Bare {
    type Lock = BareLock;

    async fn connect(url: &str) -> Self {
        Self::with(url, "rlock").await
    }

    /// A hash of the name chooses the connection, as in lockkeeper.
    fn lock(&self, name: &str) -> BareLock {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let connection = self.0.connections[hasher.finish() as usize % CONNECTIONS].clone();
        let (name, channel) = (name.to_owned(), lock_channel(name));
        BareLock { bare: self.clone(), connection, name, channel, form: Form::Plain }
    }
}

/// A lock like that of `Bare`, with other scripts.
macro_rules! bare {
    ($peer:ident by $kind:literal: |$name:ident| $form:expr, $channel:expr) => {
        impl Peer for $peer {
            type Lock = BareLock;

            async fn connect(url: &str) -> Self {
                Self(Bare::with(url, $kind).await)
            }

            fn lock(&self, $name: &str) -> BareLock {
                BareLock { form: $form, channel: $channel, ..self.0.lock($name) }
            }
        }
    };
}

bare!(BareFair by "fair": |name| Form::Fair(QUEUE.map(|key| format!("{key}:{{{name}}}"))), lock_channel(name));
bare!(BareRead by "read": |name| Form::Read, format!("redisson_rwlock:{{{name}}}"));

fn lock_channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

impl Bare {
    async fn with(url: &str, kind: &str) -> Self {
        let mut connections = join_all((0..CONNECTIONS).map(|_| connect(url))).await;
        let acquire = load(&mut connections[0], &lua::source(&format!("{kind}/acquire.lua"))).await;
        let release = load(&mut connections[0], &lua::source(&format!("{kind}/release.lua"))).await;
        let wakes = Wakes::connect(url).await;
        let id = format!("00000000-0000-4000-8000-{:012x}", process::id());
        Self(Arc::new(Shared { connections, wakes, acquire, release, id, next_owner: AtomicU64::new(1) }))
    }

    /// The id has the form and length of lockkeeper's: a UUID and a number.
    fn new_owner(&self) -> Owner {
        let number = self.0.next_owner.fetch_add(1, Ordering::Relaxed);
        Owner { id: format!("{}:{number}", self.0.id), number }
    }
}

impl BareLock {
    async fn acquire(&mut self, Owner { id, number }: &Owner) -> bool {
        let mut command = cmd("EVALSHA");
        command.arg(&self.bare.0.acquire);
        match &self.form {
            Form::Plain => command.arg(1).arg(&self.name).arg(id).arg(LEASE_MS),
            Form::Fair(queue) => {
                command.arg(6).arg(&self.name).arg(queue).arg(&self.channel);
                command.arg(id).arg(LEASE_MS).arg(ALLOWANCE_MS).arg(JAVA_WAIT_MS)
            }
            Form::Read => {
                command.arg(2).arg(&self.name).arg(&self.channel);
                command.arg(id).arg(number).arg(LEASE_MS)
            }
        };
        let left: Option<i64> = run(&mut self.connection, &command).await;
        left.is_none()
    }

    async fn release(&mut self, Owner { id, number }: &Owner) -> i64 {
        let mut command = cmd("EVALSHA");
        command.arg(&self.bare.0.release);
        match &self.form {
            Form::Plain => command.arg(1).arg(&self.name).arg(id).arg(0).arg(&self.channel),
            Form::Fair(queue) => {
                command.arg(6).arg(&self.name).arg(queue).arg(&self.channel);
                command.arg(id).arg(0).arg(JAVA_WAIT_MS)
            }
            Form::Read => {
                command.arg(2).arg(&self.name).arg(&self.channel);
                command.arg(id).arg(number).arg(0).arg(LEASE_MS)
            }
        };
        run(&mut self.connection, &command).await
    }
}

impl Lock for BareLock {
    type Guard = Owner;

    async fn lock(&mut self) -> Owner {
        let owner = self.bare.new_owner();
        let own_channel =
            matches!(self.form, Form::Fair(_)).then(|| format!("{}:{}", self.channel, owner.id));
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
