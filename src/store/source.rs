//! Where connections come from.

use std::fmt;
use std::time::Duration;

use deadpool_redis::{Manager, Pool, PoolConfig, Runtime};
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisError};

use super::dial::{CommandDial, MessageDial};
use super::error::SourceError;
use crate::config::LockConfig;
#[cfg(feature = "memory")]
use crate::memory::MemoryServer;

/// The server that a [`LockClient`](crate::LockClient) connects to.
///
/// A source is made from
///
/// - a URL: `redis://user:password@host:6379/0`,
/// - a [`Config`](deadpool_redis::Config) of deadpool-redis, which is read with serde,
/// - a [`Pool`] that the application already has.
///
/// Release messages wake waiters, and come over a separate connection. A pool does not tell its address, so a client made from a
/// bare [`Pool`] cannot open that connection, and its waiters poll a few times a second. [`Source::pool`] names the address.
///
/// ```no_run
/// # use lockkeeper::{LockClient, Source};
/// # async fn demo(pool: lockkeeper::deadpool_redis::Pool) -> lockkeeper::Result<()> {
/// let from_url = LockClient::connect("redis://127.0.0.1/").await?;
/// let from_pool = LockClient::connect(Source::pool(pool, "redis://127.0.0.1/")).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Source(Origin);

#[derive(Clone)]
enum Origin {
    Config(Box<deadpool_redis::Config>),
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Pool(Pool, Option<String>),
    Url(String),
}

impl Source {
    /// Sends commands through `pool`, and opens the connection for messages to `url`, which is the same server.
    ///
    /// The client takes a few connections out of the pool and keeps them. The pool replaces them, so the server sees more
    /// connections than the pool's `max_size`.
    ///
    /// # A broken connection
    ///
    /// If a connection breaks during an attempt, the client repeats the undo of this attempt for 25 seconds. In this time, the
    /// host must give up what it has not delivered on the broken connection. With the other sources, lockkeeper sets this up on
    /// Linux (`TCP_USER_TIMEOUT`, 10 seconds). It does not change the connections of your pool: set `TCP_USER_TIMEOUT` there,
    /// too. Otherwise, in the worst case, an attempt arrives later and keeps its lock for one lease.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, Source};
    /// # async fn demo(pool: lockkeeper::deadpool_redis::Pool) -> lockkeeper::Result<()> {
    /// let locks = LockClient::connect(Source::pool(pool, "redis://127.0.0.1/")).await?;
    /// # Ok(()) }
    /// ```
    pub fn pool(pool: Pool, url: impl Into<String>) -> Self {
        Self(Origin::Pool(pool, Some(url.into())))
    }

    /// Returns what makes the connections for commands, and the one for messages if the address is known.
    pub(super) fn open(self, config: &LockConfig) -> Result<(CommandDial, Option<MessageDial>), SourceError> {
        let (pool, client) = match self.0 {
            #[cfg(feature = "memory")]
            Origin::Memory(server) => {
                crate::clock::follow_tokio();
                return Ok((CommandDial::Memory(server.clone()), Some(MessageDial::Memory(server))));
            }
            Origin::Url(url) => own_pool(url.as_str(), PoolConfig::default(), config),
            Origin::Config(pool) => {
                let settings = pool.get_pool_config();
                match (pool.url, pool.connection) {
                    (Some(_), Some(_)) => Err("give `url` or `connection`, not both".into()),
                    (Some(url), None) => own_pool(url.as_str(), settings, config),
                    (None, connection) => own_pool(connection.unwrap_or_default(), settings, config),
                }
            }
            Origin::Pool(pool, url) => {
                let address = url.map(|url| Client::open(with_tcp_settings(url.as_str())?)).transpose()?;
                Ok((pool, address))
            }
        }?;
        Ok((CommandDial::Pool(pool), client.map(|client| MessageDial::Server(Box::new(client)))))
    }
}

fn own_pool(
    address: impl IntoConnectionInfo,
    settings: PoolConfig,
    config: &LockConfig,
) -> Result<(Pool, Option<Client>), SourceError> {
    let address = with_tcp_settings(address)?;
    // `server.rs` sets the time limit of every command, for all kinds of sources.
    let connections = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.command_timeout()))
        .set_response_timeout(None);
    let manager = Manager::new_with_config(address.clone(), connections)?;
    let pool = Pool::builder(manager).config(settings).runtime(Runtime::Tokio1).build()?;
    Ok((pool, Some(Client::open(address)?)))
}

/// This long after a connection was given up, the host gives up the bytes that it has not delivered.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

fn with_tcp_settings(address: impl IntoConnectionInfo) -> Result<ConnectionInfo, RedisError> {
    let tcp = TcpSettings::default().set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    Ok(address.into_connection_info()?.set_tcp_settings(tcp))
}

impl From<&str> for Source {
    fn from(url: &str) -> Self {
        Self(Origin::Url(url.to_owned()))
    }
}

impl From<&String> for Source {
    fn from(url: &String) -> Self {
        url.as_str().into()
    }
}

impl From<String> for Source {
    fn from(url: String) -> Self {
        Self(Origin::Url(url))
    }
}

impl From<deadpool_redis::Config> for Source {
    fn from(config: deadpool_redis::Config) -> Self {
        Self(Origin::Config(Box::new(config)))
    }
}

#[cfg(feature = "memory")]
impl From<&MemoryServer> for Source {
    fn from(server: &MemoryServer) -> Self {
        Self(Origin::Memory(server.clone()))
    }
}

impl From<Pool> for Source {
    fn from(pool: Pool) -> Self {
        Self(Origin::Pool(pool, None))
    }
}

impl fmt::Debug for Source {
    /// Shows no address: an address can contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Origin::Config(_) => "Source::Config",
            #[cfg(feature = "memory")]
            Origin::Memory(_) => "Source::Memory",
            Origin::Pool(_, None) => "Source::Pool",
            Origin::Pool(_, Some(_)) => "Source::Pool with an address",
            Origin::Url(_) => "Source::Url",
        })
    }
}
