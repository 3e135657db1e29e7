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

/// The longest time for which the library retries to connect.
const LONGEST_START: Duration = Duration::from_secs(24 * 3_600);

#[derive(Clone)]
pub(crate) struct Settings {
    source: Source,
    /// Nothing names a server.
    is_default: bool,
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
        let is_default = url.is_none() && file.server.is_none();
        let (source, kind) = match (url, file.server) {
            (None, Some(source)) => (source, named),
            (url, _) => (Source::from(url.as_deref().unwrap_or(DEFAULT_URL)), SINGLE.to_owned()),
        };
        Ok(Self { source, is_default, kind, locks: file.locks })
    }

    pub(crate) const fn locks(&self) -> &LockConfig {
        &self.locks
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

    /// The same, but connecting is retried for this time; without one, as long as an acquire.
    pub(crate) fn with_start_timeout(&self, time: Option<Duration>) -> Result<Self, Failure> {
        let time = match time {
            Some(time) => time.min(LONGEST_START),
            None => self.locks.start_timeout().max(self.locks.retry_timeout()),
        };
        let locks = self.locks.to_builder().start_timeout(time).build().map_err(Error::from)?;
        Ok(Self { locks, ..self.clone() })
    }

    pub(crate) async fn connect(self) -> Result<LockClient, Failure> {
        let is_default = self.is_default;
        self.client().await.map_err(|error| match error {
            Error::Unreachable(_) if is_default => Failure::unavailable(format!(
                "{error}. {DEFAULT_URL} is the default: neither --url, {URL}, --config nor {CONFIG} names a server"
            )),
            error => error.into(),
        })
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
        Some((found, expected)) => match unknown_field(found) {
            Some(field) => format!("unknown field `{field}`, expected {expected}"),
            None => format!("expected {expected}"),
        },
        None => texts(text).fold(message.to_owned(), |message, value| message.replace(&value, "…")),
    };
    let line = error.span().map(|span| text[..span.start].matches('\n').count());
    match line.map(|line| line_of_field(text, line, message).unwrap_or(line)) {
        Some(line) => format!("line {}: {problem}", line + 1),
        None => problem,
    }
}

/// The field that the file must not have. `None`: the problem is another one, or this could be a password in the wrong place.
fn unknown_field(found: &str) -> Option<&str> {
    let field = found.strip_prefix("unknown field `")?.strip_suffix('`')?;
    field.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_').then_some(field)
}

/// The line of the field that this message names. The error of a value has only the first line of its table.
fn line_of_field(text: &str, table: usize, message: &str) -> Option<usize> {
    let (field, _) = message.strip_prefix("invalid configuration: `")?.split_once('`')?;
    let is_field =
        |line: &str| line.trim_start().strip_prefix(field)?.trim_start().starts_with('=').then_some(());
    text.lines().enumerate().skip(table).find_map(|(number, line)| is_field(line).map(|()| number))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_default_that_does_not_answer_is_named_as_the_default() {
        let named = |url: Option<&str>| Connection { url: url.map(str::to_owned), config: None };
        let settings = Settings::read(&named(Some("redis://127.0.0.1:1/"))).expect("settings");
        assert!(!settings.is_default);
        let failure = settings.clone().connect().await.expect_err("nothing listens there");
        assert!(!failure.problem.contains("default"), "{failure:?}");
        let failure = Settings { is_default: true, ..settings }.connect().await.expect_err("as before");
        assert!(
            failure.problem.contains("neither --url, LOCKKEEPER_URL, --config nor LOCKKEEPER_CONFIG"),
            "{failure:?}"
        );
    }

    #[test]
    fn a_bad_file_is_told_by_field_and_line() {
        let problem = |text: &str| problem(text, &toml::from_str::<File>(text).err().expect("it is bad"));
        let unknown = problem("[locks]\nwatchdog_leas = '1m'\n");
        assert!(
            unknown.starts_with("line 2: unknown field `watchdog_leas`, expected one of `watchdog_lease`"),
            "{unknown}"
        );
        let value = problem(
            "[server]\nurls = ['redis://host/']\n\n[locks]\nsafety_poll = '1s'\nconnections = 'two'\n",
        );
        assert!(value.starts_with("line 6: invalid configuration: `connections` "), "{value}");
        let sentinel = problem("[server]\nkind = 'sentinel'\n");
        assert!(sentinel.contains("`master` must be the name"), "{sentinel}");
        // Perhaps a password.
        let hidden = problem("[locks]\n'hunter2' = 1\n");
        assert!(hidden.starts_with("line 2: expected one of `watchdog_lease`"), "{hidden}");
    }
}
