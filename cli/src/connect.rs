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

const DEFAULT_URL: &str = "redis://127.0.0.1/";

pub(crate) struct Settings {
    source: Source,
    locks: LockConfig,
}

impl Settings {
    /// Reads the file, if there is one. The URL of the arguments takes precedence over the server of the file.
    pub(crate) fn read(connection: &Connection) -> Result<Self, Failure> {
        let file = match &connection.config {
            None => File::default(),
            Some(path) => {
                let unreadable = |problem: &dyn std::fmt::Display| {
                    Failure::usage(format!("the file {} cannot be used: {problem}", path.display()))
                };
                let text = fs::read_to_string(path).map_err(|error| unreadable(&error))?;
                // The text of an error of `toml` shows the line, in which a password can be.
                toml::from_str(&text).map_err(|error: toml::de::Error| unreadable(&error.message()))?
            }
        };
        let source = match (&connection.url, file.server) {
            (Some(url), _) => Source::from(url.as_str()),
            (None, Some(source)) => source,
            (None, None) => Source::from(DEFAULT_URL),
        };
        Ok(Self { source, locks: file.locks })
    }

    /// The lease of a lock without a fixed lease.
    pub(crate) fn watchdog_lease(&self) -> Result<Duration, Failure> {
        // Only its text form shows the values of a configuration.
        let text = serde_json::to_value(&self.locks).map_err(Failure::usage)?;
        let lease = text["watchdog_lease"].as_str().unwrap_or_default();
        humantime::parse_duration(lease).map_err(Failure::usage)
    }

    pub(crate) async fn connect(self) -> Result<LockClient, Failure> {
        // Without this, rustls does not know which one to use.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(LockClient::connect_with(self.source, self.locks).await?)
    }
}
