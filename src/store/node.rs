//! Commands to one server, over a few connections that are kept.
//!
//! The connections are multiplexed and come out of the pool once. The name of a lock picks its connection, so that
//! the commands about one lock stay in order. Nothing checks a connection before it is used: that would cost every
//! command a round trip. Instead, an error or a silence replaces it.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_redis::{Connection, Pool, PoolError};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::fault::{Fault, FaultKind, Sent};
use super::{OpenError, redis as wire};
use crate::config::LockConfig;
use crate::script::{Call, Reply};
use crate::sync::lock;

/// How long a connection that let a command time out may take to answer a `PING` before it is replaced.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// A connection that does not come about must not cost a lease, so it gets a part of one; but no less than this, as
/// names have to be looked up and keys exchanged.
const LEAST_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Callers that find the server unreachable within this time of one another share one try.
const SHARED_FAILURE: Duration = Duration::from_millis(20);

/// The first version with `#!lua` script flags; every Valkey has them.
const OLDEST_MAJOR: u64 = 7;

pub(super) struct Node {
    pool: Pool,
    lanes: Box<[Mutex<State>]>,
    command_timeout: Duration,
    connect_timeout: Duration,
    /// The one on which the client was made. That of a caller may end before.
    runtime: Handle,
    /// Connections made so far; numbers them.
    made: AtomicU64,
}

/// Which of the connections, by its index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane(usize);

enum State {
    /// There is no connection; the last could not be had for this reason.
    Closed(Option<(Instant, Fault)>),
    /// One is being made, for all who ask meanwhile.
    Connecting(Connecting),
    Open(Arc<Link>),
}

/// Made by a task of its own: a caller that is not polled any more must not keep others from their connection.
type Connecting = Shared<BoxFuture<'static, Result<Arc<Link>, Fault>>>;

struct Link {
    number: u64,
    connection: MultiplexedConnection,
    /// It let a command time out, and was asked whether it is still there.
    is_probed: AtomicBool,
    /// The probe has its answer.
    probed: Notify,
}

/// The connection that the commands about one lock take.
#[derive(Clone)]
pub(crate) struct Route {
    link: Arc<Link>,
    lane: Lane,
}

impl Route {
    /// Tells this connection from those before and after it.
    pub(crate) fn number(&self) -> u64 {
        self.link.number
    }
}

impl Node {
    pub(super) fn new(pool: Pool, config: &LockConfig) -> Self {
        Self {
            pool,
            lanes: (0..config.connections).map(|_| Mutex::new(State::Closed(None))).collect(),
            command_timeout: config.command_timeout,
            connect_timeout: config.command_timeout.min(LEAST_CONNECT_TIMEOUT.max(config.watchdog_lease / 6)),
            runtime: Handle::current(),
            made: AtomicU64::new(0),
        }
    }

    pub(super) async fn check_version(self: &Arc<Self>) -> Result<(), OpenError> {
        let route = self.route(Lane(0)).await.map_err(OpenError::Fault)?;
        let hello =
            match self.send(self.command_timeout, &route, async |c| wire::send(c, &cmd("HELLO")).await).await
            {
                // Redis 5 and older do not know the command.
                Err(fault) if fault.kind == FaultKind::Rejected && fault.sent == Sent::Refused => Value::Nil,
                result => result.map_err(OpenError::Fault)?,
            };
        let facts: std::collections::HashMap<String, Value> =
            FromRedisValue::from_redis_value(hello).unwrap_or_default();
        let version =
            facts.get("version").and_then(|v| String::from_redis_value_ref(v).ok()).unwrap_or_default();
        let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        if major < OLDEST_MAJOR { Err(OpenError::Unsupported { version }) } else { Ok(()) }
    }

    /// The server's own name for this run of it. `None`: this user may not ask.
    pub(super) async fn run_id(self: &Arc<Self>) -> Result<Option<Box<str>>, Fault> {
        let route = self.route(Lane(0)).await?;
        let mut question = cmd("INFO");
        question.arg("server");
        let answer = self.send(self.command_timeout, &route, async |c| wire::send(c, &question).await).await;
        let facts = match answer {
            Err(fault) if fault.sent == Sent::Refused => return Ok(None),
            answer => String::from_redis_value(answer?).unwrap_or_default(),
        };
        Ok(facts
            .lines()
            .find_map(|line| line.strip_prefix("run_id:"))
            .filter(|id| !id.is_empty())
            .map(Into::into))
    }

    pub(super) fn lane(&self, name: &str) -> Lane {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let lanes = self.lanes.len() as u64;
        Lane(usize::try_from(hasher.finish() % lanes).unwrap_or(0))
    }

    pub(super) async fn run(
        self: &Arc<Self>,
        limit: Duration,
        route: &Route,
        call: &Call,
    ) -> Result<Reply, Fault> {
        tracing::trace!(script = call.script.file, connection = route.number(), "running");
        let value =
            self.send(limit, route, async |connection| wire::evaluate(connection, call).await).await?;
        wire::reply(value)
    }

    pub(super) async fn route(self: &Arc<Self>, lane: Lane) -> Result<Route, Fault> {
        let link = match &*lock(self.state(lane)) {
            State::Open(link) if !link.is_probed.load(Ordering::Acquire) => Some(Arc::clone(link)),
            _ => None,
        };
        match link {
            Some(link) => Ok(Route { link, lane }),
            // Boxed, as it is rare, and large enough to weigh on every call.
            None => Box::pin(self.connect(lane)).await.map(|link| Route { link, lane }),
        }
    }

    fn state(&self, Lane(index): Lane) -> &Mutex<State> {
        &self.lanes[index]
    }

    async fn connect(self: &Arc<Self>, lane: Lane) -> Result<Arc<Link>, Fault> {
        self.probed(lane).await;
        let connecting = {
            let mut state = lock(self.state(lane));
            match &*state {
                State::Open(link) => return Ok(Arc::clone(link)),
                State::Closed(Some((at, fault))) if at.elapsed() < SHARED_FAILURE => {
                    return Err(fault.clone());
                }
                State::Connecting(connecting) => connecting.clone(),
                State::Closed(_) => {
                    // Begun with the lane locked, so that it can not end before the lane says that it began.
                    let connecting = self.begin(lane);
                    *state = State::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        connecting.await
    }

    /// Waits while a probe finds out whether the connection is still there: a command sent on it meanwhile would only
    /// time out, too.
    async fn probed(&self, lane: Lane) {
        let link = match &*lock(self.state(lane)) {
            State::Open(link) => Arc::clone(link),
            _ => return,
        };
        let mut probed = pin!(link.probed.notified());
        // Enlist first, then look: an answer in between is not missed.
        probed.as_mut().enable();
        if link.is_probed.load(Ordering::Acquire) {
            probed.await;
        }
    }

    fn begin(self: &Arc<Self>, lane: Lane) -> Connecting {
        let node = Arc::clone(self);
        let task = self.runtime.spawn(async move {
            // A pool runs code of the application, which may panic.
            let opened = AssertUnwindSafe(node.open()).catch_unwind().await;
            let result = opened.unwrap_or_else(|_| Err(unreachable("the pool panicked")));
            *lock(node.state(lane)) = match &result {
                Ok(link) => State::Open(Arc::clone(link)),
                Err(fault) => State::Closed(Some((Instant::now(), fault.clone()))),
            };
            result
        });
        task.map(|result| result.unwrap_or_else(|error| Err(unreachable(error)))).boxed().shared()
    }

    async fn open(&self) -> Result<Arc<Link>, Fault> {
        // With the first, no lock is held yet.
        let is_first = self.made.load(Ordering::Relaxed) == 0;
        let limit = if is_first { self.command_timeout } else { self.connect_timeout };
        let connection = match timeout(limit, self.pool.get()).await {
            Ok(Ok(connection)) => Connection::take(connection),
            Ok(Err(PoolError::Backend(error))) => return Err(wire::connect_fault(error)),
            Ok(Err(error)) => return Err(unreachable(error)),
            Err(elapsed) => return Err(unreachable(elapsed)),
        };
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(connection = number, "connected");
        Ok(Arc::new(Link { number, connection, is_probed: AtomicBool::new(false), probed: Notify::new() }))
    }

    /// Sends one command, and sees to its connection if that fails.
    async fn send(
        self: &Arc<Self>,
        limit: Duration,
        route: &Route,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> redis::RedisResult<Value>,
    ) -> Result<Value, Fault> {
        let mut connection = route.link.connection.clone();
        let mut running = pin!(command(&mut connection));
        let mut polls = 0_u32;
        let counted = poll_fn(|context| {
            polls += 1;
            running.as_mut().poll(context)
        });
        let fault = match timeout(limit, counted).await {
            Ok(Ok(value)) => return Ok(value),
            // A command is handed over in the first poll, and the connection's task answers after that. If all ended in
            // the first, that task was gone and took nothing.
            Ok(Err(error)) if polls == 1 && wire::is_broken(&error) => {
                Fault::new(FaultKind::Broken, Sent::No, error.to_string())
            }
            Ok(Err(error)) => wire::fault(error),
            Err(elapsed) => Fault::new(FaultKind::TimedOut, Sent::Unknown, elapsed),
        };
        match fault.kind {
            FaultKind::Broken => self.discard(route, "it broke"),
            // After a failover the address may lead elsewhere by now.
            FaultKind::ReadOnly => self.discard(route, "it leads to a replica"),
            FaultKind::TimedOut => self.probe(route),
            _ => {}
        }
        Err(fault)
    }

    /// A silent connection looks like a slow server. One probe, in the background, tells them apart.
    fn probe(self: &Arc<Self>, route: &Route) {
        if route.link.is_probed.swap(true, Ordering::AcqRel) {
            return;
        }
        let (node, route) = (Arc::clone(self), route.clone());
        self.runtime.spawn(async move {
            let mut connection = route.link.connection.clone();
            match timeout(PROBE_TIMEOUT, wire::send(&mut connection, &cmd("PING"))).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => node.discard(&route, "it broke"),
                Err(_) => node.discard(&route, "it is silent"),
            }
            route.link.is_probed.store(false, Ordering::Release);
            route.link.probed.notify_waiters();
        });
    }

    fn discard(&self, route: &Route, reason: &str) {
        let mut state = lock(self.state(route.lane));
        if matches!(&*state, State::Open(link) if link.number == route.number()) {
            *state = State::Closed(None);
            tracing::info!(
                lane = route.lane.0,
                connection = route.number(),
                reason,
                "replacing a connection"
            );
        }
    }
}

fn unreachable(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Fault {
    Fault::new(FaultKind::Unreachable, Sent::No, cause)
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({}/{})", self.lane.0, self.number())
    }
}
