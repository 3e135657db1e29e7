//! Sources of deadpool-redis: its pools, and its configuration.

use std::time::Duration;

use deadpool_redis::{Config, Manager, Pool, PoolConfig, Runtime};
use redis::{AsyncConnectionConfig, IntoConnectionInfo};

use super::Source;
use super::certificates::{Certificates, secured};
use super::origin::{Origin, endpoint, no_certificates, single};
use crate::base::config::LockConfig;
use crate::base::credentials::Credentials;
use crate::base::error::ConfigError;
use crate::store::connection::{Dial, Endpoint};
use crate::store::error::bad_address;
use crate::store::topology::Group;

/// With the feature `deadpool-redis`.
impl Source {
    /// Sends commands through `pool`, and opens the connection for messages to `url`, which is the same server.
    ///
    /// The client takes a few connections out of the pool and keeps them. The pool replaces them, so the server sees more
    /// connections than the pool's `max_size`.
    ///
    /// A pool makes its connections itself. So `connect` fails with [`Config`](crate::Error::Config) if the source also has
    /// credentials or certificates.
    ///
    /// # Without an address
    ///
    /// Release messages wake waiters, and come over a separate connection. A pool does not tell its address. So a client that is made from
    /// a [`Pool`] alone, by `Source::from`, cannot open that connection, and its waiters poll a few times a second.
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
}

/// The address and the settings of deadpool-redis, which can be read with serde. With `pool`, commands go through a pool with these
/// settings.
impl From<Config> for Source {
    fn from(config: Config) -> Self {
        Origin::Config(Box::new(config)).into()
    }
}

/// A pool without an address: waiters poll. See [`Source::pool`].
impl From<Pool> for Source {
    fn from(pool: Pool) -> Self {
        Origin::Pool(pool, None).into()
    }
}

pub(super) fn open_pool(
    pool: Pool,
    url: Option<String>,
    credentials: Option<&Credentials>,
    certificates: Option<&Certificates>,
    limit: Duration,
) -> Result<Group, ConfigError> {
    if credentials.is_some() {
        return Err(bad_address(
            "a pool authenticates its connections itself: use another source with credentials",
        ));
    }
    if certificates.is_some() {
        return Err(no_certificates("a pool makes its connections itself"));
    }
    let endpoint = url.map(|url| endpoint(url, None, limit)).transpose()?.map(Box::new);
    Ok(Group::fixed(Dial::Pool(pool, endpoint)))
}

pub(super) fn open_config(
    settings: Config,
    credentials: Option<Credentials>,
    certificates: Option<&Certificates>,
    config: &LockConfig,
) -> Result<Group, ConfigError> {
    let limit = config.command_timeout();
    let endpoint = match (settings.url, settings.connection) {
        (Some(_), Some(_)) => return Err(bad_address("give `url` or `connection`, not both")),
        (Some(url), None) => Endpoint::new(url, credentials, limit),
        (None, connection) => Endpoint::new(connection.unwrap_or_default(), credentials, limit),
    };
    let endpoint = secured(endpoint.map_err(bad_address)?, certificates)?;
    match settings.pool {
        Some(pool) if endpoint.credentials.is_none() => {
            let pool = own_pool(endpoint.info.clone(), pool, config)?;
            Ok(Group::fixed(Dial::Pool(pool, Some(Box::new(endpoint)))))
        }
        _ => Ok(single(endpoint)),
    }
}

fn own_pool(
    address: impl IntoConnectionInfo,
    settings: PoolConfig,
    config: &LockConfig,
) -> Result<Pool, ConfigError> {
    // `server.rs` sets the time limit of every command, for all kinds of sources.
    let connections = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.command_timeout()))
        .set_response_timeout(None);
    let manager = Manager::new_with_config(address, connections).map_err(bad_address)?;
    Pool::builder(manager).config(settings).runtime(Runtime::Tokio1).build().map_err(bad_address)
}
