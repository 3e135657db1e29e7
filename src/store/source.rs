//! Where connections come from.

use std::fmt;

use deadpool_redis::{Manager, Pool, PoolConfig, Runtime};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo};
use serde::Deserialize;

use super::dial::{CommandDial, MessageDial};
use super::endpoint::{Endpoint, with_tcp_settings};
use super::error::SourceError;
use crate::config::LockConfig;
use crate::credentials::Credentials;
use crate::error::Error;
#[cfg(feature = "memory")]
use crate::memory::MemoryServer;

/// The server that a [`LockClient`](crate::LockClient) connects to.
///
/// A source is made from
///
/// - a URL: `redis://user:password@host:6379/0`, or `rediss://` for TLS,
/// - a [`redis::Client`](Client), which can have client certificates and a certificate authority of its own,
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
///
/// A source is also read with serde, from the field `urls`:
///
/// ```
/// # use lockkeeper::Source;
/// let source: Source = toml::from_str(r#"urls = ["redis://127.0.0.1/"]"#)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Source {
    origin: Origin,
    credentials: Option<Credentials>,
}

#[derive(Clone)]
enum Origin {
    Client(Box<ConnectionInfo>),
    Config(Box<deadpool_redis::Config>),
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Pool(Pool, Option<String>),
    Url(String),
}

/// A source as it is in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default)]
    kind: Kind,
    urls: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Single,
}

impl Source {
    /// One server, by its URL: `redis://user:password@host:6379/0`, or `rediss://` for TLS.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, Source};
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let locks = LockClient::connect(Source::url("redis://127.0.0.1/")).await?;
    /// # Ok(()) }
    /// ```
    pub fn url(url: impl Into<String>) -> Self {
        Origin::Url(url.into()).into()
    }

    /// Authenticates with credentials that can change, instead of those in the address.
    ///
    /// When they change, each connection for commands is authenticated again. The connection for messages is replaced, and the
    /// waiters attempt once, so that no message is missed.
    ///
    /// A pool authenticates its connections itself: with a [`Pool`], `connect` fails with
    /// [`InvalidConfig`](crate::Error::InvalidConfig).
    ///
    /// ```no_run
    /// # use lockkeeper::{Credentials, LockClient, Source};
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let credentials = Credentials::new("app", "first password");
    /// let locks = LockClient::connect(Source::url("redis://127.0.0.1/").with_credentials(&credentials)).await?;
    /// credentials.set("app", "second password");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_credentials(self, credentials: &Credentials) -> Self {
        Self { credentials: Some(credentials.clone()), ..self }
    }

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
        Origin::Pool(pool, Some(url.into())).into()
    }

    /// Returns what makes the connections for commands, and the one for messages if the address is known.
    pub(super) fn open(self, config: &LockConfig) -> Result<(CommandDial, Option<MessageDial>), SourceError> {
        let Self { origin, credentials } = self;
        let limit = config.command_timeout();
        match origin {
            #[cfg(feature = "memory")]
            Origin::Memory(server) => {
                crate::clock::follow_tokio();
                Ok((CommandDial::Memory(server.clone()), Some(MessageDial::Memory(server))))
            }
            Origin::Pool(..) if credentials.is_some() => {
                Err("a pool authenticates its connections itself: use another source with credentials".into())
            }
            Origin::Pool(pool, url) => {
                let messages = url.map(|url| Endpoint::new(url, None, limit)).transpose()?;
                Ok((CommandDial::Pool(pool), messages.map(MessageDial::from)))
            }
            Origin::Url(url) => Ok(dials(Endpoint::new(url, credentials, limit)?)),
            Origin::Client(info) => Ok(dials(Endpoint::new(*info, credentials, limit)?)),
            Origin::Config(pool) => {
                let settings = pool.pool;
                let info = match (pool.url, pool.connection) {
                    (Some(_), Some(_)) => return Err("give `url` or `connection`, not both".into()),
                    (Some(url), None) => with_tcp_settings(url)?,
                    (None, connection) => with_tcp_settings(connection.unwrap_or_default())?,
                };
                let endpoint = Endpoint::new(info.clone(), credentials, limit)?;
                match settings {
                    Some(settings) if endpoint.credentials.is_none() => {
                        Ok((own_pool(info, settings, config)?, Some(endpoint.into())))
                    }
                    _ => Ok(dials(endpoint)),
                }
            }
        }
    }
}

fn dials(endpoint: Endpoint) -> (CommandDial, Option<MessageDial>) {
    (endpoint.clone().into(), Some(endpoint.into()))
}

fn own_pool(
    address: impl IntoConnectionInfo,
    settings: PoolConfig,
    config: &LockConfig,
) -> Result<CommandDial, SourceError> {
    // `server.rs` sets the time limit of every command, for all kinds of sources.
    let connections = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.command_timeout()))
        .set_response_timeout(None);
    let manager = Manager::new_with_config(address, connections)?;
    Ok(CommandDial::Pool(Pool::builder(manager).config(settings).runtime(Runtime::Tokio1).build()?))
}

impl TryFrom<Fields> for Source {
    type Error = Error;

    fn try_from(fields: Fields) -> Result<Self, Error> {
        let Fields { kind: Kind::Single, urls } = fields;
        match <[String; 1]>::try_from(urls) {
            Ok([url]) => Ok(Self::url(url)),
            Err(urls) => {
                Err(Error::invalid_config("urls", format!("must be one address, not {}", urls.len())))
            }
        }
    }
}

impl From<Origin> for Source {
    fn from(origin: Origin) -> Self {
        Self { origin, credentials: None }
    }
}

impl From<&str> for Source {
    fn from(url: &str) -> Self {
        Self::url(url)
    }
}

impl From<&String> for Source {
    fn from(url: &String) -> Self {
        Self::url(url)
    }
}

impl From<String> for Source {
    fn from(url: String) -> Self {
        Self::url(url)
    }
}

/// Uses the address, credentials and certificates of the client, and lockkeeper's own settings for TCP.
impl From<Client> for Source {
    fn from(client: Client) -> Self {
        Origin::Client(Box::new(client.get_connection_info().clone())).into()
    }
}

impl From<deadpool_redis::Config> for Source {
    fn from(config: deadpool_redis::Config) -> Self {
        Origin::Config(Box::new(config)).into()
    }
}

#[cfg(feature = "memory")]
impl From<&MemoryServer> for Source {
    fn from(server: &MemoryServer) -> Self {
        Origin::Memory(server.clone()).into()
    }
}

impl From<Pool> for Source {
    fn from(pool: Pool) -> Self {
        Origin::Pool(pool, None).into()
    }
}

impl fmt::Debug for Source {
    /// Shows no address: an address can contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.origin {
            Origin::Client(_) => "Source::Client",
            Origin::Config(_) => "Source::Config",
            #[cfg(feature = "memory")]
            Origin::Memory(_) => "Source::Memory",
            Origin::Pool(_, None) => "Source::Pool",
            Origin::Pool(_, Some(_)) => "Source::Pool with an address",
            Origin::Url(_) => "Source::Url",
        })
    }
}
