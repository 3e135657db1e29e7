//! From the arguments to a client.

use std::env::{self, VarError};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::{Error, LockClient, LockConfig, Source};
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

const URL: &str = "LOCKKEEPER_URL";
const CONFIG: &str = "LOCKKEEPER_CONFIG";
const DEFAULT_URL: &str = "redis://127.0.0.1/";
const SINGLE: &str = "single";

#[derive(Clone)]
pub(crate) struct Settings {
    source: Source,
    /// `single`, `sentinel` or `cluster`.
    pub(crate) kind: String,
    locks: LockConfig,
}

impl Settings {
    /// Reads the variables, and the file if there is one. What the arguments name comes before what the variables name.
    pub(crate) fn read(connection: &Connection) -> Result<Self, Failure> {
        let url = match env::var(URL) {
            Err(VarError::NotUnicode(_)) => return Err(Failure::usage(format!("{URL} is not a URL"))),
            url => url.ok().filter(|url| !url.is_empty()),
        };
        let path = env::var_os(CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
        let is_named = connection.config.is_some();
        let (file, kinds) = match connection.config.as_ref().or(path.as_ref()) {
            None => (File::default(), Kinds::default()),
            Some(path) => {
                let unusable = |problem: String| {
                    Failure::usage(format!("the file {} cannot be used: {problem}", path.display()))
                };
                let text = fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
                let bad = |error: toml::de::Error| unusable(problem(&text, &error));
                (toml::from_str(&text).map_err(bad)?, toml::from_str(&text).map_err(bad)?)
            }
        };
        let url = match file.server {
            Some(_) if is_named => connection.url.clone(),
            _ => connection.url.clone().or(url),
        };
        let named = kinds.server.kind.unwrap_or_else(|| SINGLE.to_owned());
        let (source, kind) = match (url, file.server) {
            (None, Some(source)) => (source, named),
            (url, _) => (Source::from(url.as_deref().unwrap_or(DEFAULT_URL)), SINGLE.to_owned()),
        };
        Ok(Self { source, kind, locks: file.locks })
    }

    /// The lease of a lock without a fixed lease.
    pub(crate) fn watchdog_lease(&self) -> Result<Duration, Failure> {
        self.duration("watchdog_lease")
    }

    /// The value of this setting.
    pub(crate) fn duration(&self, setting: &str) -> Result<Duration, Failure> {
        humantime::parse_duration(&self.text(setting)?).map_err(Failure::usage)
    }

    pub(crate) fn name_prefix(&self) -> Result<String, Failure> {
        self.text("name_prefix")
    }

    /// Only its text form shows the values of a configuration.
    fn text(&self, setting: &str) -> Result<String, Failure> {
        let text = serde_json::to_value(&self.locks).map_err(Failure::usage)?;
        Ok(text[setting].as_str().unwrap_or_default().to_owned())
    }

    /// The same, but waiters attempt by themselves only after this time.
    pub(crate) fn with_safety_poll(&self, time: Duration) -> Result<Self, Failure> {
        let locks = self.locks.to_builder().safety_poll(time).build().map_err(Error::from)?;
        Ok(Self { locks, ..self.clone() })
    }

    pub(crate) fn without_name_prefix(&self) -> Result<Self, Failure> {
        let locks = self.locks.to_builder().name_prefix("").build().map_err(Error::from)?;
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

/// What is wrong with a file. Repeats no value of it, because a password can be anywhere in a file that is wrong.
fn problem(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let problem = match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => texts(text).fold(message.to_owned(), |message, value| message.replace(&value, "…")),
    };
    match error.span() {
        Some(span) => format!("line {}: {problem}", text[..span.start].matches('\n').count() + 1),
        None => problem,
    }
}

/// All texts in the values of a file.
fn texts(text: &str) -> impl Iterator<Item = String> {
    let mut values: Vec<toml::Value> = toml::from_str(text).map(toml::Value::Table).into_iter().collect();
    std::iter::from_fn(move || {
        loop {
            match values.pop()? {
                toml::Value::String(text) if !text.is_empty() => return Some(text),
                toml::Value::Array(more) => values.extend(more),
                toml::Value::Table(more) => values.extend(more.into_iter().map(|(_, value)| value)),
                _ => {}
            }
        }
    })
}
