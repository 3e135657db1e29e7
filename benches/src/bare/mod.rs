//! The floor of the comparison: lockkeeper's own scripts with nothing around them, and Redisson's in the same way. One
//! command acquires, one releases. A waiter does only what it must: it subscribes, and attempts again after a message.
//!
//! It is not a lock to use. It survives no fault, no lost message and no dropped future, and it renews nothing.

pub mod scripts;
mod wakes;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, cmd};

use self::scripts::{lockkeeper, redisson};
use self::wakes::Wakes;
use crate::connection::{connect, load, run};
use crate::peer::{LEASE, Lock, Peer};

/// Lockkeeper's defaults: how long a waiter counts as alive, and the longest that a Java client waits.
const ALLOWANCE_MS: u64 = 6_000;
const JAVA_WAIT_MS: u64 = 300_000;

/// How long Redisson remembers an unlock that nobody confirmed.
const LATCH_MS: u64 = 20_000;

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

/// The scripts of Redisson's RLock. A `DEL` follows each unlock, and nobody awaits it, as in Redisson.
pub struct BareRedisson(Bare);

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
    Redisson,
}

/// The owner of one hold. No other hold has the same.
pub struct Owner {
    id: String,
    number: u64,
}

impl Peer for Bare {
    type Lock = BareLock;

    async fn connect(url: &str) -> Self {
        Self::lockkeeper(url, "rlock").await
    }

    /// A hash of the name chooses the connection, as in lockkeeper.
    fn lock(&self, name: &str) -> BareLock {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let connection = self.0.connections[hasher.finish() as usize % CONNECTIONS].clone();
        let channel = format!("redisson_lock__channel:{{{name}}}");
        BareLock { bare: self.clone(), connection, name: name.to_owned(), channel, form: Form::Plain }
    }
}

impl Peer for BareFair {
    type Lock = BareLock;

    async fn connect(url: &str) -> Self {
        Self(Bare::lockkeeper(url, "fair").await)
    }

    fn lock(&self, name: &str) -> BareLock {
        let keys =
            ["redisson_lock_queue", "redisson_lock_timeout", "lockkeeper_fair", "lockkeeper_fair_tickets"];
        let form = Form::Fair(keys.map(|key| format!("{key}:{{{name}}}")));
        BareLock { form, ..self.0.lock(name) }
    }
}

impl Peer for BareRead {
    type Lock = BareLock;

    async fn connect(url: &str) -> Self {
        Self(Bare::lockkeeper(url, "read").await)
    }

    fn lock(&self, name: &str) -> BareLock {
        let channel = format!("redisson_rwlock:{{{name}}}");
        BareLock { form: Form::Read, channel, ..self.0.lock(name) }
    }
}

impl Peer for BareRedisson {
    type Lock = BareLock;

    async fn connect(url: &str) -> Self {
        Self(Bare::with(url, &redisson("rlock/acquire.lua"), &redisson("rlock/unlock.lua")).await)
    }

    fn lock(&self, name: &str) -> BareLock {
        BareLock { form: Form::Redisson, ..self.0.lock(name) }
    }
}

impl Bare {
    async fn lockkeeper(url: &str, kind: &str) -> Self {
        let [acquire, release] = ["acquire", "release"].map(|what| lockkeeper(&format!("{kind}/{what}.lua")));
        Self::with(url, &acquire, &release).await
    }

    async fn with(url: &str, acquire: &str, release: &str) -> Self {
        let mut connections = join_all((0..CONNECTIONS).map(|_| connect(url))).await;
        let acquire = load(&mut connections[0], acquire).await;
        let release = load(&mut connections[0], release).await;
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
            Form::Redisson => command.arg(1).arg(&self.name).arg(LEASE_MS).arg(id),
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
            Form::Redisson => return self.release_as_redisson(command, id, *number).await,
        };
        run(&mut self.connection, &command).await
    }

    async fn release_as_redisson(&mut self, mut unlock: Cmd, id: &str, number: u64) -> i64 {
        let latch = format!("redisson_unlock_latch:{{{}}}:{number:032x}", self.name);
        unlock.arg(3).arg(&self.name).arg(&self.channel).arg(&latch);
        unlock.arg("0").arg(LEASE_MS).arg(id).arg("publish").arg(LATCH_MS);
        let answer = run(&mut self.connection, &unlock).await;
        let mut connection = self.connection.clone();
        tokio::spawn(async move { run::<()>(&mut connection, cmd("DEL").arg(latch)).await });
        answer
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
