//! A source as it is in a file.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::Source;
use super::certificates::Certificates;
use super::origin::{Origin, check_sentinel, nodes};
use crate::base::error::ConfigError;

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

/// Checks what the file says, and reads the certificates that it names.
impl TryFrom<Fields> for Source {
    type Error = ConfigError;

    fn try_from(fields: Fields) -> Result<Self, ConfigError> {
        let Fields { kind, urls, master, sentinels, root_cert, client_cert, client_key } = fields;
        let certificates = Certificates::read(root_cert, client_cert, client_key)?;
        let only_sentinel = |field| Err(ConfigError::new(field, "is only for the kind `sentinel`"));
        let one = || match &urls[..] {
            [url] => Ok(url.clone()),
            _ => Err(ConfigError::new("urls", format!("must be one address, not {}", urls.len()))),
        };
        let origin = match kind {
            Kind::Sentinel => {
                let (master, sentinels) = (master.unwrap_or_default(), sentinels.unwrap_or_default());
                check_sentinel(&master, &sentinels)?;
                Origin::Sentinel { master, sentinels, server: one()? }
            }
            _ if master.is_some() => return only_sentinel("master"),
            _ if sentinels.is_some() => return only_sentinel("sentinels"),
            Kind::Single => Origin::Url(one()?),
            Kind::Cluster => {
                nodes(urls.clone(), None, Duration::ZERO)?;
                Origin::Cluster(urls)
            }
        };
        Ok(Self { origin, credentials: None, certificates })
    }
}
