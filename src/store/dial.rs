//! How connections to a server are made.

use deadpool_redis::{Connection as Pooled, Pool, PoolError};
use redis::RedisError;
use redis::aio::{MultiplexedConnection, PubSub};
use tokio::sync::watch;

use super::endpoint::Endpoint;
use super::wire;
use crate::credentials::Login;
use crate::fault::{Fault, FaultKind, Sent};
#[cfg(feature = "memory")]
use crate::memory::MemoryServer;

/// Makes the connections for commands.
pub(super) enum CommandDial {
    Endpoint(Box<Endpoint>),
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Pool(Pool),
}

impl CommandDial {
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, Fault> {
        match self {
            Self::Endpoint(endpoint) => endpoint.commands().await.map_err(wire::connect_fault),
            #[cfg(feature = "memory")]
            Self::Memory(server) => memory::commands(server).await.map_err(wire::connect_fault),
            Self::Pool(pool) => match pool.get().await {
                Ok(connection) => Ok(Pooled::take(connection)),
                Err(PoolError::Backend(error)) => Err(wire::connect_fault(error)),
                Err(error) => Err(Fault::new(FaultKind::Unreachable, Sent::No, error)),
            },
        }
    }

    /// The changes of the credentials, if they can change.
    pub(super) fn logins(&self) -> Option<watch::Receiver<Login>> {
        match self {
            Self::Endpoint(endpoint) => endpoint.logins(),
            _ => None,
        }
    }
}

/// Makes the connection for messages.
pub(super) enum MessageDial {
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Endpoint(Box<Endpoint>),
}

impl MessageDial {
    pub(super) async fn connect(&self) -> Result<PubSub, RedisError> {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(server) => memory::messages(server).await,
            Self::Endpoint(endpoint) => endpoint.messages().await,
        }
    }

    /// Host and port.
    pub(super) fn address(&self) -> String {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(_) => "memory".to_owned(),
            Self::Endpoint(endpoint) => endpoint.address(),
        }
    }

    /// The number of the database.
    pub(super) fn database(&self) -> i64 {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(_) => 0,
            Self::Endpoint(endpoint) => endpoint.database(),
        }
    }

    /// The changes of the credentials, if they can change.
    pub(super) fn logins(&self) -> Option<watch::Receiver<Login>> {
        match self {
            Self::Endpoint(endpoint) => endpoint.logins(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
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

    pub(super) async fn commands(server: &MemoryServer) -> RedisResult<MultiplexedConnection> {
        // The store sets the time limit of every command.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let info = RedisConnectionInfo::default();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&info, server.connect()?, config).await?;
        task::spawn(driver);
        Ok(connection)
    }

    pub(super) async fn messages(server: &MemoryServer) -> RedisResult<PubSub> {
        PubSub::new(&RedisConnectionInfo::default(), server.connect()?).await
    }
}
