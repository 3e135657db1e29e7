//! Where connections come from.

use std::fmt;
use std::time::Duration;

use deadpool_redis::{Manager, Pool, PoolConfig, Runtime};
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisError};

use crate::config::LockConfig;

/// Where a [`LockClient`](crate::LockClient) gets its connections from.
///
/// Made from a URL (`redis://user:password@host:6379/0`), from deadpool-redis's own
/// [`Config`](deadpool_redis::Config), which is read with serde, or from a [`Pool`] that the application has
/// already.
///
/// Waiters are woken by messages, on one connection of their own. A pool does not tell its address, so a client
/// made from a bare [`Pool`] can not open that connection and its waiters poll, a few times a second. Say where the
/// server is to have them woken: [`Source::pool`].
#[derive(Clone)]
pub struct Source(Origin);

#[derive(Clone)]
enum Origin {
    Config(Box<deadpool_redis::Config>),
    Pool(Pool, Option<String>),
    Url(String),
}

/// The address is no good.
#[derive(Debug)]
pub(crate) struct SourceError(pub(crate) Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for SourceError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl Source {
    /// Commands through `pool`; messages on a connection to `url`, which names the same server.
    ///
    /// A few of the pool's connections are taken out of it and kept.
    ///
    /// An attempt that was given up on a broken connection is undone for 25 seconds, and what the host still has to
    /// deliver on such a connection must be given up before that. The connections of the other sources are made so,
    /// on Linux (`TCP_USER_TIMEOUT`, 10 seconds). Those of a pool are as it makes them: set it there, too, or such an
    /// attempt may in the worst case arrive later and leave its lock closed for a lease.
    pub fn pool(pool: Pool, url: impl Into<String>) -> Self {
        Self(Origin::Pool(pool, Some(url.into())))
    }

    /// A pool for commands, and the address for the connection that hears messages, if it is known.
    pub(super) fn open(self, config: &LockConfig) -> Result<(Pool, Option<Client>), SourceError> {
        match self.0 {
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
                let address = url.map(|url| Client::open(settled(url.as_str())?)).transpose()?;
                Ok((pool, address))
            }
        }
    }
}

fn own_pool(
    address: impl IntoConnectionInfo,
    settings: PoolConfig,
    config: &LockConfig,
) -> Result<(Pool, Option<Client>), SourceError> {
    let address = settled(address)?;
    // Every command has its time-out from the node, in one place for each kind of source.
    let connections = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.command_timeout))
        .set_response_timeout(None);
    let manager = Manager::new_with_config(address.clone(), connections)?;
    let pool = Pool::builder(manager).config(settings).runtime(Runtime::Tokio1).build()?;
    Ok((pool, Some(Client::open(address)?)))
}

/// After a connection was given up, what it had still to deliver is given up as well, this much later.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

fn settled(address: impl IntoConnectionInfo) -> Result<ConnectionInfo, RedisError> {
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

impl From<Pool> for Source {
    fn from(pool: Pool) -> Self {
        Self(Origin::Pool(pool, None))
    }
}

impl fmt::Debug for Source {
    /// Names no address: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Origin::Config(_) => "Source::Config",
            Origin::Pool(_, None) => "Source::Pool",
            Origin::Pool(_, Some(_)) => "Source::Pool with an address",
            Origin::Url(_) => "Source::Url",
        })
    }
}
