//! The only room that knows Redis. The engine asks a [`Store`] to run a script and to subscribe to channels, and gets plain data
//! back.
//!
//! # How it works
//!
//! A [`Store`] owns a [`Topology`], which knows the master of each slot, and the [`Subscriptions`]. It is the same for a single
//! server, a Sentinel group and a cluster: a single server is a topology whose map never changes.
//!
//! Imports between the folders run downwards only:
//!
//! | folder | what it does |
//! |---|---|
//! | `source/` | reads what the user named: URLs, a file, a pool, certificates. Examines a server before it is used |
//! | `messages/` | subscribes to channels, on one connection for each master that has some |
//! | `topology/` | knows who is the master of a slot, and follows redirects |
//! | `connection/` | sends commands to one server, and knows what became of each |

mod connection;
mod error;
mod messages;
mod source;
mod task;
mod topology;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, PushInfo, PushKind, cmd};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::connection::{ConnectionIndex, Server, TimeLimit, Upkeep, wire};
use self::messages::Subscriptions;
use self::source::first_contact;
use self::source::self_test::{Examined, examine};
use self::task::Task;
use self::topology::{Answer, Group, Topology};
use crate::base::config::{LockConfig, Replication};
use crate::base::error::{ConfigError, Error};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::sync::{Watched, lock};
use crate::base::thread::Thread;
use crate::protocol::{Call, RELEASED, Reply, self_test_keys};

pub(crate) use connection::{ClientName, Connection, Route, identity};
pub(crate) use error::OpenError;
pub(crate) use messages::Listener;
pub(crate) use source::Identity;
pub use source::Source;

/// What a server says, unasked, of the keys that a renewal has read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// Somebody changed or deleted this key.
    Of(&'a str),
    /// Perhaps any of them: the server deleted everything, or the connection on which it tells was lost.
    Unknown,
}

/// Learns of changes. It runs on the thread for renewals, so it must not block.
type Told = Box<dyn Fn(Change<'_>) + Send>;

/// The servers of a client.
pub(crate) struct Store {
    topology: Arc<Topology>,
    subscriptions: Arc<Subscriptions>,
    command_timeout: Duration,
    identity: Mutex<Identity>,
    /// The version that the server reported.
    version: String,
    refuses_undeclared: Option<String>,
    /// Drives the connections for renewals.
    thread: Thread,
    /// Ask who the masters are, move subscriptions to them, and tell which keys others changed.
    _tasks: [Option<Task>; 3],
}

impl Store {
    /// Connects, and checks that the server can run the scripts.
    pub(crate) async fn open(
        source: Source,
        config: &LockConfig,
        name: &Arc<ClientName>,
        listener: Arc<dyn Listener>,
        told: Told,
    ) -> Result<Self, OpenError> {
        let group = source.open(config)?;
        let thread = if config.watchdog_thread() { Thread::start() } else { Ok(Thread::of_caller()) };
        let thread = thread.map_err(|error| {
            ConfigError::new("watchdog_thread", format!("the system starts no thread: {error}"))
        })?;
        match Self::connect(group.clone(), config, name, (listener, told), thread).await {
            Err(OpenError::Fault(fault)) => {
                let endpoint = group.endpoint_named(fault.server());
                Err(OpenError::Fault(first_contact::explained(fault, endpoint.as_ref()).await))
            }
            result => result,
        }
    }

    async fn connect(
        group: Group,
        config: &LockConfig,
        name: &Arc<ClientName>,
        (listener, told): (Arc<dyn Listener>, Told),
        thread: Thread,
    ) -> Result<Self, OpenError> {
        let (changes, changed) = unbounded_channel();
        let upkeep = Upkeep { runtime: thread.runtime().clone(), changes };
        let (topology, watch) = Topology::open(group, config, name, upkeep).await?;
        let server = examined_server(&topology, config)?;
        let Examined { identity, is_sharded, version, refuses_undeclared } =
            examine(&server, config, topology.group.is_cluster()).await?;
        if is_sharded {
            topology.link.shard_messages();
        }
        let (subscriptions, moves) = Subscriptions::new(&topology, config, listener);
        let changes = Task::spawn_on(thread.runtime(), tell_changes(changed, told));
        Ok(Self {
            subscriptions,
            topology,
            command_timeout: config.command_timeout(),
            identity: Mutex::new(identity),
            version,
            refuses_undeclared,
            thread,
            _tasks: [watch, moves, Some(changes)],
        })
    }

    /// The thread on which the connections for renewals are driven.
    pub(crate) const fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Whether a server tells which keys others change.
    pub(crate) fn tells_changes(&self) -> bool {
        self.topology.link.tells_changes()
    }

    /// Tells when another server becomes the master. `None`: that cannot be.
    pub(crate) fn switches(&self) -> Option<Arc<Watched>> {
        self.can_switch().then(|| Arc::clone(&self.topology.switches))
    }

    /// How often another server became the master.
    pub(crate) fn switch_count(&self) -> u64 {
        self.topology.switches.get()
    }

    /// Whether another server can become the master, perhaps without the last writes.
    pub(crate) fn can_switch(&self) -> bool {
        self.topology.group.can_switch()
    }

    /// What identifies the server whatever its address is.
    pub(crate) fn identity(&self) -> Identity {
        lock(&self.identity).clone()
    }

    /// Examines the server that became the master, like the one with which this store was opened.
    pub(crate) async fn examine_master(&self, config: &LockConfig) {
        let examined =
            async { examine(&examined_server(&self.topology, config)?, config, self.is_cluster()).await };
        match examined.await {
            Ok(Examined { identity, .. }) => lock(&self.identity).add(identity),
            Err(OpenError::Lasting(Error::UnsupportedServer { version, server, problem })) => {
                tracing::error!(server, version, problem, "the new master cannot run lockkeeper's scripts");
            }
            Err(error) => tracing::debug!(?error, "the new master was not examined"),
        }
    }

    /// The version that the server reported when this store was opened.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// How the server refuses a key that a script uses and `KEYS` does not have. `None`: it allows that.
    pub(crate) fn refuses_undeclared(&self) -> Option<&str> {
        self.refuses_undeclared.as_deref()
    }

    /// Whether all keys of a command must be in one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        self.topology.group.is_cluster()
    }

    /// Whether each command to the server of these keys has to be about the keys of one slot.
    pub(crate) fn separates_slots(&self, route: Route) -> bool {
        self.topology.server(route.slot).is_some_and(|server| server.separates_slots())
    }

    /// The server of these keys refused a command about several slots.
    pub(crate) fn separate_slots(&self, route: Route) {
        if let Some(server) = self.topology.server(route.slot) {
            server.separate_slots();
        }
    }

    /// Whether messages stay in their slots.
    pub(crate) fn is_sharded(&self) -> bool {
        self.topology.link.is_sharded()
    }

    /// The address of the server of these keys, for errors and events.
    pub(crate) fn address(&self, route: Route) -> Arc<str> {
        let server = self.topology.server(route.slot);
        server.map_or_else(|| "a slot without a server".into(), |server| Arc::clone(server.address()))
    }

    /// The number of the database, if it is known.
    pub(crate) fn database(&self) -> Option<i64> {
        self.topology.group.database()
    }

    /// Finds out where the commands about a key go.
    pub(crate) fn route(&self, key: &str) -> Route {
        Route { slot: self.topology.slot(key), index: ConnectionIndex::of(key) }
    }

    /// Where commands about no key go, to reach each master once.
    pub(crate) fn routes_to_all(&self) -> Vec<Route> {
        let slots = self.topology.map().one_slot_of_each();
        slots.into_iter().map(|slot| Route { slot, index: ConnectionIndex::FIRST }).collect()
    }

    /// What each master tells of itself: its address, and the text of `INFO`.
    pub(crate) async fn info(&self) -> Result<Vec<(Arc<str>, String)>, Fault> {
        self.ask_all(&cmd("INFO")).await.into_iter().collect()
    }

    /// The names of the connections to each master: for each client, its id and its identity. An error of a master is among them.
    pub(crate) async fn named_clients(&self) -> Vec<Result<Vec<(String, String)>, Fault>> {
        let lists = self.ask_all(cmd("CLIENT").arg("LIST")).await;
        let names = |(_, list): (_, String)| {
            let names = list.lines().filter_map(connection::in_line);
            names.map(|(client, identity)| (client.to_owned(), identity.to_owned())).collect()
        };
        lists.into_iter().map(|list| list.map(names)).collect()
    }

    /// The keys that a pattern describes, of all masters. Looks at a thousand keys with each command.
    pub(crate) async fn keys(&self, pattern: &str) -> Result<Vec<String>, Fault> {
        let masters = self.routes_to_all().into_iter().filter_map(|route| self.topology.server(route.slot));
        let scan = async |server: Arc<Server>| {
            let (mut keys, mut cursor) = (Vec::new(), 0_u64);
            loop {
                let mut command = cmd("SCAN");
                command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
                let reply = server.ask(&command).await?;
                let part = <(u64, Vec<String>)>::from_redis_value_ref(&reply);
                let (next, found) = part.map_err(|_| Fault::unexpected(&reply))?;
                keys.extend(found);
                if next == 0 {
                    return Ok::<_, Fault>(keys);
                }
                cursor = next;
            }
        };
        let all: Result<Vec<_>, _> = join_all(masters.map(scan)).await.into_iter().collect();
        Ok(all?.concat())
    }

    /// Asks each master. Returns its address and the text that it answers.
    async fn ask_all(&self, command: &Cmd) -> Vec<Result<(Arc<str>, String), Fault>> {
        let masters = self.routes_to_all().into_iter().filter_map(|route| self.topology.server(route.slot));
        let ask = async |server: Arc<Server>| {
            let reply = server.ask(command).await?;
            let text = String::from_redis_value_ref(&reply).map_err(|_| Fault::unexpected(&reply))?;
            Ok((Arc::clone(server.address()), text))
        };
        join_all(masters.map(ask)).await
    }

    /// Returns the connection for acquires that wait for replicas, beside the one for other commands.
    pub(crate) async fn connection_of_acquires(&self, route: Route) -> Result<Connection, Fault> {
        let index = route.index.beside();
        self.connection(Route { index, ..route }).await
    }

    /// Returns the connection for renewals, beside the one for other commands. If it cannot be made, because the server has no place for
    /// it or refuses new credentials, returns the other one, if that is open.
    pub(crate) async fn connection_of_upkeep(&self, route: Route) -> Result<Connection, Fault> {
        let index = route.index.for_upkeep();
        let own = self.connection(Route { index, ..route }).await;
        own.or_else(|fault| self.topology.opened(route).ok_or(fault))
    }

    /// Returns the connection for commands about a key, if there is one.
    pub(crate) fn opened(&self, route: Route) -> Option<Connection> {
        self.topology.opened(route)
    }

    /// Returns the connection for commands about a key. Makes it if there is none.
    pub(crate) async fn connection(&self, route: Route) -> Result<Connection, Fault> {
        if let Some(connection) = self.topology.opened(route) {
            return Ok(connection);
        }
        // Boxed: this is rare, and the size of this future would burden every call.
        Box::pin(self.topology.connection(route)).await
    }

    /// Runs a script on a connection. The server receives the calls about one lock in the order in which they were first polled. Calls
    /// about other locks can come before them. If the future of a call is dropped, it is unknown whether the call runs. But it never
    /// runs after a later call about the same lock on the same connection.
    pub(crate) fn run<'a>(
        &'a self,
        connection: &'a Connection,
        call: &'a Call,
    ) -> impl Future<Output = Result<Reply, Fault>> + 'a {
        self.run_at_most(self.command_timeout, connection, call)
    }

    /// Runs a script, and waits until so many replicas have what it wrote. Also returns how many have it. If the future is dropped
    /// before the script was sent, it is not sent. `hops`: see [`run_and_follow`](Self::run_and_follow).
    pub(crate) async fn run_on_replicas(
        &self,
        connection: &Connection,
        call: &Call,
        sync: Replication,
        hops: &mut (dyn FnMut(&Connection) + Send),
    ) -> Result<(Reply, u32), Fault> {
        match connection.server()?.run_on_replicas(connection, call, sync).await {
            Err(fault) if fault.is_followed() => {
                self.topology.follow(fault, Answer::OnReplicas(sync), connection, call, hops).await
            }
            result => result,
        }
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

    /// Runs a script. If the server of the connection redirects the call, because another one has the key by now, runs it there. `hops`
    /// learns each further connection before the script is sent on it.
    pub(crate) async fn run_and_follow(
        &self,
        limit: Duration,
        connection: &Connection,
        call: &Call,
        hops: &mut (dyn FnMut(&Connection) + Send),
    ) -> Result<Reply, Fault> {
        let limit = TimeLimit::from_now(limit);
        match connection.server()?.run(limit, connection, call).await {
            // Boxed: this is rare, and the size of this future would burden every call.
            Err(fault) if fault.is_followed() => {
                let following = self.topology.follow(fault, Answer::Within(limit), connection, call, hops);
                Box::pin(following).await.map(|(reply, _)| reply)
            }
            result => result,
        }
    }

    /// Runs a script that publishes on a channel. A node to which a key of a moving slot has moved runs the script, but those who listen
    /// still listen at the node that has the slot. So they are told there, too, whatever the reply says: perhaps an earlier try released the
    /// lock, and its caller was dropped before it told them.
    pub(crate) async fn run_and_tell(
        &self,
        connection: &Connection,
        call: &Call,
        channel: &Arc<str>,
    ) -> Result<Reply, Fault> {
        let mut is_moving = false;
        let hops = &mut |hop: &Connection| is_moving = hop.is_asking;
        let reply = if connection.index.waits() {
            // This connection runs one script at a time. The release waits for its turn, so that its time limit does
            // not include the waits of other scripts. Boxed: this is rare, and the size of this future would burden
            // every call.
            Box::pin(self.run_on_replicas(connection, call, Replication::NONE, hops)).await?.0
        } else {
            self.run_and_follow(self.command_timeout, connection, call, hops).await?
        };
        if is_moving && self.is_sharded() {
            let tell =
                async { connection.server()?.ask(cmd("SPUBLISH").arg(&**channel).arg(RELEASED)).await };
            // This fault does not make the release fail. A waiter that is not told looks again by itself.
            if let Err(fault) = tell.await {
                tracing::warn!(channel = &**channel, %fault, "waiters were not told of a release in a slot that moves");
            }
        }
        Ok(reply)
    }

    /// Begins to subscribe to a channel. [`Listener::subscribed`] tells when the subscription is active.
    pub(crate) fn subscribe(&self, channel: &Arc<str>) {
        self.subscriptions.subscribe(channel);
    }

    pub(crate) fn unsubscribe(&self, channel: &Arc<str>) {
        self.subscriptions.unsubscribe(channel);
    }
}

/// The fault of a command that a script ran, from the error that the script returned as text.
pub(crate) fn fault_in_script(error: &str) -> Fault {
    Fault::new(wire::caught(error), Sent::Refused, error)
}

/// The server that can run the self-test.
fn examined_server(topology: &Topology, config: &LockConfig) -> Result<Arc<Server>, OpenError> {
    let none = || Fault::new(FaultKind::Unavailable, Sent::No, "no server has the slot of the self-test");
    let server = topology.server(topology.slot(&self_test_keys(config.name_prefix())[0]));
    Ok(server.ok_or_else(none)?)
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

/// Tells what servers push on the connections for renewals.
async fn tell_changes(mut pushes: UnboundedReceiver<PushInfo>, told: Told) {
    while let Some(PushInfo { kind, data }) = pushes.recv().await {
        match (kind, data.first()) {
            (PushKind::Invalidate, Some(redis::Value::Array(keys))) => {
                let keys = keys.iter().filter_map(|key| String::from_redis_value_ref(key).ok());
                keys.for_each(|key| told(Change::Of(&key)));
            }
            (PushKind::Invalidate | PushKind::Disconnection, _) => told(Change::Unknown),
            _ => {}
        }
    }
}
