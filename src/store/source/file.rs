//! A source as it is in a file.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::certificates::{Certificates, PemFiles};
use super::origin::{Origin, check_sentinel, nodes};
use crate::store::error::SourceError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct Fields {
    #[serde(default)]
    kind: Kind,
    /// Checked after `master` and `sentinels`: a source that lacks these perhaps has another kind.
    #[serde(default)]
    urls: Vec<String>,
    master: Option<String>,
    sentinels: Option<Vec<String>>,
    root_cert: Option<PathBuf>,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Single,
    Cluster,
    Sentinel,
}

impl Fields {
    /// Checks what the file says, and reads the certificates that it names.
    pub(super) fn read(self) -> Result<(Origin, Option<Certificates>), SourceError> {
        let Self { kind, urls, master, sentinels, root_cert, client_cert, client_key } = self;
        let certificates = PemFiles { root_cert, client_cert, client_key }.read()?;
        let origin = match kind {
            Kind::Sentinel => sentinel(master.unwrap_or_default(), sentinels.unwrap_or_default(), urls)?,
            _ if master.is_some() => return Err(only_sentinel("master")),
            _ if sentinels.is_some() => return Err(only_sentinel("sentinels")),
            Kind::Single => Origin::Url(one(urls)?),
            Kind::Cluster => {
                nodes(urls.clone(), None, Duration::ZERO)?;
                Origin::Cluster(urls)
            }
        };
        Ok((origin, certificates))
    }
}

fn sentinel(master: String, sentinels: Vec<String>, urls: Vec<String>) -> Result<Origin, SourceError> {
    check_sentinel(&master, &sentinels)?;
    Ok(Origin::Sentinel { master, sentinels, server: one(urls)? })
}

fn one(urls: Vec<String>) -> Result<String, SourceError> {
    let [url] = <[String; 1]>::try_from(urls)
        .map_err(|urls| SourceError::field("urls", format!("must be one address, not {}", urls.len())))?;
    Ok(url)
}

fn only_sentinel(field: &'static str) -> SourceError {
    SourceError::field(field, "is only for the kind `sentinel`")
}
