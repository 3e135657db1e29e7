//! Commands to one server, over a few connections that are kept.
//!
//! The connections are multiplexed and come out of the pool once. The name of a lock picks its connection, so that
//! the commands about one lock stay in order. Nothing checks a connection before it is used: that would cost every
//! command a round trip. Instead, an error or a silence replaces it.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_redis::{Connection, Pool, PoolError};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Value, cmd};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};

use super::fault::{Fault, FaultKind, Sent};
use super::{OpenError, redis as wire};
use crate::config::LockConfig;
use crate::script::{Call, Reply};
use crate::sync::lock;

/// How long a connection that let a command time out may take to answer a `PING` before it is replaced.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// Callers that find the server unreachable within this time of one another share one try.
const SHARED_FAILURE: Duration = Duration::from_millis(20);

/// The first version with `#!lua` script flags; every Valkey has them.
const OLDEST_MAJOR: u64 = 7;

pub(super) struct Node {
    pool: Pool,
    lanes: Box<[Lane]>,
    command_timeout: Duration,
    /// Connections made so far; numbers them.
    made: AtomicU64,
}

#[derive(Default)]
struct Lane {
    current: Mutex<Option<Arc<Link>>>,
    /// Held by whoever connects; remembers the last failure for those who waited meanwhile.
    connecting: AsyncMutex<Option<(Instant, Fault)>>,
}

struct Link {
    number: u64,
    connection: MultiplexedConnection,
    is_probed: AtomicBool,
}

/// The connection that the commands about one lock take.
#[derive(Clone)]
pub(crate) struct Route {
    link: Arc<Link>,
    lane: usize,
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
            lanes: (0..config.connections).map(|_| Lane::default()).collect(),
            command_timeout: config.command_timeout,
            made: AtomicU64::new(0),
        }
    }

    pub(super) async fn check_version(self: &Arc<Self>) -> Result<(), OpenError> {
        let route = self.connect(0).await.map_err(OpenError::Fault)?;
        let hello = match self.send(&route, async |c| wire::send(c, &cmd("HELLO")).await).await {
            // Redis 5 and older do not know the command.
            Err(fault) if fault.kind == FaultKind::Rejected && fault.sent == Sent::No => Value::Nil,
            result => result.map_err(OpenError::Fault)?,
        };
        let facts: std::collections::HashMap<String, Value> =
            FromRedisValue::from_redis_value(hello).unwrap_or_default();
        let version =
            facts.get("version").and_then(|v| String::from_redis_value_ref(v).ok()).unwrap_or_default();
        let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        if major < OLDEST_MAJOR { Err(OpenError::Unsupported { version }) } else { Ok(()) }
    }

    pub(super) async fn route(self: &Arc<Self>, name: &str) -> Result<Route, Fault> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let lanes = self.lanes.len() as u64;
        self.connect(usize::try_from(hasher.finish() % lanes).unwrap_or(0)).await
    }

    pub(super) async fn run(self: &Arc<Self>, route: &Route, call: &Call) -> Result<Reply, Fault> {
        tracing::trace!(script = call.script.file, connection = route.number(), "running");
        let value = self.send(route, async |connection| wire::evaluate(connection, call).await).await?;
        wire::reply(value)
    }

    async fn connect(&self, lane_number: usize) -> Result<Route, Fault> {
        let lane = &self.lanes[lane_number];
        let route = |link| Route { link, lane: lane_number };
        if let Some(link) = lane.current() {
            return Ok(route(link));
        }
        let mut last_failure = lane.connecting.lock().await;
        if let Some(link) = lane.current() {
            return Ok(route(link)); // somebody connected while we waited for our turn
        }
        if let Some((at, fault)) = &*last_failure
            && at.elapsed() < SHARED_FAILURE
        {
            return Err(fault.clone());
        }
        match self.open().await {
            Ok(connection) => {
                let number = self.made.fetch_add(1, Ordering::Relaxed);
                let link = Arc::new(Link { number, connection, is_probed: AtomicBool::new(false) });
                *lock(&lane.current) = Some(Arc::clone(&link));
                *last_failure = None;
                tracing::debug!(lane = lane_number, connection = number, "connected");
                Ok(route(link))
            }
            Err(fault) => {
                *last_failure = Some((Instant::now(), fault.clone()));
                Err(fault)
            }
        }
    }

    async fn open(&self) -> Result<MultiplexedConnection, Fault> {
        match timeout(self.command_timeout, self.pool.get()).await {
            Ok(Ok(connection)) => Ok(Connection::take(connection)),
            Ok(Err(PoolError::Backend(error))) => Err(wire::connect_fault(error)),
            Ok(Err(error)) => Err(Fault::new(FaultKind::Unreachable, Sent::No, error)),
            Err(elapsed) => Err(Fault::new(FaultKind::Unreachable, Sent::No, elapsed)),
        }
    }

    /// Sends one command, and sees to its connection if that fails.
    async fn send(
        self: &Arc<Self>,
        route: &Route,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> redis::RedisResult<Value>,
    ) -> Result<Value, Fault> {
        let mut connection = route.link.connection.clone();
        let fault = match timeout(self.command_timeout, command(&mut connection)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => wire::fault(error),
            Err(elapsed) => Fault::new(FaultKind::TimedOut, Sent::Unknown, elapsed),
        };
        match fault.kind {
            FaultKind::Broken => self.discard(route, "it broke"),
            FaultKind::TimedOut => self.probe(route),
            _ => {}
        }
        Err(fault)
    }

    /// A silent connection looks like a slow server. One probe at a time tells them apart, beside the callers, so
    /// that none of them waits for it.
    fn probe(self: &Arc<Self>, route: &Route) {
        if route.link.is_probed.swap(true, Ordering::Relaxed) {
            return;
        }
        let (node, route) = (Arc::clone(self), route.clone());
        tokio::spawn(async move {
            let mut connection = route.link.connection.clone();
            match timeout(PROBE_TIMEOUT, wire::send(&mut connection, &cmd("PING"))).await {
                Ok(Ok(_)) => route.link.is_probed.store(false, Ordering::Relaxed),
                Ok(Err(_)) => node.discard(&route, "it broke"),
                Err(_) => node.discard(&route, "it is silent"),
            }
        });
    }

    fn discard(&self, route: &Route, reason: &str) {
        let mut current = lock(&self.lanes[route.lane].current);
        if current.as_ref().is_some_and(|link| link.number == route.number()) {
            *current = None;
            tracing::info!(lane = route.lane, connection = route.number(), reason, "replacing a connection");
        }
    }
}

impl Lane {
    fn current(&self) -> Option<Arc<Link>> {
        lock(&self.current).clone()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({}/{})", self.lane, self.number())
    }
}
