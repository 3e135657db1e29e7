//! The floor: lockkeeper's own scripts with nothing around them. One command to acquire, one to release; and to wait,
//! the steps that can not be left out: release and publish, hear the message, acquire.
//!
//! It is no lock to use. It survives no fault, no lost message, no dropped future, and renews nothing.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, IntoConnectionInfo, Script, cmd,
};
use tokio::sync::Notify;

use crate::peer::{LEASE, Lock, Peer};

const ACQUIRE: &str = include_str!("../../lua/rlock/acquire.lua");
const RELEASE: &str = include_str!("../../lua/rlock/release.lua");
const FAIR_ACQUIRE: &str = include_str!("../../lua/fair/acquire.lua");
const FAIR_RELEASE: &str = include_str!("../../lua/fair/release.lua");
const READ_ACQUIRE: &str = include_str!("../../lua/read/acquire.lua");
const READ_RELEASE: &str = include_str!("../../lua/read/release.lua");

/// What several scripts share, by the name that their headers give it.
const SHARED: [(&str, &str); 2] = [
    ("fair/shared.lua", include_str!("../../lua/fair/shared.lua")),
    ("read/shared.lua", include_str!("../../lua/read/shared.lua")),
];

/// As long as a lockkeeper waiter counts as alive by default, and the longest that Java waits.
const ALLOWANCE_MS: u64 = 6_000;
const JAVA_WAIT_MS: u64 = 300_000;

/// As many as a lockkeeper client has by default.
const CONNECTIONS: usize = 2;

/// Within this, every command is answered.
const PATIENCE: Duration = Duration::from_secs(10);

const LEASE_MS: u64 = LEASE.as_millis() as u64;

#[derive(Clone)]
pub struct Bare(Arc<Shared>);

/// The scripts of the fair lock. Who waits has a channel of its own.
pub struct BareFair(Bare);

/// The scripts of the read lock.
pub struct BareRead(Bare);

struct Shared {
    connections: Vec<MultiplexedConnection>,
    wakes: Wakes,
    /// By which the server knows the scripts.
    acquire: String,
    release: String,
    next_owner: AtomicU64,
}

pub struct BareLock {
    bare: Bare,
    connection: MultiplexedConnection,
    name: String,
    channel: String,
    form: Form,
}

/// What the scripts are given besides.
enum Form {
    Plain,
    /// The keys of the queue.
    Fair([String; 3]),
    /// The number of the grant.
    Read,
}

/// Of a hold. Nobody else ever has the same.
pub struct Owner {
    id: String,
    number: u64,
}

pub fn address(url: &str) -> ConnectionInfo {
    let address = url.into_connection_info().expect("a good URL");
    address.set_tcp_settings(TcpSettings::default().set_nodelay(true))
}

pub async fn connection(url: &str) -> MultiplexedConnection {
    let client = Client::open(address(url)).expect("a good address");
    // It is 500 ms otherwise, which a busy machine may need.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&patient).await.expect("a connection")
}

pub async fn run<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &Cmd) -> T {
    command.query_async(connection).await.expect("an answer")
}

async fn load(connection: &mut MultiplexedConnection, source: &str) -> String {
    Script::new(&assembled(source)).load_async(connection).await.expect("a script the server can read")
}

impl Peer for Bare {
    type Lock = BareLock;

    async fn connect(url: &str) -> Self {
        Self::with(url, ACQUIRE, RELEASE).await
    }

    /// The name picks the connection, by the same hash as in lockkeeper.
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
        Self(Bare::with(url, FAIR_ACQUIRE, FAIR_RELEASE).await)
    }

    fn lock(&self, name: &str) -> BareLock {
        let keys = ["redisson_lock_queue", "redisson_lock_timeout", "lockkeeper_fair"];
        let form = Form::Fair(keys.map(|key| format!("{key}:{{{name}}}")));
        BareLock { form, ..self.0.lock(name) }
    }
}

impl Peer for BareRead {
    type Lock = BareLock;

    async fn connect(url: &str) -> Self {
        Self(Bare::with(url, READ_ACQUIRE, READ_RELEASE).await)
    }

    fn lock(&self, name: &str) -> BareLock {
        let channel = format!("redisson_rwlock:{{{name}}}");
        BareLock { form: Form::Read, channel, ..self.0.lock(name) }
    }
}

/// Behind the first line of a script stands what its header says that it is with.
fn assembled(script: &str) -> String {
    let Some(with) = script.lines().find_map(|line| line.strip_prefix("  With  ")) else {
        return script.to_owned();
    };
    let (_, shared) = SHARED.into_iter().find(|(name, _)| *name == with).expect("a known file");
    let (first_line, rest) = script.split_once('\n').expect("more than one line");
    format!("{first_line}\n{shared}{rest}")
}

impl Bare {
    async fn with(url: &str, acquire: &str, release: &str) -> Self {
        let mut connections = join_all((0..CONNECTIONS).map(|_| connection(url))).await;
        let acquire = load(&mut connections[0], acquire).await;
        let release = load(&mut connections[0], release).await;
        let wakes = Wakes::connect(url).await;
        Self(Arc::new(Shared { connections, wakes, acquire, release, next_owner: AtomicU64::new(1) }))
    }

    /// Of the same form and length as lockkeeper's: a UUID and a number.
    fn new_owner(&self) -> Owner {
        let number = self.0.next_owner.fetch_add(1, Ordering::Relaxed);
        Owner { id: format!("00000000-0000-4000-8000-{:012x}:{number}", process::id()), number }
    }
}

impl BareLock {
    async fn acquire(&mut self, Owner { id, number }: &Owner) -> bool {
        let mut command = cmd("EVALSHA");
        command.arg(&self.bare.0.acquire);
        match &self.form {
            Form::Plain => command.arg(1).arg(&self.name).arg(id).arg(LEASE_MS),
            Form::Fair(queue) => {
                command.arg(5).arg(&self.name).arg(queue).arg(&self.channel);
                command.arg(id).arg(LEASE_MS).arg(ALLOWANCE_MS).arg(JAVA_WAIT_MS)
            }
            Form::Read => command.arg(1).arg(&self.name).arg(id).arg(number).arg(LEASE_MS),
        };
        let left: Option<i64> = run(&mut self.connection, &command).await;
        left.is_none()
    }

    async fn release(&mut self, Owner { id, number }: &Owner) -> i64 {
        let mut command = cmd("EVALSHA");
        command.arg(&self.bare.0.release);
        match &self.form {
            Form::Plain => command.arg(2).arg(&self.name).arg(&self.channel).arg(id).arg(0),
            Form::Fair(queue) => {
                command.arg(5).arg(&self.name).arg(queue).arg(&self.channel);
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
        assert_eq!(self.release(&owner).await, 1, "a lock that was held");
    }
}

/// One connection that hears messages, for all who wait. A channel that was heard once is heard for ever.
struct Wakes {
    sink: PubSubSink,
    channels: Arc<Mutex<HashMap<String, Arc<Notify>>>>,
}

impl Wakes {
    async fn connect(url: &str) -> Self {
        let client = Client::open(address(url)).expect("a good address");
        let (sink, mut stream) = client.get_async_pubsub().await.expect("a connection").split();
        let channels = Arc::new(Mutex::new(HashMap::<String, Arc<Notify>>::new()));
        let heard = Arc::clone(&channels);
        tokio::spawn(async move {
            while let Some(message) = stream.next().await {
                let channels = heard.lock().expect("no panic");
                if let Some(waiting) = channels.get(message.get_channel_name()) {
                    waiting.notify_one();
                }
            }
        });
        Self { sink, channels }
    }

    /// Returns when it is time to attempt again: on a message, or once the channel is heard for the first time.
    async fn wait(&self, channel: &str) {
        match self.waiting(channel) {
            Some(waiting) => waiting.notified().await,
            None => self.sink.clone().subscribe(channel).await.expect("a subscription"),
        }
    }

    /// Nobody will wait there again. Whoever has the lock does not wait for that.
    fn forget(&self, channel: &str) {
        let known = self.channels.lock().expect("no panic").remove(channel);
        if known.is_some() {
            let (mut sink, channel) = (self.sink.clone(), channel.to_owned());
            tokio::spawn(async move { sink.unsubscribe(channel).await.expect("an answer") });
        }
    }

    /// Who waits there already. `None`: nobody ever did, and whoever asks has to subscribe.
    fn waiting(&self, channel: &str) -> Option<Arc<Notify>> {
        let mut channels = self.channels.lock().expect("no panic");
        let known = channels.get(channel).cloned();
        if known.is_none() {
            channels.insert(channel.to_owned(), Arc::default());
        }
        known
    }
}
