//! What a source was made from, and the connections that follow from it.

use std::time::Duration;

use super::certificates::{Certificates, secured};
#[cfg(feature = "deadpool-redis")]
use super::pool;
use crate::base::config::LockConfig;
use crate::base::credentials::Credentials;
use crate::base::error::ConfigError;
use crate::store::connection::{Dial, Endpoint, StreamDial};
use crate::store::error::bad_address;
use crate::store::topology::{Address, Discovery, Group};

#[derive(Clone)]
pub(super) enum Origin {
    Cluster(Vec<String>),
    #[cfg(feature = "deadpool-redis")]
    Config(Box<deadpool_redis::Config>),
    #[cfg(feature = "deadpool-redis")]
    Pool(deadpool_redis::Pool, Option<String>),
    Sentinel {
        master: String,
        sentinels: Vec<String>,
        server: String,
    },
    Stream(StreamDial),
    Url(String),
}

impl Origin {
    pub(super) fn open(
        self,
        credentials: Option<Credentials>,
        certificates: Option<&Certificates>,
        config: &LockConfig,
    ) -> Result<Group, ConfigError> {
        let limit = config.command_timeout();
        match self {
            #[cfg(feature = "deadpool-redis")]
            Self::Config(settings) => pool::open_config(*settings, credentials, certificates, config),
            #[cfg(feature = "deadpool-redis")]
            Self::Pool(pool, url) => pool::open_pool(pool, url, credentials.as_ref(), certificates, limit),
            Self::Stream(_) if certificates.is_some() => {
                Err(no_certificates("the application makes its connections itself"))
            }
            Self::Stream(mut dial) => {
                #[cfg(feature = "paused-clock")]
                crate::base::clock::follow_tokio();
                dial.credentials = credentials;
                Ok(Group::fixed(Dial::Stream(dial)))
            }
            Self::Url(url) => Ok(single(secured(endpoint(url, credentials, limit)?, certificates)?)),
            Self::Cluster(urls) => {
                let nodes = nodes(urls, credentials.as_ref(), limit)?;
                let nodes = nodes.into_iter().map(|(at, node)| Ok((at, secured(node, certificates)?)));
                let pollees = nodes.collect::<Result<_, ConfigError>>()?;
                Ok(Group { discovery: Discovery::Cluster, pollees })
            }
            Self::Sentinel { master, sentinels, server } => {
                check_sentinel(&master, &sentinels)?;
                let server = Box::new(secured(endpoint(server, credentials, limit)?, certificates)?);
                let sentinels = pollees("sentinels", sentinels, None, limit)?.into_iter();
                let sentinels = sentinels.map(|(at, sentinel)| {
                    let certificates = certificates.filter(|_| sentinel.is_tls());
                    Ok((at, secured(sentinel, certificates)?))
                });
                let pollees = sentinels.collect::<Result<_, ConfigError>>()?;
                Ok(Group { discovery: Discovery::Sentinel { master, server }, pollees })
            }
        }
    }

    /// Its kind, for `Debug`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Cluster(_) => "Source::Cluster",
            #[cfg(feature = "deadpool-redis")]
            Self::Config(_) => "Source::Config",
            #[cfg(feature = "deadpool-redis")]
            Self::Pool(_, None) => "Source::Pool",
            #[cfg(feature = "deadpool-redis")]
            Self::Pool(_, Some(_)) => "Source::Pool with an address",
            Self::Sentinel { .. } => "Source::Sentinel",
            Self::Stream(_) => "Source::Stream",
            Self::Url(_) => "Source::Url",
        }
    }
}

pub(super) fn no_certificates(why: &str) -> ConfigError {
    ConfigError::new("certificates", format!("cannot be used with this source: {why}"))
}

pub(super) fn single(endpoint: Endpoint) -> Group {
    Group::fixed(Dial::Endpoint(Box::new(endpoint)))
}

/// A URL that cannot be used mostly begins in the wrong way. The library does not say so.
pub(super) fn endpoint(
    url: String,
    credentials: Option<Credentials>,
    limit: Duration,
) -> Result<Endpoint, ConfigError> {
    const KNOWN: [&str; 3] = ["redis", "valkey", "unix"];
    let begins_well = url.contains("://") && KNOWN.iter().any(|scheme| url.starts_with(scheme));
    Endpoint::new(url, credentials, limit).map_err(|error| match begins_well {
        true => bad_address(error),
        false => ConfigError::new("url", "must begin with `redis://`, or with `rediss://` for TLS"),
    })
}

/// The nodes of a cluster that are asked who the masters are.
pub(super) fn nodes(
    urls: Vec<String>,
    credentials: Option<&Credentials>,
    limit: Duration,
) -> Result<Vec<(Address, Endpoint)>, ConfigError> {
    if urls.is_empty() {
        return Err(ConfigError::new("urls", "must name at least one node"));
    }
    let nodes = pollees("urls", urls, credentials, limit)?;
    let database = nodes[0].1.database();
    if nodes.iter().any(|(_, node)| node.database() != database) {
        return Err(ConfigError::new("urls", "must all name the same database"));
    }
    Ok(nodes)
}

pub(super) fn check_sentinel(master: &str, sentinels: &[String]) -> Result<(), ConfigError> {
    if master.is_empty() {
        Err(ConfigError::new("master", "must be the name by which the sentinels know the master"))
    } else if sentinels.is_empty() {
        Err(ConfigError::new("sentinels", "must name at least one sentinel"))
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
) -> Result<Vec<(Address, Endpoint)>, ConfigError> {
    let server = |url| {
        let endpoint = endpoint(url, credentials.cloned(), limit)
            .map_err(|error| ConfigError::new(field, error.problem()))?;
        let address =
            Address::of(&endpoint).ok_or_else(|| ConfigError::new(field, "must have a host and a port"))?;
        Ok((address, endpoint))
    };
    urls.into_iter().map(server).collect()
}
