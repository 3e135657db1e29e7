//! The server of a client, as the engine sees it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use redis::{FromRedisValue, cmd};
use tokio::time::Instant;

use super::connection::{Connection, ConnectionCount, ConnectionIndex, MessageDial, Route, Server, follow};
use super::error::OpenError;
use super::messages::{Listener, Subscriber, Subscriptions};
use super::source::self_test::{self, Examined, examine};
use super::source::{Identity, Opened, Source, first_contact};
use super::task::Task;
use super::topology::{Master, Topology};
use crate::config::{LockConfig, Replication};
use crate::fault::{Fault, FaultKind, Sent};
use crate::protocol::{Call, Reply, slot};
use crate::sync::lock;

/// One Redis server, or several of which some are masters.
pub(crate) struct Store {
    servers: Servers,
    subscriptions: Subscriptions,
    command_timeout: Duration,
    identity: Mutex<Identity>,
    database: Option<i64>,
    /// Authenticates the connections when the credentials change, or looks for the master.
    _task: Option<Task>,
}

enum Servers {
    One(Arc<Server>),
    Several(Arc<Topology>),
}

/// Tells when another server becomes the master.
pub(crate) struct Switches {
    master: Arc<Master>,
    seen: u64,
}

impl Switches {
    /// Waits for the next switch. False: the store is gone.
    pub(crate) async fn next(&mut self) -> bool {
        let next = self.master.switched(self.seen).await;
        self.seen = next.unwrap_or(self.seen);
        next.is_some()
    }
}

impl Store {
    /// Connects, and checks that the server can run the scripts.
    pub(crate) async fn open(
        source: Source,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, OpenError> {
        let opened = source.open(config)?;
        let endpoint_of = opened.endpoints();
        match Self::connect(opened, config, listener).await {
            Err(OpenError::Fault(fault)) => {
                let endpoint = endpoint_of(fault.server());
                Err(OpenError::Fault(first_contact::explained(fault, endpoint.as_ref()).await))
            }
            result => result,
        }
    }

    async fn connect(
        opened: Opened,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, OpenError> {
        let (servers, messages, task) = match opened {
            Opened::One(commands, messages) => {
                let address = messages.as_ref().map(|messages| messages.address().into());
                let address = address.unwrap_or_else(|| "the server of a pool".into());
                let logins = commands.logins();
                let server =
                    Arc::new(Server::new(commands, address, config, ConnectionCount::of(config, 1), None));
                let task = logins.map(|logins| follow(&server, logins));
                (Servers::One(server), messages, task)
            }
            Opened::Several(group) => {
                let (topology, task) = Topology::open(group, config).await?;
                let messages = MessageDial::Master(Arc::clone(topology.master()));
                (Servers::Several(topology), Some(messages), Some(task))
            }
        };
        let server = servers.examined(config).map_err(OpenError::Fault)?;
        let Examined { identity, is_sharded } = examine(&server, config, servers.is_cluster()).await?;
        let database = messages.as_ref().map(MessageDial::database);
        let subscriptions = match &servers {
            Servers::Several(topology) if topology.is_cluster() => {
                if is_sharded {
                    topology.membership().shard_messages();
                }
                Subscriptions::sharded(topology, config, listener)
            }
            _ => {
                let address = Arc::clone(server.address());
                Subscriptions::One(Subscriber::start(messages, address, config, listener))
            }
        };
        Ok(Self {
            subscriptions,
            servers,
            command_timeout: config.command_timeout(),
            identity: Mutex::new(identity),
            database,
            _task: task,
        })
    }

    /// Tells when another server becomes the master. `None`: that cannot be.
    pub(crate) fn switches(&self) -> Option<Switches> {
        let Servers::Several(topology) = &self.servers else { return None };
        let master = Arc::clone(topology.master());
        Some(Switches { seen: master.switches(), master })
    }

    /// How often another server became the master.
    pub(crate) fn switch_count(&self) -> u64 {
        match &self.servers {
            Servers::One(_) => 0,
            Servers::Several(topology) => topology.master().switches(),
        }
    }

    /// Whether another server can become the master, perhaps without the last writes.
    pub(crate) const fn can_switch(&self) -> bool {
        matches!(self.servers, Servers::Several(_))
    }

    /// What identifies the server whatever its address is.
    pub(crate) fn identity(&self) -> Identity {
        lock(&self.identity).clone()
    }

    /// Examines the server that became the master, like the one with which this store was opened.
    pub(crate) async fn examine_master(&self, config: &LockConfig) {
        let examined = async {
            let master = self.servers.examined(config).map_err(OpenError::Fault)?;
            examine(&master, config, self.is_cluster()).await
        };
        match examined.await {
            Ok(Examined { identity, .. }) => lock(&self.identity).add(identity),
            Err(OpenError::Unsupported { version, server, problem }) => {
                tracing::error!(server, version, problem, "the new master cannot run lockkeeper's scripts");
            }
            Err(error) => tracing::debug!(?error, "the new master was not examined"),
        }
    }

    /// Whether all keys of a command must be in one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        self.servers.is_cluster()
    }

    /// Whether messages stay in their slots.
    pub(crate) fn is_sharded(&self) -> bool {
        match &self.servers {
            Servers::One(_) => false,
            Servers::Several(topology) => topology.membership().is_sharded(),
        }
    }

    /// The address of the server of these keys, for errors and events.
    pub(crate) fn address(&self, route: Route) -> Arc<str> {
        let server = self.servers.master(route.slot);
        server.map_or_else(|| "a slot without a server".into(), |server| Arc::clone(server.address()))
    }

    /// The number of the database, if it is known.
    pub(crate) const fn database(&self) -> Option<i64> {
        self.database
    }

    /// Finds out where the commands about a key go.
    pub(crate) fn route(&self, key: &str) -> Route {
        let slot = if self.is_cluster() { slot(key) } else { 0 };
        Route { slot, index: ConnectionIndex::of(key) }
    }

    /// Where commands about no key go, to reach each master once.
    pub(crate) fn routes_to_all(&self) -> Vec<Route> {
        let slots = match &self.servers {
            Servers::Several(topology) if self.is_cluster() => topology.map().one_slot_of_each(),
            _ => vec![0],
        };
        slots.into_iter().map(|slot| Route { slot, index: ConnectionIndex::FIRST }).collect()
    }

    /// What each master tells of itself: its address, and the text of `INFO`.
    pub(crate) async fn info(&self) -> Result<Vec<(Arc<str>, String)>, Fault> {
        let masters = self.routes_to_all().into_iter().filter_map(|route| self.servers.master(route.slot));
        let ask = async |server: Arc<Server>| {
            let reply = server.ask(&cmd("INFO")).await?;
            let info = String::from_redis_value_ref(&reply).map_err(|_| Fault::unexpected(&reply))?;
            Ok((Arc::clone(server.address()), info))
        };
        try_join_all(masters.map(ask)).await
    }

    /// Returns the connection for acquires that wait for replicas, beside the one for other commands.
    pub(crate) async fn connection_of_acquires(&self, route: Route) -> Result<Connection, Fault> {
        let index = route.index.beside();
        self.connection(Route { index, ..route }).await
    }

    /// Returns the connection for commands about a key. Makes it if there is none.
    pub(crate) async fn connection(&self, route: Route) -> Result<Connection, Fault> {
        if let Some(connection) = self.servers.opened(route) {
            return Ok(connection);
        }
        // Boxed: this is rare, and its size would burden every call.
        match &self.servers {
            Servers::One(server) => Box::pin(server.connection(route.index)).await,
            Servers::Several(topology) => Box::pin(topology.connection(route)).await,
        }
    }

    /// Runs a script on a connection. The server receives the calls on one connection in the order in which they were first
    /// polled. If the future of a call is dropped, it is unknown whether the call runs. But it never runs after a later call on
    /// the same connection.
    pub(crate) fn run<'a>(
        &'a self,
        connection: &'a Connection,
        call: &'a Call,
    ) -> impl Future<Output = Result<Reply, Fault>> + 'a {
        self.run_at_most(self.command_timeout, connection, call)
    }

    /// Runs a script, and waits until so many replicas have what it wrote. Also returns how many have it. If the future is dropped
    /// before the script was sent, it is not sent.
    pub(crate) async fn run_on_replicas(
        &self,
        connection: &Connection,
        call: &Call,
        sync: Replication,
    ) -> Result<(Reply, u32), Fault> {
        match &self.servers {
            Servers::One(server) => server.run_on_replicas(connection, call, sync).await,
            Servers::Several(topology) => topology.run_on_replicas(connection, call, sync).await,
        }
    }

    /// Runs a script that can create a hold. `hops` learns each further connection before the script is sent on it: another server can
    /// have the key by now.
    pub(crate) async fn run_first_acquire(
        &self,
        connection: &Connection,
        call: &Call,
        hops: &mut (dyn FnMut(&Connection) + Send),
    ) -> Result<Reply, Fault> {
        self.run_and_follow(self.command_timeout, connection, call, hops).await
    }

    /// Runs a script with this time limit, if it is shorter than the time limit of other commands.
    pub(crate) async fn run_at_most(
        &self,
        limit: Duration,
        connection: &Connection,
        call: &Call,
    ) -> Result<Reply, Fault> {
        self.run_and_follow(limit.min(self.command_timeout), connection, call, &mut |_| {}).await
    }

    /// Runs a script. If the server of the connection sends the caller on, runs it there.
    async fn run_and_follow(
        &self,
        limit: Duration,
        connection: &Connection,
        call: &Call,
        hops: &mut (dyn FnMut(&Connection) + Send),
    ) -> Result<Reply, Fault> {
        let follows = match &self.servers {
            Servers::One(_) => None,
            Servers::Several(topology) => Some((topology, Instant::now() + limit)),
        };
        match (connection.run(limit, call).await, follows) {
            // Boxed: this is rare, and its size would burden every call.
            (Err(fault), Some((topology, ends))) if fault.redirect.is_some() => {
                Box::pin(topology.follow(fault, ends, connection, call, hops)).await
            }
            (result, _) => result,
        }
    }

    /// Runs scripts whose keys have the same master, in one write. Returns the result of each. What the server refuses is sent once
    /// again by itself, which follows redirects. So these must be scripts that can run twice.
    pub(crate) async fn run_together(
        &self,
        limit: Duration,
        connection: &Connection,
        calls: &[Call],
    ) -> Vec<Result<Reply, Fault>> {
        let limit = limit.min(self.command_timeout);
        let one = async |call| self.run_at_most(limit, connection, call).await;
        let (Some(server), [_, _, ..]) = (connection.server(), calls) else {
            return join_all(calls.iter().map(one)).await;
        };
        match server.run_together(limit, connection, calls).await {
            Ok(mut results) => {
                let is_refused =
                    |result: &Result<_, Fault>| matches!(result, Err(fault) if fault.sent == Sent::Refused);
                let refused = calls.iter().zip(&mut results).filter(|(_, result)| is_refused(result));
                join_all(refused.map(async |(call, result)| *result = one(call).await)).await;
                results
            }
            Err(fault) => calls.iter().map(|_| Err(fault.clone())).collect(),
        }
    }

    /// Begins to subscribe to a channel. [`Listener::subscribed`] tells when the subscription is active.
    pub(crate) fn subscribe(&self, channel: &Arc<str>) {
        self.subscriptions.subscribe(channel);
    }

    pub(crate) fn unsubscribe(&self, channel: &Arc<str>) {
        self.subscriptions.unsubscribe(channel);
    }
}

impl Servers {
    /// The server that is the master of a slot, if that is known.
    fn master(&self, slot: u16) -> Option<Arc<Server>> {
        match self {
            Self::One(server) => Some(Arc::clone(server)),
            Self::Several(topology) => topology.server(slot),
        }
    }

    /// The server that can run the self-test.
    fn examined(&self, config: &LockConfig) -> Result<Arc<Server>, Fault> {
        let slot = if self.is_cluster() { slot(&self_test::key(config)) } else { 0 };
        let none = || Fault::new(FaultKind::Unavailable, Sent::No, "no server has the slot of the self-test");
        self.master(slot).ok_or_else(none)
    }

    /// The connection for these keys, if there is one.
    fn opened(&self, route: Route) -> Option<Connection> {
        match self {
            Self::One(server) => server.opened(route.index),
            Self::Several(topology) => topology.server(route.slot)?.opened(route.index),
        }
    }

    fn is_cluster(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::Several(topology) => topology.is_cluster(),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}
