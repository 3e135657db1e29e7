//! What a source was made from, and the connections that follow from it.

use deadpool_redis::{Manager, Pool, PoolConfig, Runtime};
use redis::{AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo};

use super::certificates::Certificates;
use crate::config::LockConfig;
use crate::credentials::Credentials;
#[cfg(feature = "memory")]
use crate::memory::MemoryServer;
use crate::store::connection::{CommandDial, Endpoint, MessageDial, with_tcp_settings};
use crate::store::error::SourceError;
use crate::store::topology::Group;

#[derive(Clone)]
pub(super) enum Origin {
    Cluster(Vec<String>),
    Client(Box<ConnectionInfo>),
    Config(Box<deadpool_redis::Config>),
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Pool(Pool, Option<String>),
    Sentinel {
        master: String,
        sentinels: Vec<String>,
        server: String,
    },
    Url(String),
}

/// What a source leads to.
pub(crate) enum Opened {
    One(CommandDial, Option<MessageDial>),
    Several(Group),
}

impl Opened {
    /// How to connect to the server with an address that an error names. `None`: only a pool knows.
    pub(crate) fn endpoints(&self) -> impl Fn(Option<&str>) -> Option<Endpoint> + Send + use<> {
        let (one, group) = match self {
            Self::One(commands, _) => (commands.endpoint().cloned(), None),
            Self::Several(group) => (None, Some(group.clone())),
        };
        move |server| group.as_ref().map_or_else(|| one.clone(), |group| group.endpoint_named(server?))
    }
}

impl Origin {
    pub(super) fn open(
        self,
        credentials: Option<Credentials>,
        certificates: Option<&Certificates>,
        config: &LockConfig,
    ) -> Result<Opened, SourceError> {
        let limit = config.command_timeout();
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(_) if certificates.is_some() => {
                Err(no_certificates("the in-memory server has no TLS"))
            }
            #[cfg(feature = "memory")]
            Self::Memory(server) => {
                crate::clock::follow_tokio();
                Ok(Opened::One(CommandDial::Memory(server.clone()), Some(MessageDial::Memory(server))))
            }
            Self::Pool(..) if credentials.is_some() => {
                Err("a pool authenticates its connections itself: use another source with credentials".into())
            }
            Self::Pool(..) if certificates.is_some() => {
                Err(no_certificates("a pool makes its connections itself"))
            }
            Self::Pool(pool, url) => {
                let messages = url.map(|url| Endpoint::new(url, None, limit)).transpose()?;
                Ok(Opened::One(CommandDial::Pool(pool), messages.map(MessageDial::from)))
            }
            Self::Url(url) => Ok(dials(Endpoint::new(url, credentials, limit)?.secured(certificates)?)),
            Self::Client(info) => Ok(dials(Endpoint::new(*info, credentials, limit)?.secured(certificates)?)),
            Self::Cluster(urls) => several(Group::cluster(urls, credentials.as_ref(), limit)?, certificates),
            Self::Sentinel { master, sentinels, server } => {
                let server = Box::new(Endpoint::new(server, credentials, limit)?);
                several(Group::sentinel(master, sentinels, server, limit)?, certificates)
            }
            Self::Config(pool) => {
                let settings = pool.pool;
                let info = match (pool.url, pool.connection) {
                    (Some(_), Some(_)) => return Err("give `url` or `connection`, not both".into()),
                    (Some(url), None) => with_tcp_settings(url)?,
                    (None, connection) => with_tcp_settings(connection.unwrap_or_default())?,
                };
                let endpoint = Endpoint::new(info, credentials, limit)?.secured(certificates)?;
                match settings {
                    Some(settings) if endpoint.credentials.is_none() => {
                        let commands = own_pool(endpoint.info().clone(), settings, config)?;
                        Ok(Opened::One(commands, Some(endpoint.into())))
                    }
                    _ => Ok(dials(endpoint)),
                }
            }
        }
    }

    /// Its kind, for `Debug`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Client(_) => "Source::Client",
            Self::Cluster(_) => "Source::Cluster",
            Self::Config(_) => "Source::Config",
            #[cfg(feature = "memory")]
            Self::Memory(_) => "Source::Memory",
            Self::Pool(_, None) => "Source::Pool",
            Self::Pool(_, Some(_)) => "Source::Pool with an address",
            Self::Sentinel { .. } => "Source::Sentinel",
            Self::Url(_) => "Source::Url",
        }
    }
}

fn no_certificates(why: &str) -> SourceError {
    SourceError::field("certificates", format!("cannot be used with this source: {why}"))
}

fn dials(endpoint: Endpoint) -> Opened {
    Opened::One(endpoint.clone().into(), Some(endpoint.into()))
}

fn several(group: Group, certificates: Option<&Certificates>) -> Result<Opened, SourceError> {
    group.secured(certificates).map(Opened::Several)
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
