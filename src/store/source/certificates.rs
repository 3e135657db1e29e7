//! Certificates for TLS.

use std::path::PathBuf;

use crate::store::connection::Endpoint;
use crate::store::error::SourceError;

pub(super) use tls::Certificates;

/// Files in the PEM format.
pub(super) struct PemFiles {
    pub(super) root_cert: Option<PathBuf>,
    pub(super) client_cert: Option<PathBuf>,
    pub(super) client_key: Option<PathBuf>,
}

impl PemFiles {
    /// Reads the files. `None`: there are no files to read.
    pub(super) fn read(self) -> Result<Option<Certificates>, SourceError> {
        let root = self.root_cert.map(|path| content("root_cert", path)).transpose()?;
        let client = match (self.client_cert, self.client_key) {
            (Some(cert), Some(key)) => Some((content("client_cert", cert)?, content("client_key", key)?)),
            (Some(_), None) => return Err(SourceError::field("client_cert", "needs a `client_key`")),
            (None, Some(_)) => return Err(SourceError::field("client_key", "needs a `client_cert`")),
            (None, None) => None,
        };
        if root.is_none() && client.is_none() { Ok(None) } else { tls::of_pem(root, client).map(Some) }
    }
}

fn content(field: &'static str, path: PathBuf) -> Result<Vec<u8>, SourceError> {
    std::fs::read(&path).map_err(|error| {
        SourceError::field(field, format!("cannot be read from {}: {error}", path.display()))
    })
}

/// Uses these certificates, if there are any, to connect.
pub(super) fn secured(
    endpoint: Endpoint,
    certificates: Option<&Certificates>,
) -> Result<Endpoint, SourceError> {
    match certificates {
        None => Ok(endpoint),
        Some(_) if !endpoint.is_tls() => {
            Err(SourceError::field("certificates", "are only for addresses that begin with `rediss://`"))
        }
        Some(certificates) => {
            let info = tls::add(certificates, endpoint.info());
            let info = info.map_err(|problem| SourceError::field("certificates", problem))?;
            Ok(endpoint.with_info(info))
        }
    }
}

#[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
mod tls {
    use redis::{Client, ClientTlsConfig, ConnectionInfo};

    use crate::store::error::SourceError;

    pub(crate) use redis::TlsCertificates as Certificates;

    pub(super) fn of_pem(
        root_cert: Option<Vec<u8>>,
        client: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Certificates, SourceError> {
        let client_tls = client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        Ok(Certificates { client_tls, root_cert })
    }

    pub(super) fn add(certificates: &Certificates, info: &ConnectionInfo) -> Result<ConnectionInfo, String> {
        let Certificates { client_tls, root_cert } = certificates;
        let client_cert = client_tls.as_ref().map(|client| &client.client_cert);
        for (field, pem) in [("root_cert", root_cert.as_ref()), ("client_cert", client_cert)] {
            if pem.is_some_and(|pem| !has_certificate(pem)) {
                return Err(format!("have a `{field}` without a certificate in the PEM format"));
            }
        }
        let client = Client::build_with_tls(info.clone(), certificates.clone());
        let client = client.map_err(|error| format!("cannot be used: {error}"))?;
        Ok(client.get_connection_info().clone())
    }

    /// Whether there is a certificate. The library takes a text without any for an empty list.
    fn has_certificate(pem: &[u8]) -> bool {
        String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----")
    }
}

#[cfg(not(any(feature = "tls-native-tls", feature = "tls-rustls")))]
mod tls {
    use redis::ConnectionInfo;

    use crate::store::error::SourceError;

    /// Without TLS there are none.
    #[derive(Clone)]
    pub(crate) enum Certificates {}

    pub(super) fn of_pem(
        _: Option<Vec<u8>>,
        _: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Certificates, SourceError> {
        Err(SourceError::field(
            "certificates",
            "need a TLS feature of lockkeeper, such as `tokio-rustls-comp`",
        ))
    }

    pub(super) fn add(certificates: &Certificates, _: &ConnectionInfo) -> Result<ConnectionInfo, String> {
        match *certificates {}
    }
}
