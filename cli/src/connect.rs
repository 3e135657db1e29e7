//! From the arguments to a client.

use std::fs;
use std::time::Duration;

use lockkeeper::{LockClient, LockConfig, Source};
use serde::Deserialize;

use crate::args::Connection;
use crate::exit::Failure;

/// What the file has.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    server: Option<Source>,
    #[serde(default)]
    locks: LockConfig,
}

/// Which kind of source the file names.
#[derive(Default, Deserialize)]
struct Kinds {
    #[serde(default)]
    server: Kind,
}

#[derive(Default, Deserialize)]
struct Kind {
    kind: Option<String>,
}

const DEFAULT_URL: &str = "redis://127.0.0.1/";
const SINGLE: &str = "single";

#[derive(Clone)]
pub(crate) struct Settings {
    source: Source,
    /// `single`, `sentinel`, `replicated` or `cluster`.
    pub(crate) kind: String,
    locks: LockConfig,
}

impl Settings {
    /// Reads the file, if there is one. The URL of the arguments takes precedence over the server of the file.
    pub(crate) fn read(connection: &Connection) -> Result<Self, Failure> {
        let (file, kinds) = match &connection.config {
            None => (File::default(), Kinds::default()),
            Some(path) => {
                let unreadable = |problem: &dyn std::fmt::Display| {
                    Failure::usage(format!("the file {} cannot be used: {problem}", path.display()))
                };
                let text = fs::read_to_string(path).map_err(|error| unreadable(&error))?;
                // The text of an error of `toml` shows the line, in which a password can be.
                let problem = |error: toml::de::Error| unreadable(&error.message());
                (toml::from_str(&text).map_err(problem)?, toml::from_str(&text).map_err(problem)?)
            }
        };
        let named = kinds.server.kind.unwrap_or_else(|| SINGLE.to_owned());
        let (source, kind) = match (&connection.url, file.server) {
            (Some(url), _) => (Source::from(url.as_str()), SINGLE.to_owned()),
            (None, Some(source)) => (source, named),
            (None, None) => (Source::from(DEFAULT_URL), SINGLE.to_owned()),
        };
        Ok(Self { source, kind, locks: file.locks })
    }

    /// The lease of a lock without a fixed lease.
    pub(crate) fn watchdog_lease(&self) -> Result<Duration, Failure> {
        self.duration("watchdog_lease")
    }

    /// The value of this setting.
    pub(crate) fn duration(&self, setting: &str) -> Result<Duration, Failure> {
        // Only its text form shows the values of a configuration.
        let text = serde_json::to_value(&self.locks).map_err(Failure::usage)?;
        humantime::parse_duration(text[setting].as_str().unwrap_or_default()).map_err(Failure::usage)
    }

    /// The same, but waiters attempt by themselves only after this time.
    pub(crate) fn with_safety_poll(&self, time: Duration) -> Result<Self, Failure> {
        let locks = self.locks.to_builder().safety_poll(time).build()?;
        Ok(Self { locks, ..self.clone() })
    }

    pub(crate) async fn connect(self) -> Result<LockClient, Failure> {
        Ok(self.client().await?)
    }

    /// Like [`connect`](Self::connect), for callers to whom it matters why it fails.
    pub(crate) async fn client(self) -> lockkeeper::Result<LockClient> {
        // Without this, rustls does not know which one to use.
        let _ = rustls::crypto::ring::default_provider().install_default();
        LockClient::connect_with(self.source, self.locks).await
    }
}
