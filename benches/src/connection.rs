//! Connections to a server, commands on them, and what a server reports about itself.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, InfoDict, IntoConnectionInfo, Script,
    cmd,
};

/// The longest wait for a connection or an answer. By default redis-rs waits a second and 500 ms, which a busy machine
/// may exceed.
const LIMIT: Duration = Duration::from_secs(10);

pub fn address(url: &str) -> ConnectionInfo {
    let address = url.into_connection_info().expect("a valid URL");
    address.set_tcp_settings(TcpSettings::default().set_nodelay(true))
}

pub async fn connect(url: &str) -> MultiplexedConnection {
    let client = Client::open(address(url)).expect("a valid address");
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(LIMIT));
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

/// For crates that take a connection manager.
pub async fn manager(url: &str) -> ConnectionManager {
    let client = Client::open(address(url)).expect("a valid address");
    let config =
        ConnectionManagerConfig::new().set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(LIMIT));
    client.get_connection_manager_with_config(config).await.expect("a connection")
}

pub async fn run<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &Cmd) -> T {
    command.query_async(connection).await.expect("an answer")
}

/// Loads a script. Returns the hash by which the server calls it.
pub async fn load(connection: &mut MultiplexedConnection, source: &str) -> String {
    Script::new(source).load_async(connection).await.expect("a script that the server accepts")
}

/// The answer to `INFO`.
pub struct Info(InfoDict);

impl Info {
    /// Reads one section of the report, or all of it as "everything".
    pub async fn read(connection: &mut MultiplexedConnection, section: &str) -> Self {
        Self(run(connection, cmd("INFO").arg(section)).await)
    }

    pub fn number(&self, name: &str) -> f64 {
        self.0.get(name).unwrap_or_else(|| panic!("INFO has no number {name}"))
    }

    /// How often the server was called with EVALSHA.
    pub fn scripts(&self) -> f64 {
        let Some(facts) = self.0.get::<String>("cmdstat_evalsha") else { return 0.0 };
        let calls = facts.split(',').find_map(|fact| fact.strip_prefix("calls="));
        calls.and_then(|calls| calls.parse().ok()).expect("a number")
    }

    /// The microseconds that the server has run scripts which were called with EVALSHA.
    pub fn script_micros(&self) -> f64 {
        let Some(facts) = self.0.get::<String>("cmdstat_evalsha") else { return 0.0 };
        let micros = facts.split(',').find_map(|fact| fact.strip_prefix("usec="));
        micros.and_then(|micros| micros.parse().ok()).expect("a number")
    }

    /// Seconds that the server has computed since it started, in user space and in the kernel.
    pub fn cpu_seconds(&self) -> f64 {
        self.number("used_cpu_user") + self.number("used_cpu_sys")
    }
}
