//! What a source was made from, and the connections that follow from it.

use std::time::Duration;

use deadpool_redis::{Manager, Pool, PoolConfig, Runtime};
use redis::{AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo};

use super::certificates::{Certificates, secured};
use crate::base::config::LockConfig;
use crate::base::credentials::Credentials;
use crate::store::connection::{CommandDial, Endpoint, MessageDial, StreamDial, with_tcp_settings};
use crate::store::error::SourceError;
use crate::store::topology::{Address, Group};

#[derive(Clone)]
pub(super) enum Origin {
    Cluster(Vec<String>),
    Client(Box<ConnectionInfo>),
    Config(Box<deadpool_redis::Config>),
    Pool(Pool, Option<String>),
    Sentinel { master: String, sentinels: Vec<String>, server: String },
    Stream(StreamDial),
    Url(String),
}

impl Origin {
    pub(super) fn open(
        self,
        credentials: Option<Credentials>,
        certificates: Option<&Certificates>,
        config: &LockConfig,
    ) -> Result<Group, SourceError> {
        let limit = config.command_timeout();
        match self {
            Self::Pool(..) if credentials.is_some() => {
                Err("a pool authenticates its connections itself: use another source with credentials".into())
            }
            Self::Pool(..) if certificates.is_some() => {
                Err(no_certificates("a pool makes its connections itself"))
            }
            Self::Pool(pool, url) => {
                let messages = url.map(|url| Endpoint::new(url, None, limit)).transpose()?;
                Ok(Group::fixed(CommandDial::Pool(pool), messages.map(Box::new).map(MessageDial::Endpoint)))
            }
            Self::Stream(_) if certificates.is_some() => {
                Err(no_certificates("the application makes its connections itself"))
            }
            Self::Stream(mut dial) => {
                #[cfg(feature = "paused-clock")]
                crate::base::clock::follow_tokio();
                dial.credentials = credentials;
                Ok(Group::fixed(CommandDial::Stream(dial.clone()), Some(MessageDial::Stream(dial))))
            }
            Self::Url(url) => Ok(single(secured(Endpoint::new(url, credentials, limit)?, certificates)?)),
            Self::Client(info) => {
                Ok(single(secured(Endpoint::new(*info, credentials, limit)?, certificates)?))
            }
            Self::Cluster(urls) => {
                let nodes = nodes(urls, credentials.as_ref(), limit)?;
                let nodes = nodes.into_iter().map(|(at, node)| Ok((at, secured(node, certificates)?)));
                Ok(Group::cluster(nodes.collect::<Result<_, SourceError>>()?))
            }
            Self::Sentinel { master, sentinels, server } => {
                check_sentinel(&master, &sentinels)?;
                let server = secured(Endpoint::new(server, credentials, limit)?, certificates)?;
                let sentinels = pollees("sentinels", sentinels, None, limit)?.into_iter();
                let sentinels = sentinels.map(|(at, sentinel)| {
                    let certificates = certificates.filter(|_| sentinel.is_tls());
                    Ok((at, secured(sentinel, certificates)?))
                });
                let sentinels = sentinels.collect::<Result<_, SourceError>>()?;
                Ok(Group::sentinel(sentinels, master, Box::new(server)))
            }
            Self::Config(pool) => {
                let settings = pool.pool;
                let info = match (pool.url, pool.connection) {
                    (Some(_), Some(_)) => return Err("give `url` or `connection`, not both".into()),
                    (Some(url), None) => with_tcp_settings(url)?,
                    (None, connection) => with_tcp_settings(connection.unwrap_or_default())?,
                };
                let endpoint = secured(Endpoint::new(info, credentials, limit)?, certificates)?;
                match settings {
                    Some(settings) if endpoint.credentials.is_none() => {
                        let commands = own_pool(endpoint.info().clone(), settings, config)?;
                        Ok(Group::fixed(commands, Some(MessageDial::Endpoint(Box::new(endpoint)))))
                    }
                    _ => Ok(single(endpoint)),
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
            Self::Pool(_, None) => "Source::Pool",
            Self::Pool(_, Some(_)) => "Source::Pool with an address",
            Self::Sentinel { .. } => "Source::Sentinel",
            Self::Stream(_) => "Source::Stream",
            Self::Url(_) => "Source::Url",
        }
    }
}

fn no_certificates(why: &str) -> SourceError {
    SourceError::field("certificates", format!("cannot be used with this source: {why}"))
}

fn single(endpoint: Endpoint) -> Group {
    let endpoint = Box::new(endpoint);
    Group::fixed(CommandDial::Endpoint(endpoint.clone()), Some(MessageDial::Endpoint(endpoint)))
}

/// The nodes of a cluster that are asked who the masters are.
pub(super) fn nodes(
    urls: Vec<String>,
    credentials: Option<&Credentials>,
    limit: Duration,
) -> Result<Vec<(Address, Endpoint)>, SourceError> {
    if urls.is_empty() {
        return Err(SourceError::field("urls", "must name at least one node"));
    }
    let nodes = pollees("urls", urls, credentials, limit)?;
    if nodes.iter().any(|(_, node)| node.database() != 0) {
        return Err(SourceError::field("urls", "must name no database but 0: a cluster has no other"));
    }
    Ok(nodes)
}

pub(super) fn check_sentinel(master: &str, sentinels: &[String]) -> Result<(), SourceError> {
    if master.is_empty() {
        Err(SourceError::field("master", "must be the name by which the sentinels know the master"))
    } else if sentinels.is_empty() {
        Err(SourceError::field("sentinels", "must name at least one sentinel"))
    } else {
        Ok(())
    }
}

/// The servers that are asked who the masters are.
fn pollees(
    field: &'static str,
    urls: Vec<String>,
    credentials: Option<&Credentials>,
    limit: Duration,
) -> Result<Vec<(Address, Endpoint)>, SourceError> {
    let server = |url| {
        let endpoint = Endpoint::new(url, credentials.cloned(), limit)
            .map_err(|error| SourceError { field, ..error.into() })?;
        let address =
            Address::of(&endpoint).ok_or_else(|| SourceError::field(field, "must have a host and a port"))?;
        Ok((address, endpoint))
    };
    urls.into_iter().map(server).collect()
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
