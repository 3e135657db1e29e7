//! The server, as a test uses it.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::WallClock;
use crate::link::Link;
use crate::look;
use crate::net::{self, Conditions, Shared, Stream};
use crate::state::State;
use crate::sync::{Watched, lock};
use crate::value::Bytes;

/// A Redis server in this process, for tests. A clone is the same server.
///
/// A client connects to it by a stream in memory: [`connect`](Self::connect) opens one, and [`connector`](Self::connector) returns a
/// function that opens more.
///
/// A test makes the faults that its code must survive: a key that [expires](Self::expire), a server that [hangs](Self::freeze) or is
/// [down](Self::stop), a network that [delivers nothing](Self::hold).
///
/// Time is tokio's. With a paused clock (`#[tokio::test(start_paused = true)]`) a key expires at once after 30 s, when nothing else is
/// left to do.
///
/// ```
/// use std::time::Duration;
///
/// use lockkeeper_memory::MemoryServer;
/// use redis::aio::MultiplexedConnection;
/// use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = MemoryServer::new();
/// let stream = server.connect().await?;
/// let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
/// let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config).await?;
/// tokio::spawn(driver);
///
/// redis.set::<_, _, ()>("session", "42").await?;
/// redis.pexpire::<_, ()>("session", 30_000).await?;
/// tokio::time::sleep(Duration::from_secs(31)).await; // takes no time
/// assert!(!redis.exists::<_, bool>("session").await?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryServer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) link: Arc<Link>,
}

/// How much of its data a server still has when it starts.
///
/// ```
/// # use lockkeeper_memory::{Data, MemoryServer};
/// let server = MemoryServer::new();
/// server.stop();
/// server.start(Data::Lost);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Data {
    /// All of it, except the keys that expired meanwhile.
    Kept,
    /// Nothing, as for a server without persistence.
    Lost,
}

/// What a [connector](MemoryServer::connector) returns.
///
/// ```
/// # use lockkeeper_memory::{Connecting, MemoryServer};
/// # fn assert(_: impl Fn() -> Connecting) {}
/// assert(MemoryServer::new().connector());
/// ```
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

impl MemoryServer {
    /// Starts a server without data. Several connections share it, and a clone is the same server.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # use redis::aio::MultiplexedConnection;
    /// # use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = MemoryServer::new();
    /// # let stream = server.connect().await?;
    /// # let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    /// # let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await?;
    /// # tokio::spawn(driver);
    /// redis.set::<_, _, ()>("greeting", "hello").await?;
    /// assert_eq!(redis.get::<_, String>("greeting").await?, "hello");
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        Self::with(WallClock::start(), 1)
    }

    /// Starts a server whose time and random choices are given. For simulations.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper_memory::MemoryServer;
    /// let start = Duration::from_secs(1_700_000_000);
    /// let reply = MemoryServer::simulated(start, 1).execute(&["TIME"]);
    /// assert!(String::from_utf8_lossy(&reply).contains("1700000000"));
    /// ```
    #[doc(hidden)]
    pub fn simulated(since_1970: Duration, seed: u64) -> Self {
        Self::with(WallClock::start_at(since_1970), seed)
    }

    fn with(clock: WallClock, seed: u64) -> Self {
        let conditions =
            Conditions { is_frozen: false, is_running: true, starts: 0, slowness: Duration::ZERO };
        let shared =
            Shared { state: Mutex::new(State::new(clock, seed)), conditions: Watched::new(conditions) };
        Self { shared: Arc::new(shared), link: Arc::new(Link::new(0)) }
    }

    /// Opens a connection. The server's end is a task of the runtime on which this is called.
    ///
    /// # Errors
    ///
    /// The server does not run, or the network refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future or the stream closes the connection.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # use redis::aio::MultiplexedConnection;
    /// # use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = MemoryServer::new();
    /// # let stream = server.connect().await?;
    /// # let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    /// # let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await?;
    /// # tokio::spawn(driver);
    /// let stream = server.connect().await?;
    /// let (mut other, driver) = MultiplexedConnection::new_with_config(&settings, stream, config).await?;
    /// tokio::spawn(driver);
    /// other.set::<_, _, ()>("greeting", "hello").await?;
    /// assert!(redis.exists::<_, bool>("greeting").await?);
    /// # Ok(()) }
    /// ```
    pub async fn connect(&self) -> io::Result<Stream> {
        net::connect(&self.shared, &self.link)
    }

    /// Returns a function that [connects](Self::connect), for a library that connects by itself, and again when a connection broke.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let connect = MemoryServer::new().connector();
    /// assert!(connect().await.is_ok());
    /// # }
    /// ```
    pub fn connector(&self) -> impl Fn() -> Connecting + Clone + Send + Sync + use<> {
        let server = self.clone();
        move || {
            let server = server.clone();
            Box::pin(async move { server.connect().await })
        }
    }

    /// Ends this key, as if its time were over. Returns whether there was such a key.
    ///
    /// The keys whose names begin with `{key}:` end with it. They are in the slot of this key, because they belong to it.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # use redis::aio::MultiplexedConnection;
    /// # use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = MemoryServer::new();
    /// # let stream = server.connect().await?;
    /// # let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    /// # let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await?;
    /// # tokio::spawn(driver);
    /// redis.set::<_, _, ()>("session", "42").await?;
    /// assert!(server.expire("session"));
    /// assert!(!redis.exists::<_, bool>("session").await?);
    /// # Ok(()) }
    /// ```
    pub fn expire(&self, key: impl AsRef<str>) -> bool {
        lock(&self.shared.state).expire(key.as_ref().as_bytes())
    }

    /// Stops the process of the server without ending it, or lets it continue.
    ///
    /// A frozen server accepts connections and commands, and answers none. When it continues, it runs these commands, even if
    /// their client gave them up. Keys expire while it is frozen.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # use redis::aio::MultiplexedConnection;
    /// # use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = MemoryServer::new();
    /// # let stream = server.connect().await?;
    /// # let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    /// # let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await?;
    /// # tokio::spawn(driver);
    /// server.freeze(true);
    /// assert!(redis.set::<_, _, ()>("greeting", "hello").await.unwrap_err().is_timeout());
    /// server.freeze(false);
    /// assert_eq!(redis.get::<_, String>("greeting").await?, "hello", "it ran late");
    /// # Ok(()) }
    /// ```
    pub fn freeze(&self, is_frozen: bool) {
        self.change(|conditions| conditions.is_frozen = is_frozen);
    }

    /// Ends the process of the server: connections are closed, and new ones are refused.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # use redis::aio::MultiplexedConnection;
    /// # use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = MemoryServer::new();
    /// # let stream = server.connect().await?;
    /// # let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    /// # let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await?;
    /// # tokio::spawn(driver);
    /// server.stop();
    /// assert!(redis.set::<_, _, ()>("greeting", "hello").await.is_err());
    /// assert!(server.connect().await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn stop(&self) {
        self.change(|conditions| conditions.is_running = false);
    }

    /// Starts the server after [`stop`](Self::stop). If the server still runs, this stops it first.
    ///
    /// ```
    /// # use lockkeeper_memory::{Data, MemoryServer};
    /// # use redis::aio::MultiplexedConnection;
    /// # use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = MemoryServer::new();
    /// # let stream = server.connect().await?;
    /// # let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    /// # let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await?;
    /// # tokio::spawn(driver);
    /// redis.set::<_, _, ()>("greeting", "hello").await?;
    /// server.start(Data::Lost);
    /// assert!(redis.exists::<_, bool>("greeting").await.is_err(), "the connection is closed");
    /// # Ok(()) }
    /// ```
    pub fn start(&self, data: Data) {
        self.restart(|state| {
            if data == Data::Lost {
                state.data.keyspace.clear();
            }
        });
    }

    /// With `true`, holds everything that is sent between clients and the server, in both directions. With `false`, delivers it.
    ///
    /// Connections stay open meanwhile, as with a network that drops packets. If a client gives up a connection, its commands
    /// arrive late if the network delivers within 10 s. After that, they never arrive.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # use redis::aio::MultiplexedConnection;
    /// # use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = MemoryServer::new();
    /// # let stream = server.connect().await?;
    /// # let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    /// # let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await?;
    /// # tokio::spawn(driver);
    /// server.hold(true);
    /// assert!(redis.set::<_, _, ()>("greeting", "hello").await.unwrap_err().is_timeout());
    /// server.hold(false);
    /// # Ok(()) }
    /// ```
    pub fn hold(&self, is_held: bool) {
        self.link.hold(is_held);
    }

    /// Closes all connections. Commands and replies under way on them are lost. Clients can connect again at once.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// # use redis::aio::MultiplexedConnection;
    /// # use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = MemoryServer::new();
    /// # let stream = server.connect().await?;
    /// # let (settings, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    /// # let (mut redis, driver) = MultiplexedConnection::new_with_config(&settings, stream, config.clone()).await?;
    /// # tokio::spawn(driver);
    /// server.cut();
    /// assert!(redis.set::<_, _, ()>("greeting", "hello").await.is_err());
    /// assert!(server.connect().await.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn cut(&self) {
        self.link.cut(false);
    }

    /// Runs a command, and returns the reply in the form of version 2 of the Redis protocol. For simulations.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// assert_eq!(MemoryServer::new().execute(&["EXISTS", "greeting"]), b":0\r\n");
    /// ```
    #[doc(hidden)]
    pub fn execute<W: AsRef<[u8]>>(&self, words: &[W]) -> Vec<u8> {
        let words: Vec<Bytes> = words.iter().map(|word| word.as_ref().into()).collect();
        let mut state = lock(&self.shared.state);
        state.update_time();
        let replies =
            look::look(&state.data, &words).map_or_else(|| state.replies(None, &words), |reply| vec![reply]);
        let mut bytes = Vec::new();
        replies.iter().for_each(|reply| reply.write(false, &mut bytes));
        bytes
    }

    pub(crate) fn restart(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.shared.state);
        state.restart();
        change(&mut state);
        drop(state);
        self.change(|conditions| {
            conditions.starts += 1;
            conditions.is_running = true;
            conditions.is_frozen = false;
        });
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Conditions)) {
        self.shared.conditions.modify(change);
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryServer").field(&self.shared.conditions.get()).finish()
    }
}
