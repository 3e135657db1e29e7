//! How connections to a server are made.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use deadpool_redis::{Connection as Pooled, Pool, PoolError};
use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, cmd};
use tokio::sync::watch;

use super::endpoint::Endpoint;
use super::membership::Membership;
use super::wire;
use crate::credentials::Login;
use crate::fault::{Fault, FaultKind, Sent};
#[cfg(feature = "memory")]
use crate::memory::MemoryServer;
use crate::store::messages::Messages;
use crate::store::topology::Master;

/// Makes the connections for commands.
pub(crate) enum CommandDial {
    Endpoint(Box<Endpoint>),
    /// A server that is used only while it is a master.
    Master(Box<Endpoint>),
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Pool(Pool),
}

impl CommandDial {
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, Fault> {
        match self {
            Self::Endpoint(endpoint) => connect(endpoint).await,
            Self::Master(endpoint) => connect_to_master(endpoint).await,
            #[cfg(feature = "memory")]
            Self::Memory(server) => memory::commands(server).await.map_err(wire::connect_fault),
            Self::Pool(pool) => match pool.get().await {
                Ok(connection) => Ok(Pooled::take(connection)),
                Err(PoolError::Backend(error)) => Err(wire::connect_fault(error)),
                Err(error) => Err(Fault::new(FaultKind::Unreachable, Sent::No, error)),
            },
        }
    }

    /// `None`: only a pool knows how to connect, or the server is in this process.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Endpoint(endpoint) | Self::Master(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// The changes of the credentials, if they can change.
    pub(crate) fn logins(&self) -> Option<watch::Receiver<Login>> {
        self.endpoint()?.logins()
    }
}

/// Connects to a server.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<MultiplexedConnection, Fault> {
    // rustls panics if it does not know which provider to use.
    match AssertUnwindSafe(endpoint.commands()).catch_unwind().await {
        Ok(connected) => connected.map_err(wire::connect_fault),
        Err(panic) => Err(wire::panic_fault(&*panic)),
    }
}

/// Connects to a server, and checks that it is a master.
pub(crate) async fn connect_to_master(endpoint: &Endpoint) -> Result<MultiplexedConnection, Fault> {
    let mut connection = connect(endpoint).await?;
    let reply = wire::send(&mut connection, &cmd("HELLO")).await.map_err(wire::connect_fault)?;
    match wire::hello_fact(&reply, "role") {
        Some(role) if role != "master" => Err(Fault::new(
            FaultKind::ReadOnly,
            Sent::No,
            format!("the server is a {role}, and not a master"),
        )),
        _ => Ok(connection),
    }
}

/// Makes the connection for messages.
pub(crate) enum MessageDial {
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Endpoint(Box<Endpoint>),
    /// To the server that is the master at that time.
    Master(Arc<Master>),
    /// To one master of a cluster, for messages of its slots.
    Shard(Box<Endpoint>, Membership),
}

impl MessageDial {
    pub(crate) async fn connect(&self) -> Result<Messages, RedisError> {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(server) => memory::messages(server).await.map(Messages::from),
            Self::Endpoint(endpoint) => endpoint.messages().await.map(Messages::from),
            Self::Master(master) => master.endpoint().messages().await.map(Messages::from),
            Self::Shard(endpoint, membership) if membership.is_sharded() => endpoint.sharded_messages().await,
            Self::Shard(endpoint, _) => endpoint.messages().await.map(Messages::from),
        }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> String {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(_) => "memory".to_owned(),
            Self::Endpoint(endpoint) | Self::Shard(endpoint, _) => endpoint.address(),
            Self::Master(master) => master.endpoint().address(),
        }
    }

    /// The number of the database.
    pub(crate) fn database(&self) -> i64 {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(_) => 0,
            Self::Endpoint(endpoint) | Self::Shard(endpoint, _) => endpoint.database(),
            Self::Master(master) => master.endpoint().database(),
        }
    }

    /// The changes of the credentials, if they can change.
    pub(crate) fn logins(&self) -> Option<watch::Receiver<Login>> {
        match self {
            Self::Endpoint(endpoint) | Self::Shard(endpoint, _) => endpoint.logins(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            Self::Master(master) => master.endpoint().logins(),
        }
    }

    /// Some slots are not where they were.
    pub(crate) fn complain(&self) {
        if let Self::Shard(_, membership) = self {
            membership.complain();
        }
    }

    /// What tells when the connection has to lead to another server. `None`: never.
    pub(crate) const fn master(&self) -> Option<&Arc<Master>> {
        match self {
            Self::Master(master) => Some(master),
            _ => None,
        }
    }
}

impl From<Endpoint> for CommandDial {
    fn from(endpoint: Endpoint) -> Self {
        Self::Endpoint(Box::new(endpoint))
    }
}

impl From<Endpoint> for MessageDial {
    fn from(endpoint: Endpoint) -> Self {
        Self::Endpoint(Box::new(endpoint))
    }
}

#[cfg(feature = "memory")]
mod memory {
    use redis::aio::{MultiplexedConnection, PubSub};
    use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};

    use crate::memory::MemoryServer;
    use crate::task;

    pub(crate) async fn commands(server: &MemoryServer) -> RedisResult<MultiplexedConnection> {
        // The store sets the time limit of every command.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let info = RedisConnectionInfo::default();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&info, server.connect()?, config).await?;
        task::spawn(driver);
        Ok(connection)
    }

    pub(crate) async fn messages(server: &MemoryServer) -> RedisResult<PubSub> {
        PubSub::new(&RedisConnectionInfo::default(), server.connect()?).await
    }
}
