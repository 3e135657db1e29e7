//! How connections to a server are made.

use deadpool_redis::{Connection as Pooled, Pool, PoolError};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Client, RedisError};

#[cfg(feature = "memory")]
use crate::memory::MemoryServer;

/// Makes the connections for commands.
pub(super) enum CommandDial {
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Pool(Pool),
}

impl CommandDial {
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, PoolError> {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(server) => memory::commands(server).await.map_err(PoolError::Backend),
            Self::Pool(pool) => pool.get().await.map(Pooled::take),
        }
    }
}

/// Makes the connection for messages.
pub(super) enum MessageDial {
    #[cfg(feature = "memory")]
    Memory(MemoryServer),
    Server(Box<Client>),
}

impl MessageDial {
    pub(super) async fn connect(&self) -> Result<PubSub, RedisError> {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(server) => memory::messages(server).await,
            Self::Server(client) => client.get_async_pubsub().await,
        }
    }

    /// Host and port.
    pub(super) fn address(&self) -> String {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(_) => "memory".to_owned(),
            Self::Server(client) => client.get_connection_info().addr().to_string(),
        }
    }

    /// The number of the database.
    pub(super) fn database(&self) -> i64 {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(_) => 0,
            Self::Server(client) => client.get_connection_info().redis_settings().db(),
        }
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
