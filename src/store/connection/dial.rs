//! How connections to a server are made.

use std::panic::AssertUnwindSafe;

#[cfg(feature = "deadpool-redis")]
use deadpool::managed::Manager;
#[cfg(feature = "deadpool-redis")]
use deadpool_redis::{Connection as Pooled, Pool, PoolError};
use futures_util::FutureExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{FromRedisValue, PushInfo, RedisResult, cmd};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::client_name::ClientName;
use super::endpoint::Endpoint;
use super::multiplexed::Multiplexed;
use super::stream::StreamDial;
use super::topology_link::RunId;
use super::wire;
use crate::base::credentials::{Credentials, Login};
use crate::base::fault::{Fault, FaultKind, Sent};

/// Makes the connections to a server.
#[derive(Clone)]
pub(crate) enum Dial {
    Endpoint(Box<Endpoint>),
    #[cfg(feature = "deadpool-redis")]
    /// With the address of its server, if that is known.
    Pool(Pool, Option<Box<Endpoint>>),
    Stream(StreamDial),
}

impl Dial {
    /// Makes a connection for commands. `server`: its address, for events.
    pub(crate) async fn connect(&self, name: &ClientName, server: &str) -> Result<Multiplexed, Fault> {
        let connection = match self {
            Self::Endpoint(endpoint) => return connect_to_master(endpoint, name).await,
            #[cfg(feature = "deadpool-redis")]
            Self::Pool(pool, _) => match pool.get().await {
                Ok(connection) => Multiplexed::new(Pooled::take(connection), None),
                Err(PoolError::Backend(error)) => return Err(wire::connect_fault(error)),
                Err(error) => return Err(Fault::new(FaultKind::Unreachable, Sent::No, error)),
            },
            Self::Stream(stream) => stream.commands().await.map_err(wire::connect_fault)?,
        };
        named(connection, name, server).await
    }

    /// The same, but not an idle connection of a pool: another runtime drives it, which perhaps is blocked.
    pub(crate) async fn connect_beside_pool(
        &self,
        name: &ClientName,
        server: &str,
    ) -> Result<Multiplexed, Fault> {
        match self {
            #[cfg(feature = "deadpool-redis")]
            Self::Pool(pool, _) => {
                let connection = Manager::create(pool.manager()).await.map_err(wire::connect_fault)?;
                named(Multiplexed::new(connection, None), name, server).await
            }
            _ => self.connect(name, server).await,
        }
    }

    /// Makes a connection on which the server can push something, and puts it into `pushes`.
    pub(crate) async fn connect_with_pushes(
        &self,
        name: &ClientName,
        server: &str,
        pushes: &UnboundedSender<PushInfo>,
    ) -> Result<Multiplexed, Fault> {
        if let Self::Stream(stream) = self {
            let connection = stream.with_pushes(pushes.clone()).await.map_err(wire::connect_fault)?;
            return named(connection, name, server).await;
        }
        let unknown = || Fault::new(FaultKind::Unreachable, Sent::No, "a pool makes the connection");
        let endpoint = self.endpoint().ok_or_else(unknown)?;
        of_master(caught(endpoint.with_pushes(pushes.clone())).await?, endpoint, name).await
    }

    /// Makes a connection for messages.
    pub(crate) async fn messages(&self) -> RedisResult<PubSub> {
        match (self, self.endpoint()) {
            (Self::Stream(stream), _) => stream.messages().await,
            (_, Some(endpoint)) => endpoint.messages().await,
            (_, None) => Err(wire::broken("no address")), // `has_messages` says so before
        }
    }

    /// Whether it can make connections for messages. A pool does not tell its address.
    pub(crate) fn has_messages(&self) -> bool {
        matches!(self, Self::Stream(_)) || self.endpoint().is_some()
    }

    /// The id of the run of the server to which a connection leads. `None`: this user has no right to ask, or the application
    /// opens the connections.
    pub(crate) async fn run_id(&self, connection: &mut MultiplexedConnection) -> Option<RunId> {
        if matches!(self, Self::Stream(_)) {
            return None;
        }
        let info = wire::send(connection, cmd("INFO").arg("server")).await.ok()?;
        wire::info_fact(&String::from_redis_value(info).ok()?, "run_id")
    }

    /// `None`: only the application knows how to connect.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint),
            #[cfg(feature = "deadpool-redis")]
            Self::Pool(_, endpoint) => endpoint.as_deref(),
            Self::Stream(_) => None,
        }
    }

    /// The changes of the credentials, if they can change.
    pub(crate) fn logins(&self) -> Option<watch::Receiver<Login>> {
        match self {
            Self::Stream(stream) => stream.credentials.as_ref().map(Credentials::changes),
            _ => self.endpoint()?.logins(),
        }
    }
}

/// Connects to a server.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Multiplexed, Fault> {
    caught(endpoint.commands()).await
}

/// rustls panics if it cannot tell which provider to use. The panic becomes a fault of the connection.
async fn caught(
    connecting: impl Future<Output = RedisResult<Multiplexed>> + Send,
) -> Result<Multiplexed, Fault> {
    match AssertUnwindSafe(connecting).catch_unwind().await {
        Ok(connected) => connected.map_err(wire::connect_fault),
        Err(panic) => Err(wire::panic_fault(&*panic)),
    }
}

/// Connects to a server, and checks that it is a master.
pub(crate) async fn connect_to_master(endpoint: &Endpoint, name: &ClientName) -> Result<Multiplexed, Fault> {
    of_master(connect(endpoint).await?, endpoint, name).await
}

/// Names a connection, and learns the server's time on it.
async fn named(mut connection: Multiplexed, name: &ClientName, server: &str) -> Result<Multiplexed, Fault> {
    let replies =
        name.set_with(&[&cmd("TIME")], &mut connection.redis, server).await.map_err(wire::connect_fault)?;
    connection.clock.learn(&replies[0])?;
    Ok(connection)
}

/// The same, and checks that the connection leads to a master.
async fn of_master(
    mut connection: Multiplexed,
    endpoint: &Endpoint,
    name: &ClientName,
) -> Result<Multiplexed, Fault> {
    match name.set_with(&[&cmd("HELLO"), &cmd("TIME")], &mut connection.redis, &endpoint.address()).await {
        // Redis 5 and older do not know `HELLO`. The self-test refuses such a server later.
        Err(error) if wire::was_rejected(&wire::fault(error.clone())) => Ok(connection),
        Err(error) => Err(wire::connect_fault(error)),
        Ok(replies) => match replies.first().and_then(|reply| wire::hello_fact(reply, "role")) {
            Some(role) if role != "master" => Err(wire::not_a_master(&role)),
            _ => {
                connection.clock.learn(&replies[1])?;
                Ok(connection)
            }
        },
    }
}
