//! Certificates for TLS.

use std::path::PathBuf;

use redis::ConnectionInfo;
#[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
use redis::{Client, ClientTlsConfig, TlsCertificates};

use crate::base::error::ConfigError;
use crate::store::connection::Endpoint;

/// Certificates in the PEM format.
#[derive(Clone, Default)]
#[cfg_attr(
    not(any(feature = "tls-native-tls", feature = "tls-rustls")),
    expect(dead_code, reason = "nothing is made from files without TLS")
)]
pub(super) struct Certificates {
    /// Those of the authorities that the client trusts.
    pub(super) root_cert: Option<Vec<u8>>,
    /// The one that the client shows, and its private key.
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// Reads files in the PEM format. `None`: there are no files to read.
    pub(super) fn read(
        root_cert: Option<PathBuf>,
        client_cert: Option<PathBuf>,
        client_key: Option<PathBuf>,
    ) -> Result<Option<Self>, ConfigError> {
        let root_cert = root_cert.map(|path| content("root_cert", path)).transpose()?;
        let client = match (client_cert, client_key) {
            (Some(cert), Some(key)) => Some((content("client_cert", cert)?, content("client_key", key)?)),
            (Some(_), None) => return Err(ConfigError::new("client_cert", "needs a `client_key`")),
            (None, Some(_)) => return Err(ConfigError::new("client_key", "needs a `client_cert`")),
            (None, None) => None,
        };
        if root_cert.is_none() && client.is_none() {
            return Ok(None);
        }
        if cfg!(not(any(feature = "tls-native-tls", feature = "tls-rustls"))) {
            let problem = "need a TLS feature of lockkeeper, such as `tokio-rustls-comp`";
            return Err(ConfigError::new("certificates", problem));
        }
        Ok(Some(Self { root_cert, client }))
    }
}

fn content(field: &'static str, path: PathBuf) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(&path)
        .map_err(|error| ConfigError::new(field, format!("cannot be read from {}: {error}", path.display())))
}

/// Uses these certificates, if there are any, to connect.
pub(super) fn secured(
    endpoint: Endpoint,
    certificates: Option<&Certificates>,
) -> Result<Endpoint, ConfigError> {
    match certificates {
        None => Ok(endpoint),
        Some(_) if !endpoint.is_tls() => {
            Err(ConfigError::new("certificates", "are only for addresses that begin with `rediss://`"))
        }
        Some(certificates) => {
            let info = add(certificates, &endpoint.info);
            let info = info.map_err(|problem| ConfigError::new("certificates", problem))?;
            Ok(Endpoint { info, ..endpoint })
        }
    }
}

#[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
fn add(certificates: &Certificates, info: &ConnectionInfo) -> Result<ConnectionInfo, String> {
    let Certificates { root_cert, client } = certificates.clone();
    let client_cert = client.as_ref().map(|(cert, _)| cert);
    for (field, pem) in [("root_cert", root_cert.as_ref()), ("client_cert", client_cert)] {
        if pem.is_some_and(|pem| !has_certificate(pem)) {
            return Err(format!("have a `{field}` without a certificate in the PEM format"));
        }
    }
    let client_tls = client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let client = Client::build_with_tls(info.clone(), TlsCertificates { client_tls, root_cert });
    let client = client.map_err(|error| format!("cannot be used: {error}"))?;
    Ok(client.get_connection_info().clone())
}

/// Whether there is a certificate. redis-rs takes a text without any for an empty list.
#[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
fn has_certificate(pem: &[u8]) -> bool {
    String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----")
}

/// Without TLS, no source has certificates.
#[cfg(not(any(feature = "tls-native-tls", feature = "tls-rustls")))]
fn add(_: &Certificates, info: &ConnectionInfo) -> Result<ConnectionInfo, String> {
    Ok(info.clone())
}
