//! Commands to one server, over a few connections that stay open.
//!
//! The connections are multiplexed and are taken out of the pool once. The key of a lock selects its connection, so that the
//! commands about one lock stay in order. Nothing checks a connection before it is used: that would cost every command a round
//! trip. Instead, a connection is replaced after an error or a silence.

mod connection;
mod sending;

use std::error::Error;
use std::future::{poll_fn, ready};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use super::connection_index::{ConnectionCount, ConnectionIndex};
use super::dial::Dial;
use super::endpoint::{Endpoint, authenticate};
use super::multiplexed::Multiplexed;
use super::outbox::Outbox;
use super::topology_link::{RunId, TopologyLink};
use super::wire::{self, With};
use crate::base::config::{LockConfig, Replication};
use crate::base::credentials::Login;
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::sync::{MutexGuard, Watched, lock};
use crate::base::task;
use crate::base::timer::{Instant, timeout, timeout_at};
use crate::protocol::{Call, Reply};
use crate::store::task::Task;
use crate::telemetry::reconnects;
use crate::telemetry::report::Limit;
use sending::{Sender, Waiting};

pub(crate) use connection::Connection;

/// A connection on which a command timed out has this long to answer a `PING`. Otherwise it is replaced.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// The time limit of a new connection is a part of a lease, so that a failed try costs no lease. But the limit is no less than
/// this: the look-up of a name and the exchange of TLS keys take time.
const LEAST_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Callers that find the server unreachable within this time share one try.
const SHARED_FAILURE: Duration = Duration::from_millis(20);

pub(crate) struct Server {
    dial: Dial,
    address: Arc<str>,
    connections: Box<[Mutex<State>]>,
    count: ConnectionCount,
    command_timeout: Duration,
    connect_timeout: Duration,
    /// The runtime on which the client was made. The runtime of a caller can end earlier.
    runtime: Handle,
    replaced: Limit,
    /// The turn on each connection that waits for replicas.
    turns: Box<[Semaphore]>,
    link: Arc<TopologyLink>,
    /// One more than the generation in which the server refused a command about several slots. 0: it refused none.
    separates_slots: AtomicU64,
    /// 1: another server has taken its place.
    has_left: Watched,
    /// Authenticates the connections when the credentials change.
    _login: Option<Task>,
}

enum State {
    /// There is no connection. The last try failed with this fault.
    Closed(Option<(Instant, Fault)>),
    /// A connection is being made, for all callers that ask meanwhile.
    Connecting(Connecting),
    Open(Arc<Open>),
}

/// A task makes the connection: a caller that nobody polls must not delay the connection for others.
type Connecting = Shared<BoxFuture<'static, Result<Arc<Open>, Fault>>>;

struct Open {
    server: Weak<Server>,
    number: u64,
    generation: u64,
    connection: Multiplexed,
    /// The calls that wait. It is held while a probe asks whether the connection still works.
    outbox: Arc<Outbox<Waiting>>,
    /// Wakes the callers that wait for the end of the probe.
    probed: Notify,
    /// Sends the calls that wait.
    sender: Task,
}

impl Server {
    pub(crate) fn start(
        dial: Dial,
        address: Arc<str>,
        config: &LockConfig,
        count: ConnectionCount,
        link: &Arc<TopologyLink>,
    ) -> Arc<Self> {
        let command_timeout = config.command_timeout();
        let part_of_lease = LEAST_CONNECT_TIMEOUT.max(config.watchdog_lease() / 6);
        Arc::new_cyclic(|server| Self {
            _login: dial.logins().map(|logins| Task::spawn(authenticate_again(Weak::clone(server), logins))),
            dial,
            address,
            connections: count.all().map(|_| Mutex::new(State::Closed(None))).collect(),
            count,
            command_timeout,
            connect_timeout: command_timeout.min(part_of_lease),
            runtime: Handle::current(),
            replaced: Limit::default(),
            turns: count.all().map(|_| Semaphore::new(1)).collect(),
            link: Arc::clone(link),
            separates_slots: AtomicU64::new(0),
            has_left: Watched::default(),
        })
    }

    /// The address, for errors and events.
    pub(crate) const fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// How to connect to it. `None`: only the application knows.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        self.dial.endpoint()
    }

    /// Whether each command has to be about the keys of one slot.
    pub(crate) fn separates_slots(&self) -> bool {
        self.link.has_slots || self.separates_slots.load(Ordering::Relaxed) > self.link.generation()
    }

    /// From now on, each command has to be about the keys of one slot. A later generation can lead to another server.
    pub(crate) fn separate_slots(&self) {
        self.separates_slots.store(self.link.generation() + 1, Ordering::Relaxed);
    }

    /// Leaves the server: another one has taken its place. Commands in flight fail at once, and it is unknown whether
    /// they ran. No command is sent any more.
    pub(crate) fn leave(&self) {
        self.has_left.modify(|_| 1);
        for state in &self.connections {
            let before = std::mem::replace(&mut *lock(state), State::Closed(None));
            if let State::Open(open) = before {
                open.outbox.close(LEFT);
                // The callers of the commands in flight learn it at once.
                open.sender.end();
            }
        }
    }

    /// Sends a command other than a script.
    pub(crate) async fn ask(self: &Arc<Self>, command: &Cmd) -> Result<Value, Fault> {
        let connection = self.connection(ConnectionIndex::FIRST).await?;
        self.send(self.limit(), &connection, async |c| wire::send(c, command).await).await
    }

    /// Sends a command on every connection that is open or being made. Returns the last fault.
    pub(crate) async fn send_to_all(self: &Arc<Self>, command: &Cmd) -> Result<(), Fault> {
        let mut result = Ok(());
        for index in self.count.all() {
            let opened = match &*self.state(index) {
                State::Closed(_) => continue,
                State::Connecting(connecting) => connecting.clone().left_future(),
                State::Open(open) => ready(Ok(Arc::clone(open))).right_future(),
            };
            let Ok(open) = opened.await else { continue };
            let connection = Connection { open, index, is_asking: false };
            let sent = self.send(self.limit(), &connection, async |c| wire::send(c, command).await);
            result = sent.await.map(drop).and(result);
        }
        result
    }

    /// Runs a script that is about no lock.
    pub(crate) async fn run_first(self: &Arc<Self>, call: &Call) -> Result<Reply, Fault> {
        let connection = self.connection(ConnectionIndex::FIRST).await?;
        self.run(self.limit(), &connection, call).await
    }

    /// Runs a script, and waits until so many replicas have what it wrote. Also returns how many have it.
    ///
    /// A connection waits for one script at a time. If they were sent together, the time limit of each would include the waits of
    /// those before it. So each has its turn, in a task: a caller that nobody polls must not keep the turn.
    pub(crate) async fn run_on_replicas(
        self: &Arc<Self>,
        connection: &Connection,
        call: &Call,
        sync: Replication,
    ) -> Result<(Reply, u32), Fault> {
        let (server, connection, call) = (Arc::clone(self), connection.clone(), call.clone());
        let (done, result) = oneshot::channel();
        let _task = Task::spawn_on(&self.runtime, async move {
            let _turn = server.turns[server.count.position(connection.index)].acquire().await;
            // If the caller left while the call waited for its turn, its release may have run already. A call that runs
            // after this release would leave a lock that nobody releases.
            if done.is_closed() {
                return;
            }
            let _ = done.send(server.run_and_wait(&connection, &call, sync).await);
        });
        result.await.unwrap_or_else(|gone| Err(Fault::new(FaultKind::RuntimeGone, Sent::Unknown, gone)))
    }

    async fn run_and_wait(
        self: &Arc<Self>,
        connection: &Connection,
        call: &Call,
        sync: Replication,
    ) -> Result<(Reply, u32), Fault> {
        let limit = || TimeLimit::from_now(self.command_timeout + sync.timeout);
        let with = || With {
            is_asking: connection.is_asking,
            sync: Some(sync),
            valid_until: self.valid_until(connection, call),
        };
        let is_sharded = self.link.is_sharded();
        let by_hash = async |c: &mut _| wire::evaluate_by_hash(c, call, with(), is_sharded).await;
        let value = match self.send(limit(), connection, by_hash).await? {
            Some(value) => value,
            // With a new time limit: the first command perhaps used up most of its own, because the server waited for
            // replicas although it did not know the script.
            None => {
                let by_text = async |c: &mut _| wire::evaluate_by_text(c, call, with(), is_sharded).await;
                self.send(limit(), connection, by_text).await?
            }
        };
        match value {
            Value::Array(mut both) if both.len() == 2 => {
                let replicas = if let Some(Value::Int(replicas)) = both.pop() { replicas } else { 0 };
                Ok((wire::reply_to(call, both.swap_remove(0))?, u32::try_from(replicas).unwrap_or(0)))
            }
            other => Err(Fault::unexpected(&other)),
        }
    }

    /// Until when the server of this connection may run a call, if the call [expires](Call::expires).
    fn valid_until(&self, connection: &Connection, call: &Call) -> u64 {
        if call.expires() { connection.open.connection.clock.valid_until(self.command_timeout) } else { 0 }
    }

    fn limit(&self) -> TimeLimit {
        TimeLimit::from_now(self.command_timeout)
    }

    /// Returns a connection. Makes it if there is none.
    pub(crate) async fn connection(self: &Arc<Self>, index: ConnectionIndex) -> Result<Connection, Fault> {
        if let Some(connection) = self.opened(index) {
            return Ok(connection);
        }
        let open = self.connect(index).await?;
        Ok(Connection { open, index, is_asking: false })
    }

    /// The connection, if there is one that is not being probed.
    pub(crate) fn opened(&self, index: ConnectionIndex) -> Option<Connection> {
        let open = match &*self.state(index) {
            State::Open(open) if !open.outbox.is_held() => Arc::clone(open),
            _ => return None,
        };
        Some(Connection { open, index, is_asking: false })
    }

    /// Locks the state of a connection. Closes a connection of an earlier generation: perhaps it leads to another server than the later
    /// ones. What was entered for it is still sent there, like what is in flight: mostly it leads to the same server, and these calls do not fail.
    fn state(&self, index: ConnectionIndex) -> MutexGuard<'_, State> {
        let mut state = lock(&self.connections[self.count.position(index)]);
        if matches!(&*state, State::Open(open) if open.generation != self.link.generation()) {
            *state = State::Closed(None);
        }
        state
    }

    async fn connect(self: &Arc<Self>, index: ConnectionIndex) -> Result<Arc<Open>, Fault> {
        if self.has_left.get() > 0 {
            return Err(self.unreachable(LEFT));
        }
        // Both steps are done by tasks on the client's runtime, which have time limits of their own. The limits here
        // are for a runtime that nobody drives.
        timeout(2 * PROBE_TIMEOUT, self.probed(index)).await.map_err(|_| self.runtime_stands_still())?;
        let connecting = {
            let mut state = self.state(index);
            match &*state {
                State::Open(open) => return Ok(Arc::clone(open)),
                State::Closed(Some((at, fault))) if at.elapsed() < SHARED_FAILURE => {
                    return Err(fault.clone());
                }
                State::Connecting(connecting) => connecting.clone(),
                State::Closed(_) => {
                    // The task begins while the state is locked. So it cannot write its result before the state says
                    // `Connecting`.
                    let connecting = self.begin(index);
                    *state = State::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        timeout(2 * self.connect_limit(), connecting).await.map_err(|_| self.runtime_stands_still())?
    }

    /// The time limit of a new connection.
    fn connect_limit(&self) -> Duration {
        // The first connection may take longer than a later one: no lock is held yet, so no renewal waits for it.
        let is_first = self.link.connections_made() == 0;
        if is_first { self.command_timeout } else { self.connect_timeout }
    }

    /// Waits while a probe finds out whether the connection still works. A command sent on this connection meanwhile would only
    /// time out, too.
    async fn probed(&self, index: ConnectionIndex) {
        let open = match &*self.state(index) {
            State::Open(open) => Arc::clone(open),
            _ => return,
        };
        // Before the look, so the end of a probe in between is not missed.
        let probed = open.probed.notified();
        if open.outbox.is_held() {
            probed.await;
        }
    }

    /// The runtime that drives a connection.
    fn runtime_of(&self, index: ConnectionIndex) -> &Handle {
        if index.is_for_upkeep() { &self.link.upkeep.runtime } else { &self.runtime }
    }

    fn begin(self: &Arc<Self>, index: ConnectionIndex) -> Connecting {
        let server = Arc::clone(self);
        let task = task::spawn_on(self.runtime_of(index), async move {
            // A pool runs code of the application. A panic of this code would end the task, and the state would stay
            // `Connecting` for ever.
            let opened = AssertUnwindSafe(server.open(index)).catch_unwind().await;
            let result = opened.unwrap_or_else(|panic| Err(wire::panic_fault(&*panic).at(&server.address)));
            *server.state(index) = match &result {
                Ok(open) => State::Open(Arc::clone(open)),
                Err(fault) => State::Closed(Some((Instant::now(), fault.clone()))),
            };
            // Closes the connections of earlier generations.
            server.count.all().for_each(|index| drop(server.state(index)));
            result
        });
        let address = Arc::clone(&self.address);
        // Only the end of the runtime ends the task early.
        let gone = move |gone| Err(Fault::new(FaultKind::RuntimeGone, Sent::No, gone).at(&address));
        task.map(|result| result.unwrap_or_else(gone)).boxed().shared()
    }

    async fn open(self: &Arc<Self>, index: ConnectionIndex) -> Result<Arc<Open>, Fault> {
        // Read before the name is looked up: if the generation ends meanwhile, this connection counts as an old one.
        let generation = self.link.generation();
        let (connection, run) = match timeout(self.connect_limit(), self.dial(index)).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(fault)) => return Err(fault.at(&self.address)),
            Err(_) => return Err(self.unreachable("no connection in time")),
        };
        let generation = self.link.reaches(generation, run);
        let number = self.link.count_connection();
        tracing::debug!(server = %self.address, connection = number, "connected");
        let (outbox, entered) = Outbox::new();
        let outbox = Arc::new(outbox);
        let sender = Sender::new(self, &connection, &outbox, entered);
        let sender = Task::spawn_on(self.runtime_of(index), sender.run());
        let server = Arc::downgrade(self);
        Ok(Arc::new(Open { server, number, generation, connection, outbox, probed: Notify::new(), sender }))
    }

    /// Makes a connection. If the name can lead to another server, also asks which one this is.
    async fn dial(&self, index: ConnectionIndex) -> Result<(Multiplexed, Option<RunId>), Fault> {
        let mut connection = self.connect_for(index).await?;
        let run = if self.link.can_switch { None } else { self.dial.run_id(&mut connection.redis).await };
        Ok((connection, run))
    }

    /// Connects. A connection for renewals asks the server to tell which keys others change. Where that is refused, renewals go on as
    /// without it.
    async fn connect_for(&self, index: ConnectionIndex) -> Result<Multiplexed, Fault> {
        let (name, address) = (&*self.link.name, &self.address);
        if !index.is_for_upkeep() {
            return self.dial.connect(name, address).await;
        }
        let changes = &self.link.upkeep.changes;
        let mut connected = self.dial.connect_with_pushes(name, address, changes).await;
        if connected.is_err() {
            // A connection that breaks meanwhile looks like a refusal, and would tell of nothing until it ends.
            connected = self.dial.connect_with_pushes(name, address, changes).await;
        }
        let refusal = match connected {
            Ok(mut connection) => {
                let track = cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP").clone();
                match wire::send(&mut connection.redis, &track).await {
                    Ok(_) => {
                        self.link.told_of_changes();
                        return Ok(connection);
                    }
                    Err(error) if wire::is_broken(&error) => return Err(wire::connect_fault(error)),
                    Err(error) => wire::fault(error).to_string(),
                }
            }
            Err(fault) => fault.to_string(),
        };
        let connection = self.dial.connect_beside_pool(name, address).await?;
        if self.link.refuses_changes() {
            tracing::info!(
                server = %address, refusal,
                "the server does not tell when a lock is deleted, so a guard learns it at its next renewal"
            );
        }
        Ok(connection)
    }

    /// Sends one command. If the command fails, handles its connection.
    async fn send<T>(
        self: &Arc<Self>,
        TimeLimit { start, limit }: TimeLimit,
        connection: &Connection,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> redis::RedisResult<T>,
    ) -> Result<T, Fault> {
        let mut multiplexed = connection.open.connection.redis.clone();
        let mut running = pin!(command(&mut multiplexed));
        let mut polls = 0_u32;
        let can_leave = self.link.can_switch;
        let mut left = can_leave.then(|| Box::pin(self.has_left.until(|has_left| has_left > 0)));
        let counted = poll_fn(|context| {
            polls += 1;
            // Before the reply: from the moment when the server was left, no reply of it counts.
            let has_left = left.as_mut().is_some_and(|left| left.as_mut().poll(context).is_ready());
            if has_left { Poll::Ready(Err(wire::broken(LEFT))) } else { running.as_mut().poll(context) }
        });
        let command = self.link.commands.sends(start);
        let fault = match timeout_at(start + limit, counted).await {
            Ok(Ok(value)) => {
                command.ends(Ok(()));
                return Ok(value);
            }
            // The first poll hands the command to the connection's task, which answers later. If the call ended in the
            // first poll, that task was gone and took nothing.
            Ok(Err(error)) if polls == 1 && wire::is_broken(&error) => {
                Fault::new(FaultKind::Broken, Sent::No, error.to_string())
            }
            Ok(Err(error)) => wire::fault(error),
            Err(_) => Fault::new(FaultKind::TimedOut, Sent::Unknown, no_answer(limit)),
        }
        .at(&self.address);
        command.ends(Err(fault.sent));
        self.handle(&fault, connection);
        Err(fault)
    }

    /// Handles the fault of a command: perhaps the connection no longer works, or another server is the master.
    fn handle(self: &Arc<Self>, fault: &Fault, connection: &Connection) {
        match fault.kind {
            FaultKind::Broken => self.discard(connection, "it broke"),
            // After a failover, the name of the server can lead to the new master, so the next call looks it up again.
            FaultKind::ReadOnly => self.discard(connection, "it leads to a replica"),
            // The probe also begins if the call was never sent: it waited because earlier calls got no reply.
            FaultKind::TimedOut => self.probe(connection),
            _ => {}
        }
        if fault.is_transient() {
            self.link.report();
        }
    }

    /// Finds out in the background whether a connection is silent or the server is slow.
    fn probe(self: &Arc<Self>, connection: &Connection) {
        if connection.open.outbox.hold() {
            return;
        }
        let (server, connection) = (Arc::clone(self), connection.clone());
        task::spawn_on(self.runtime_of(connection.index), async move {
            let mut multiplexed = connection.open.connection.redis.clone();
            match timeout(PROBE_TIMEOUT, wire::send(&mut multiplexed, &cmd("PING"))).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => server.discard(&connection, "it broke"),
                Err(_) => server.discard(&connection, "it is silent"),
            }
            connection.open.outbox.go_on();
            connection.open.probed.notify_waiters();
        });
    }

    fn discard(&self, connection: &Connection, reason: &'static str) {
        let mut state = self.state(connection.index);
        let is_it = matches!(&*state, State::Open(open) if open.number == connection.number());
        let replaced = is_it.then(|| std::mem::replace(&mut *state, State::Closed(None)));
        drop(state);
        connection.open.outbox.close(reason);
        if replaced.is_some() {
            reconnects("commands").increment(1);
            if let Some(unreported) = self.replaced.ask() {
                tracing::info!(
                    server = %self.address, connection = connection.number(), reason, unreported,
                    "replacing a connection"
                );
            }
        }
        self.link.ends(connection.open.generation);
    }

    fn runtime_stands_still(&self) -> Fault {
        self.unreachable("the runtime on which the client was made does not run its tasks")
    }

    fn unreachable(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Fault {
        Fault::new(FaultKind::Unreachable, Sent::No, cause).at(&self.address)
    }
}

/// Authenticates the connections of a server with each change of the credentials.
async fn authenticate_again(server: Weak<Server>, mut logins: watch::Receiver<Login>) {
    // `changed` fails when the last `Credentials` is gone, so nobody can change them any more.
    while logins.changed().await.is_ok() {
        let login = logins.borrow_and_update().clone();
        let Some(server) = server.upgrade() else { return };
        if let Err(fault) = server.send_to_all(&authenticate(&login)).await {
            tracing::warn!(
                %fault, server = %server.address, user = &*login.user,
                "the server refuses the new credentials, so the connections stay as they are"
            );
        }
    }
}

/// The time limit of a command, which counts from `start`.
#[derive(Clone, Copy)]
pub(crate) struct TimeLimit {
    start: Instant,
    limit: Duration,
}

impl TimeLimit {
    pub(crate) fn from_now(limit: Duration) -> Self {
        Self { start: Instant::now(), limit }
    }

    /// Returns the rest of the limit, for a further command. `None`: the time is over.
    pub(crate) fn rest(self) -> Option<Self> {
        let start = Instant::now();
        let limit = (self.start + self.limit).saturating_duration_since(start);
        (!limit.is_zero()).then_some(Self { start, limit })
    }
}

/// Why a command was not sent, or its reply does not count.
const LEFT: &str = "another server is the master now";

fn no_answer(limit: Duration) -> String {
    format!("no answer within {}", humantime::format_duration(limit))
}
