//! The address of one server, and how this client connects to it.

#[cfg(feature = "unstable-simulation")]
use std::io;
use std::time::Duration;

use redis::aio::PubSub;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisError, cmd,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::multiplexed::Multiplexed;
#[cfg(feature = "unstable-simulation")]
use super::stream::over;
use crate::base::credentials::{Credentials, Login};
#[cfg(feature = "unstable-simulation")]
use crate::base::process;

/// After this time, the host stops delivering the rest of what was sent on a connection that was given up.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The user that a server has without any settings.
const DEFAULT_USER: &str = "default";

/// The address of one server, and how this client connects to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) info: ConnectionInfo,
    /// The credentials that replace those in the address.
    pub(crate) credentials: Option<Credentials>,
    /// The time limit of a new connection.
    pub(crate) limit: Duration,
}

impl Endpoint {
    pub(crate) fn new(
        address: impl IntoConnectionInfo,
        credentials: Option<Credentials>,
        limit: Duration,
    ) -> Result<Self, RedisError> {
        let info = with_tcp_settings(address)?;
        Client::open(info.clone())?; // fails if the address needs TLS and the feature is off
        Ok(Self { info, credentials, limit })
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// The same settings for another server. The name that the server announced also counts for TLS.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let address = match self.info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        Self { info: self.info.clone().set_addr(address), ..self.clone() }
    }

    /// Host and port, if it has these.
    pub(crate) fn host_and_port(&self) -> Option<(String, u16)> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        }
    }

    /// Opens a connection for commands.
    pub(crate) async fn commands(&self) -> Result<Multiplexed, RedisError> {
        // `server.rs` sets the time limit of every command, for all kinds of sources.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(self.limit)).set_response_timeout(None);
        open(&self.client()?, config).await
    }

    /// Opens a connection for messages.
    pub(crate) async fn messages(&self) -> Result<PubSub, RedisError> {
        let client = self.client()?;
        #[cfg(feature = "unstable-simulation")]
        if let Some(stream) = simulated_stream(&client).await {
            return PubSub::new(client.get_connection_info().redis_settings(), stream?).await;
        }
        client.get_async_pubsub().await
    }

    /// Opens a connection on which the server can send something unasked.
    pub(crate) async fn with_pushes(
        &self,
        pushes: UnboundedSender<PushInfo>,
    ) -> Result<Multiplexed, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(None)
            .set_push_sender(pushes);
        let client = self.client()?.get_connection_info().clone();
        let settings = client.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        open(&Client::open(client.set_redis_settings(settings))?, config).await
    }

    /// Host and port.
    pub(crate) fn address(&self) -> String {
        self.info.addr().to_string()
    }

    /// The number of the database.
    pub(crate) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// The changes of the credentials, if they can change.
    pub(crate) fn logins(&self) -> Option<watch::Receiver<Login>> {
        self.credentials.as_ref().map(Credentials::changes)
    }

    fn client(&self) -> Result<Client, RedisError> {
        let settings = logged_in(self.info.redis_settings().clone(), self.credentials.as_ref());
        Client::open(self.info.clone().set_redis_settings(settings))
    }
}

async fn open(client: &Client, config: AsyncConnectionConfig) -> Result<Multiplexed, RedisError> {
    #[cfg(feature = "unstable-simulation")]
    if let Some(stream) = simulated_stream(client).await {
        return over(stream?, client.get_connection_info().redis_settings(), config).await;
    }
    Ok(Multiplexed::new(client.get_multiplexed_async_connection_with_config(&config).await?, None))
}

/// The stream of a simulated process that has a network of its own.
#[cfg(feature = "unstable-simulation")]
async fn simulated_stream(client: &Client) -> Option<io::Result<Box<dyn process::Stream>>> {
    let network = process::current()?.network()?;
    match client.get_connection_info().addr().clone() {
        ConnectionAddr::Tcp(host, port) => Some(network(host, port).await),
        _ => None,
    }
}

/// The settings of a connection that authenticates with the latest credentials, if there are some.
pub(super) fn logged_in(
    settings: RedisConnectionInfo,
    credentials: Option<&Credentials>,
) -> RedisConnectionInfo {
    let Some(Login { user, password }) = credentials.map(Credentials::current) else { return settings };
    let settings = settings.set_password(password);
    match settings.username() {
        None if user.is_empty() => settings,
        Some(_) if user.is_empty() => settings.set_username(DEFAULT_USER), // and not that of the address
        _ => settings.set_username(user),
    }
}

/// The command that authenticates an open connection again.
pub(crate) fn authenticate(Login { user, password }: &Login) -> Cmd {
    let mut command = cmd("AUTH");
    if !user.is_empty() {
        command.arg(&**user);
    }
    command.arg(&**password);
    command
}

fn with_tcp_settings(address: impl IntoConnectionInfo) -> Result<ConnectionInfo, RedisError> {
    let tcp = TcpSettings::default().set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    Ok(address.into_connection_info()?.set_tcp_settings(tcp))
}
