//! From the arguments to a client.

use std::env::{self, VarError};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::{Error, LockClient, LockConfig, LockConfigBuilder, Source};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo,
    TlsCertificates,
};
use serde::Deserialize;
use tokio::sync::mpsc::UnboundedSender;

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

/// What `verify` and `doctor` need of a source, for connections of its own.
#[derive(Clone, Default, Deserialize)]
struct Kind {
    kind: Option<String>,
    #[serde(default)]
    urls: Vec<String>,
    root_cert: Option<PathBuf>,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
}

const URL: &str = "LOCKKEEPER_URL";
const CONFIG: &str = "LOCKKEEPER_CONFIG";
const DEFAULT_URL: &str = "redis://127.0.0.1/";
pub(crate) const SINGLE: &str = "single";

/// The longest time for which the library retries to connect.
const LONGEST_START: Duration = Duration::from_secs(24 * 3_600);

/// How long such a connection waits for the server.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Settings {
    source: Source,
    /// Nothing names a server.
    is_default: bool,
    /// `single`, `sentinel` or `cluster`.
    pub(crate) kind: String,
    server: Kind,
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
        let is_default = url.is_none() && file.server.is_none();
        let (source, server) = match (url, file.server) {
            (None, Some(source)) => (source, kinds.server),
            (url, _) => {
                let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
                (Source::from(&*url), Kind { urls: vec![url], ..Kind::default() })
            }
        };
        let kind = server.kind.clone().unwrap_or_else(|| SINGLE.to_owned());
        Ok(Self { source, is_default, kind, server, locks: file.locks })
    }

    pub(crate) const fn locks(&self) -> &LockConfig {
        &self.locks
    }

    /// The same, but with this change.
    pub(crate) fn with(
        &self,
        change: impl FnOnce(LockConfigBuilder) -> LockConfigBuilder,
    ) -> Result<Self, Failure> {
        let locks = change(self.locks.to_builder()).build().map_err(Error::from)?;
        Ok(Self { locks, ..self.clone() })
    }

    /// The same, but leases are short, and nothing but the locks is written: for workers of `verify`, which are killed often.
    pub(crate) fn with_short_leases(&self, lease: Duration) -> Result<Self, Failure> {
        self.with(|locks| {
            let locks = locks.watchdog_lease(lease).fair_allowance(lease).writer_turn(lease / 10);
            locks.start_timeout(lease * 10).diagnosis(false)
        })
    }

    /// The URL of a single server without TLS. Only its connections can be forwarded: TLS checks the name of the server, and a client of
    /// Sentinel or of a cluster finds the servers by itself.
    pub(crate) fn plain_url(&self) -> Option<&str> {
        let url =
            self.server.urls.first().filter(|url| self.kind == SINGLE && url.starts_with("redis://"))?;
        Some(url)
    }

    /// A connection to one master, for commands that the library does not send. `address`: as `LockClient::servers` tells it; without one,
    /// that of the URL. With `pushes`, it has version 3 of the protocol, and what the server sends unasked goes there.
    pub(crate) async fn raw(
        &self,
        address: Option<&str>,
        pushes: Option<UnboundedSender<PushInfo>>,
    ) -> Result<MultiplexedConnection, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let url = self.server.urls.first().ok_or("no URL is known")?;
        let mut info = url.as_str().into_connection_info().map_err(|error| text(&error))?;
        if let Some((host, port)) = address.and_then(|address| address.rsplit_once(':')) {
            let port = port.parse().map_err(|error| text(&error))?;
            let host = host.trim_matches(['[', ']']).to_owned();
            let address = match info.addr() {
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                    ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
                }
                _ => ConnectionAddr::Tcp(host, port),
            };
            info = info.set_addr(address);
        }
        if pushes.is_some() {
            let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            info = info.set_redis_settings(settings);
        }
        let read =
            |path: &Option<PathBuf>| path.as_ref().map(fs::read).transpose().map_err(|error| text(&error));
        let certificates = TlsCertificates {
            root_cert: read(&self.server.root_cert)?,
            client_tls: match (read(&self.server.client_cert)?, read(&self.server.client_key)?) {
                (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
                _ => None,
            },
        };
        let has_certificates = certificates.root_cert.is_some() || certificates.client_tls.is_some();
        let client = if has_certificates {
            redis::Client::build_with_tls(info, certificates)
        } else {
            redis::Client::open(info)
        };
        let client = client.map_err(|error| text(&error))?;
        // The defaults of redis-rs are too short for a busy server.
        let mut times = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        if let Some(pushes) = pushes {
            times = times.set_push_sender(pushes);
        }
        client.get_multiplexed_async_connection_with_config(&times).await.map_err(|error| text(&error))
    }

    /// The same, but connecting is retried for this time; without one, as long as an acquire.
    pub(crate) fn with_start_timeout(&self, time: Option<Duration>) -> Result<Self, Failure> {
        let usual = || self.locks.start_timeout().max(self.locks.retry_timeout());
        self.with(|locks| locks.start_timeout(time.map_or_else(usual, |time| time.min(LONGEST_START))))
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
        // rustls panics if it has no default provider and cannot tell which one to use.
        let _ = rustls::crypto::ring::default_provider().install_default();
        LockClient::connect_with(self.source, self.locks).await
    }
}

/// Host and port of a URL. `None`: it has none.
pub(crate) fn address_of(url: &str) -> Option<String> {
    match url.into_connection_info().ok()?.addr() {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => Some(format!("[{host}]:{port}")),
        ConnectionAddr::Tcp(host, port) => Some(format!("{host}:{port}")),
        _ => None,
    }
}

/// The same URL, with another host and port.
pub(crate) fn at_address(url: &str, address: SocketAddr) -> Option<String> {
    let rest = url.strip_prefix("redis://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let user = authority.rsplit_once('@').map(|(user, _)| format!("{user}@")).unwrap_or_default();
    Some(format!("redis://{user}{address}{path}"))
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
    fn a_url_leads_to_another_address() {
        let to: SocketAddr = ([127, 0, 0, 1], 7).into();
        for (url, expected) in [
            ("redis://host", "redis://127.0.0.1:7"),
            ("redis://u:p%40@host:6380/2?protocol=resp3", "redis://u:p%40@127.0.0.1:7/2?protocol=resp3"),
        ] {
            assert_eq!(at_address(url, to).as_deref(), Some(expected));
        }
        assert_eq!(at_address("rediss://host", to), None);
        assert_eq!(address_of("redis://u:p@host:6380/2").as_deref(), Some("host:6380"));
        assert_eq!(address_of("redis://[::1]").as_deref(), Some("[::1]:6379"));
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
        assert_eq!(value, "line 6: expected usize");
        let range = problem("[locks]\nsafety_poll = '1s'\nconnections = 0\n");
        assert!(range.starts_with("line 3: invalid configuration: `connections` "), "{range}");
        let sentinel = problem("[server]\nkind = 'sentinel'\n");
        assert!(sentinel.contains("`master` must be the name"), "{sentinel}");
        // An unknown setting is perhaps a password, so the message does not repeat it.
        let hidden = problem("[locks]\n'hunter2' = 1\n");
        assert!(hidden.starts_with("line 2: expected one of `watchdog_lease`"), "{hidden}");
    }
}
