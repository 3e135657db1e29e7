//! The seam to Redis: the only place that knows it.
//!
//! The engine asks a [`Store`] to run a script and to hear channels, and gets data back.

mod fault;
mod node;
mod redis;
mod source;
mod subscriber;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use fault::{Fault, FaultKind, Sent};
pub(crate) use node::{Lane, Route};
pub use source::Source;
pub(crate) use source::SourceError;

use crate::config::LockConfig;
use crate::script::{Call, Reply};
use node::Node;
use subscriber::Subscriber;

/// What the store tells of the channels it was asked to hear. Called from its own task: never blocks.
pub(crate) trait Listener: Send + Sync + 'static {
    /// The channel is heard from now on: what is published after this is not missed, until [`Self::deaf`].
    fn hearing(&self, channel: &str);

    /// Somebody published on the channel.
    fn message(&self, channel: &str, payload: &[u8]);

    /// The connection is gone: messages may be missed on all channels until [`Self::hearing`].
    fn deaf(&self);
}

/// One Redis server.
#[derive(Debug)]
pub(crate) struct Store {
    node: Arc<Node>,
    subscriber: Subscriber,
    command_timeout: Duration,
    server: Option<Box<str>>,
    database: Option<i64>,
}

#[derive(Debug)]
pub(crate) enum OpenError {
    Fault(Fault),
    Source(SourceError),
    Unsupported { version: String },
}

impl Store {
    /// Connects, and checks that the server can run the scripts.
    pub(crate) async fn open(
        source: Source,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, OpenError> {
        let (pool, address) = source.open(config).map_err(OpenError::Source)?;
        let node = Arc::new(Node::new(pool, config));
        node.check_version().await?;
        let server = node.run_id().await.map_err(OpenError::Fault)?;
        let database = address.as_ref().map(|client| client.get_connection_info().redis_settings().db());
        let subscriber = Subscriber::start(address, config, listener);
        Ok(Self { node, subscriber, command_timeout: config.command_timeout, server, database })
    }

    /// What the server called itself when this was opened, whatever its address is: its run id, if it may be asked.
    pub(crate) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The number of the database, if it is known.
    pub(crate) const fn database(&self) -> Option<i64> {
        self.database
    }

    /// Which of the connections is for commands about `name`.
    pub(crate) fn lane(&self, name: &str) -> Lane {
        self.node.lane(name)
    }

    /// The connection of a lane, made anew if there is none.
    pub(crate) async fn route(&self, lane: Lane) -> Result<Route, Fault> {
        self.node.route(lane).await
    }

    /// Runs a script on a connection. Calls on one route are received by the server in the order in which they
    /// were first polled. A dropped future may have run or not, but does not run after a later call on its route.
    pub(crate) async fn run(&self, route: &Route, call: &Call) -> Result<Reply, Fault> {
        self.run_within(self.command_timeout, route, call).await
    }

    /// The same, with a time-out of its own.
    pub(crate) async fn run_within(
        &self,
        limit: Duration,
        route: &Route,
        call: &Call,
    ) -> Result<Reply, Fault> {
        self.node.run(limit, route, call).await
    }

    /// Begins to listen on a channel; [`Listener::hearing`] tells when it does.
    pub(crate) fn hear(&self, channel: &Arc<str>) {
        self.subscriber.hear(channel);
    }

    pub(crate) fn unhear(&self, channel: &Arc<str>) {
        self.subscriber.unhear(channel);
    }
}
