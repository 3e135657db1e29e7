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

/// A server in this process, for tests. It needs the feature `memory`.
///
/// It has the replies of Redis 7 and runs the same scripts, and a [`LockClient`](crate::LockClient) uses it as it uses any
/// other server. A clone is the same server, so more than one client can connect to it.
///
/// A test makes the faults that its code must survive: a lock that [expires](Self::expire), a server that
/// [hangs](Self::freeze) or is [down](Self::stop), a network that [delivers nothing](Self::hold).
///
/// Time is tokio's. With a paused clock (`#[tokio::test(start_paused = true)]`) a lease of 30 s ends at once, when nothing else
/// is left to do. In a test with a paused clock, use the client, its locks and its guards only on the thread of the test.
///
/// ```
/// # use lockkeeper::LockClient;
/// # use lockkeeper::memory::MemoryServer;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> lockkeeper::Result<()> {
/// let server = MemoryServer::new();
/// let locks = LockClient::connect(&server).await?;
/// let guard = locks.rlock("lock:orders:42").lock().await?;
///
/// server.expire("lock:orders:42");
/// assert!(guard.run(std::future::pending::<()>()).await.is_err());
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
/// # use lockkeeper::memory::{Data, MemoryServer};
/// let server = MemoryServer::new();
/// server.stop();
/// server.start(Data::Lost);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Data {
    /// All of it, except the keys that expired meanwhile.
    Kept,
    /// Nothing, as for a server without persistence: all locks are free.
    Lost,
}

/// What a [connector](MemoryServer::connector) returns.
///
/// ```
/// # use lockkeeper::memory::{Connecting, MemoryServer};
/// # fn assert(_: impl Fn() -> Connecting) {}
/// assert(MemoryServer::new().connector());
/// ```
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

impl MemoryServer {
    /// Starts a server without data.
    ///
    /// ```
    /// # use lockkeeper::LockClient;
    /// # use lockkeeper::memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockkeeper::Result<()> {
    /// let server = MemoryServer::new();
    /// let service = LockClient::connect(&server).await?;
    /// let other_service = LockClient::connect(&server).await?;
    ///
    /// let guard = service.rlock("lock:orders:42").lock().await?;
    /// assert!(other_service.rlock("lock:orders:42").try_lock().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        Self::with(WallClock::start(), 1)
    }

    /// Starts a server whose time and random choices are given. For lockkeeper's own tests.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper::memory::MemoryServer;
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
    /// Dropping the future closes the connection.
    ///
    /// ```
    /// # use lockkeeper::memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// assert!(MemoryServer::new().connect().await.is_ok());
    /// # }
    /// ```
    pub async fn connect(&self) -> io::Result<Stream> {
        net::connect(&self.shared, &self.link)
    }

    /// Returns what opens connections, for a library that reconnects, such as [`Source::stream`](crate::Source::stream).
    ///
    /// ```
    /// # use lockkeeper::memory::MemoryServer;
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

    /// Ends the lock with this key, as if its lease were over. Returns whether there was one.
    ///
    /// The key is the name of the lock, after the `name_prefix` of the client if it has one. The holder notices at its next
    /// renewal, after a third of the lease at most: then the guard is lost. As at the end of a lease, no message wakes a waiter.
    /// A waiter acquires the lock when it attempts again.
    ///
    /// ```
    /// # use lockkeeper::LockClient;
    /// # use lockkeeper::memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> lockkeeper::Result<()> {
    /// # let server = MemoryServer::new();
    /// # let locks = LockClient::connect(&server).await?;
    /// let guard = locks.rlock("lock:orders:42").lock().await?;
    /// assert!(server.expire("lock:orders:42"));
    /// let lost = guard.lost().await;
    /// assert!(guard.unlock().await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn expire(&self, key: impl AsRef<str>) -> bool {
        lock(&self.shared.state).expire(key.as_ref().as_bytes())
    }

    /// Stops the process of the server without ending it, or lets it continue.
    ///
    /// A frozen server accepts connections and commands, and answers none. When it continues, it runs these commands, even if
    /// their client gave them up. Leases end while it is frozen.
    ///
    /// ```
    /// # use lockkeeper::LockClient;
    /// # use lockkeeper::memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> lockkeeper::Result<()> {
    /// # let server = MemoryServer::new();
    /// # let locks = LockClient::connect(&server).await?;
    /// server.freeze(true);
    /// let error = locks.rlock("lock:orders:42").try_lock().await.unwrap_err();
    /// assert!(error.is_transient());
    /// server.freeze(false);
    /// # Ok(()) }
    /// ```
    pub fn freeze(&self, is_frozen: bool) {
        self.change(|conditions| conditions.is_frozen = is_frozen);
    }

    /// Ends the process of the server: connections are closed, and new ones are refused.
    ///
    /// ```
    /// # use lockkeeper::LockClient;
    /// # use lockkeeper::memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> lockkeeper::Result<()> {
    /// # let server = MemoryServer::new();
    /// # let locks = LockClient::connect(&server).await?;
    /// server.stop();
    /// let error = locks.rlock("lock:orders:42").lock().await.unwrap_err();
    /// assert!(error.is_transient());
    /// # Ok(()) }
    /// ```
    pub fn stop(&self) {
        self.change(|conditions| conditions.is_running = false);
    }

    /// Starts the server after [`stop`](Self::stop). If the server still runs, this stops it first.
    ///
    /// ```
    /// # use lockkeeper::LockClient;
    /// # use lockkeeper::memory::{Data, MemoryServer};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> lockkeeper::Result<()> {
    /// # let server = MemoryServer::new();
    /// # let locks = LockClient::connect(&server).await?;
    /// let guard = locks.rlock("lock:orders:42").lock().await?;
    /// server.start(Data::Lost);
    /// guard.lost().await;
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
    /// # use lockkeeper::LockClient;
    /// # use lockkeeper::memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> lockkeeper::Result<()> {
    /// # let server = MemoryServer::new();
    /// # let locks = LockClient::connect(&server).await?;
    /// let guard = locks.rlock("lock:orders:42").lock().await?;
    /// server.hold(true);
    /// guard.lost().await; // no renewal arrived for a whole lease
    /// server.hold(false);
    /// # Ok(()) }
    /// ```
    pub fn hold(&self, is_held: bool) {
        self.link.hold(is_held);
    }

    /// Closes all connections. Commands and replies under way on them are lost. Clients can connect again at once.
    ///
    /// ```
    /// # use lockkeeper::LockClient;
    /// # use lockkeeper::memory::MemoryServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockkeeper::Result<()> {
    /// # let server = MemoryServer::new();
    /// # let locks = LockClient::connect(&server).await?;
    /// let guard = locks.rlock("lock:orders:42").lock().await?;
    /// server.cut();
    /// guard.unlock().await?; // on another connection
    /// # Ok(()) }
    /// ```
    pub fn cut(&self) {
        self.link.cut(false);
    }

    /// Runs a command, and returns the reply in the form of version 2 of the Redis protocol. For lockkeeper's own tests.
    ///
    /// ```
    /// # use lockkeeper::memory::MemoryServer;
    /// assert_eq!(MemoryServer::new().execute(&["EXISTS", "lock:orders:42"]), b":0\r\n");
    /// ```
    #[doc(hidden)]
    pub fn execute<W: AsRef<[u8]>>(&self, words: &[W]) -> Vec<u8> {
        let words: Vec<Bytes> = words.iter().map(|word| word.as_ref().into()).collect();
        let mut state = lock(&self.shared.state);
        state.update_time();
        let replies =
            look::look(&state.data, &words).map_or_else(|| state.replies(None, &words), |reply| vec![reply]);
        let mut bytes = Vec::new();
        replies.iter().for_each(|reply| reply.write(&mut bytes));
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
