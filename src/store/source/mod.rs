//! What the user named: URLs, sentinels, a file, a pool, certificates. Becomes a [`Group`], which a topology opens.
//!
//! Everything is checked here, before the first connection: a `Group` that exists is valid. `origin.rs` makes it, `pool.rs` does
//! so for deadpool-redis, and `file.rs` reads the form in a file.
//!
//! The files beside that are about the first contact with a server. `self_test.rs` examines it before it is used: its version, what
//! its scripts can do, and its identity. `first_contact.rs` finds the reason when the first connection fails without one.

mod certificates;
mod file;
pub(crate) mod first_contact;
mod identity;
mod origin;
#[cfg(feature = "deadpool-redis")]
mod pool;
pub(crate) mod self_test;

use std::fmt;
use std::io;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::base::config::LockConfig;
use crate::base::credentials::Credentials;
use crate::base::error::ConfigError;
use crate::store::connection::StreamDial;
use crate::store::topology::Group;
use certificates::Certificates;
use file::Fields;
use origin::Origin;

pub(crate) use identity::Identity;

/// The server that a [`LockClient`](crate::LockClient) connects to, or several servers of which one is the master.
///
/// A source is made from
///
/// - a URL: `redis://user:password@host:6379/0`, or `rediss://` for TLS,
/// - sentinels, which know the master: [`Source::sentinel`],
/// - the URLs of some nodes of a cluster: [`Source::cluster`],
/// - a function that opens streams, such as those of a server in the same process: [`Source::stream`],
/// - with the feature `deadpool-redis`: a pool that the application already has (`Source::pool`), or a `Config`
///   of deadpool-redis.
///
/// ```no_run
/// # use lockkeeper::LockClient;
/// # async fn demo() -> lockkeeper::Result<()> {
/// let locks = LockClient::connect("redis://127.0.0.1/").await?;
/// # Ok(()) }
/// ```
///
/// A source is also read with serde. Its `kind` is `single` (the default), `sentinel` or `cluster`:
///
/// ```
/// # use lockkeeper::Source;
/// let single: Source = toml::from_str(r#"urls = ["redis://127.0.0.1/"]"#)?;
/// let sentinel: Source = toml::from_str(r#"
///     kind = "sentinel"
///     master = "mymaster"
///     sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/", "redis://10.0.0.3:26379/"]
///     urls = ["redis://app:secret@mymaster/0"]
/// "#)?;
/// let cluster: Source = toml::from_str(r#"
///     kind = "cluster"
///     urls = ["redis://10.0.0.1/", "redis://10.0.0.2/"]
/// "#)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// For TLS, it can also name files in the PEM format, which are read at once: `root_cert` with the certificates of the
/// authorities that the client trusts instead of those of the system, `client_cert` and `client_key`.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Source {
    origin: Origin,
    credentials: Option<Credentials>,
    certificates: Option<Certificates>,
}

impl Source {
    /// One server, by its URL: `redis://user:password@host:6379/0`, or `rediss://` for TLS.
    ///
    /// The host can be a name that moves to another server at a failover, such as the primary endpoint of a managed service. The client
    /// makes all connections anew when a server answers that it is a replica, and when it loses a connection.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, Source};
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let locks = LockClient::connect(Source::url("redis://127.0.0.1/")).await?;
    /// # Ok(()) }
    /// ```
    pub fn url(url: impl Into<String>) -> Self {
        Origin::Url(url.into()).into()
    }

    /// A master and its replicas, which sentinels watch. `master` is the name by which the sentinels know the master.
    ///
    /// Name all sentinels, by their URLs: `redis://10.0.0.1:26379/`. A sentinel that needs credentials or TLS has them in its URL.
    /// `server_url` says how to connect to the servers that the sentinels name: with which user, password, database, and whether
    /// with TLS. Its host and port are not used.
    ///
    /// The client follows the master. [Deploy](crate::guide::deploy#sentinel) says what to set on the servers, and
    /// [configuration](crate::guide::configuration#which-failover-the-defaults-survive) how long a failover takes.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, Source};
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/", "redis://10.0.0.3:26379/"];
    /// let source = Source::sentinel("mymaster", sentinels, "redis://app:secret@mymaster/0");
    /// let locks = LockClient::connect(source).await?;
    /// # Ok(()) }
    /// ```
    pub fn sentinel<S: Into<String>>(
        master: impl Into<String>,
        sentinels: impl IntoIterator<Item = S>,
        server_url: impl Into<String>,
    ) -> Self {
        let sentinels = sentinels.into_iter().map(Into::into).collect();
        Origin::Sentinel { master: master.into(), sentinels, server: server_url.into() }.into()
    }

    /// A Redis Cluster or Valkey Cluster, by the URLs of some of its nodes.
    ///
    /// The client asks these nodes, and all that they name, which of them is the master of which slot. Name several, so that one that
    /// is down keeps no program from starting. The first URL says how to connect to the nodes that others name: with which user and
    /// password, and whether with TLS.
    ///
    /// All URLs name the same database, or none for database 0: `redis://10.0.0.1:6379/3`. Only Valkey from 9.0 on can have others than
    /// 0 (`cluster-databases`). On other servers, `connect` fails with [`Config`](crate::Error::Config).
    ///
    /// The client follows failovers and moved slots. [Deploy](crate::guide::deploy#cluster) says what to set on the
    /// servers, and [configuration](crate::guide::configuration#which-failover-the-defaults-survive) how long calls wait. All keys of one
    /// lock are in one slot. Names for which that cannot be, such as `a{b`, are an
    /// [`InvalidName`](crate::Error::InvalidName).
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, Source};
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let source = Source::cluster(["redis://10.0.0.1:6379/", "redis://10.0.0.2:6379/"]);
    /// let locks = LockClient::connect(source).await?;
    /// # Ok(()) }
    /// ```
    pub fn cluster<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Self {
        Origin::Cluster(urls.into_iter().map(Into::into).collect()).into()
    }

    /// Authenticates with credentials that can change, instead of those in the address.
    ///
    /// When they change, each connection for commands is authenticated again. The connection for messages is replaced, and the
    /// waiters ask the server once, so that no message is missed.
    ///
    /// The credentials are for the servers that keep the locks. Sentinels have their own, in their URLs.
    ///
    /// A pool authenticates its connections itself: with a pool, `connect` fails with [`Config`](crate::Error::Config).
    ///
    /// ```no_run
    /// # use lockkeeper::{Credentials, LockClient, Source};
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let credentials = Credentials::new("app", "first password");
    /// let locks = LockClient::connect(Source::url("redis://127.0.0.1/").with_credentials(&credentials)).await?;
    /// credentials.set("app", "second password");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_credentials(self, credentials: &Credentials) -> Self {
        Self { credentials: Some(credentials.clone()), ..self }
    }

    /// Trusts these authorities instead of those of the system: certificates in the PEM format.
    ///
    /// They count for all connections to the servers of this source: also to those that the client finds later, and for messages. All
    /// addresses must begin with `rediss://`. Sentinels may have no TLS; the certificates also count for those that do.
    ///
    /// # Errors
    ///
    /// The method cannot fail. When the client connects, these are [`Config`](crate::Error::Config): certificates that cannot be read,
    /// another kind of address, a pool, and streams, which set up TLS themselves. So are certificates that client and server do not
    /// accept from each other.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, Source};
    /// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = ["rediss://10.0.0.1:6379/", "rediss://10.0.0.2:6379/"];
    /// let source = Source::cluster(nodes).with_root_cert(std::fs::read("ca.crt")?);
    /// let locks = LockClient::connect(source).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
    #[must_use]
    pub fn with_root_cert(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.get_or_insert_default().root_cert = Some(pem.into());
        self
    }

    /// Shows this certificate to servers that ask the client for one: the certificate and its private key in the PEM format.
    ///
    /// It counts for the same connections as [`with_root_cert`](Self::with_root_cert), and `connect` fails for the same reasons.
    ///
    /// ```no_run
    /// # use lockkeeper::{LockClient, Source};
    /// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
    /// let source = Source::url("rediss://127.0.0.1/")
    ///     .with_root_cert(std::fs::read("ca.crt")?)
    ///     .with_client_cert(std::fs::read("client.crt")?, std::fs::read("client.key")?);
    /// let locks = LockClient::connect(source).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
    #[must_use]
    pub fn with_client_cert(mut self, cert: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.certificates.get_or_insert_default().client = Some((cert.into(), key.into()));
        self
    }

    /// One server, over streams that `connector` opens: through a tunnel, or to a server in the same process.
    ///
    /// The client calls `connector` for each connection that it needs: a few for commands when it first uses them, one for messages
    /// when a call waits, and others for connections that broke. All must lead to the same server. They use database 0.
    ///
    /// # Errors
    ///
    /// The constructor cannot fail. An error of `connector` is a fault like that of any unreachable server: the client tries again,
    /// and calls return [`Unreachable`](crate::Error::Unreachable) after `retry_timeout`. A panic of `connector` is such an error, too.
    /// With certificates, `connect` fails with [`Config`](crate::Error::Config): `connector` sets up TLS
    /// itself.
    ///
    /// # Cancel safety
    ///
    /// The futures of `connector` run in tasks of the client: on the runtime on which the client was made, and on the client's own thread, so
    /// they must not wait for that runtime. A future that takes too long,
    /// `command_timeout` at most, is dropped, and `connector` is called again later. So a dropped future must leave nothing behind.
    ///
    /// ```no_run
    /// # use std::io;
    /// # use lockkeeper::{LockClient, Source};
    /// use tokio::net::TcpStream;
    ///
    /// # async fn demo() -> lockkeeper::Result<()> {
    /// let source = Source::stream(async || -> io::Result<TcpStream> {
    ///     let stream = TcpStream::connect("127.0.0.1:16379").await?; // the near end of a tunnel
    ///     stream.set_nodelay(true)?; // commands are small, and must not wait for each other
    ///     Ok(stream)
    /// });
    /// let locks = LockClient::connect(source).await?;
    /// # Ok(()) }
    /// ```
    pub fn stream<C, F, S>(connector: C) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Origin::Stream(StreamDial::new(connector)).into()
    }

    /// Returns the servers that it names.
    pub(crate) fn open(self, config: &LockConfig) -> Result<Group, ConfigError> {
        self.origin.open(self.credentials, self.certificates.as_ref(), config)
    }
}

impl From<Origin> for Source {
    fn from(origin: Origin) -> Self {
        Self { origin, credentials: None, certificates: None }
    }
}

impl From<&str> for Source {
    fn from(url: &str) -> Self {
        Self::url(url)
    }
}

impl From<&String> for Source {
    fn from(url: &String) -> Self {
        Self::url(url)
    }
}

impl From<String> for Source {
    fn from(url: String) -> Self {
        Self::url(url)
    }
}

impl fmt::Debug for Source {
    /// Shows no address: an address can contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.origin.kind())
    }
}
