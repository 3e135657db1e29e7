//! One server, as the engine sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::dial::MessageDial;
use super::error::OpenError;
use super::listener::Listener;
use super::login;
use super::self_test::examine;
use super::server::{Connection, ConnectionIndex, Server};
use super::source::Source;
use super::subscriber::Subscriber;
use super::task::Task;
use crate::config::LockConfig;
use crate::fault::Fault;
use crate::protocol::{Call, Reply};

/// One Redis server.
pub(crate) struct Store {
    server: Arc<Server>,
    subscriber: Subscriber,
    command_timeout: Duration,
    run_id: Option<Box<str>>,
    database: Option<i64>,
    /// Host and port. Never a password.
    address: Arc<str>,
    /// Authenticates the connections when the credentials change.
    _login: Option<Task>,
}

impl Store {
    /// Connects, and checks that the server can run the scripts.
    pub(crate) async fn open(
        source: Source,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, OpenError> {
        let (commands, messages) = source.open(config).map_err(OpenError::Source)?;
        let address: Arc<str> = messages
            .as_ref()
            .map_or_else(|| "the server of a pool".into(), |messages| messages.address().into());
        let database = messages.as_ref().map(MessageDial::database);
        let logins = commands.logins();
        let server = Arc::new(Server::new(commands, Arc::clone(&address), config));
        let facts = examine(&server, config.name_prefix()).await?;
        let subscriber = Subscriber::start(messages, Arc::clone(&address), config, listener);
        Ok(Self {
            subscriber,
            command_timeout: config.command_timeout(),
            run_id: facts.run_id,
            database,
            address,
            _login: logins.map(|logins| login::follow(&server, logins)),
            server,
        })
    }

    /// The run id that the server reported when this store was opened: it identifies the server whatever its address is. `None`:
    /// this user has no right to ask.
    pub(crate) fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref()
    }

    /// The address of the server, for errors and events.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The number of the database, if it is known.
    pub(crate) const fn database(&self) -> Option<i64> {
        self.database
    }

    /// Selects the connection for commands about a key.
    pub(crate) fn connection_index(&self, key: &str) -> ConnectionIndex {
        self.server.connection_index(key)
    }

    /// Returns the connection with this index. Makes it if there is none.
    pub(crate) async fn connection(&self, index: ConnectionIndex) -> Result<Connection, Fault> {
        self.server.connection(index).await
    }

    /// Runs a script on a connection. The server receives the calls on one connection in the order in which they were first
    /// polled. If the future of a call is dropped, it is unknown whether the call runs. But it never runs after a later call on
    /// the same connection.
    pub(crate) async fn run(&self, connection: &Connection, call: &Call) -> Result<Reply, Fault> {
        self.server.run(self.command_timeout, connection, call).await
    }

    /// Runs a script with this time limit, if it is shorter than the time limit of other commands.
    pub(crate) async fn run_at_most(
        &self,
        limit: Duration,
        connection: &Connection,
        call: &Call,
    ) -> Result<Reply, Fault> {
        self.server.run(limit.min(self.command_timeout), connection, call).await
    }

    /// Begins to subscribe to a channel. [`Listener::subscribed`] tells when the subscription is active.
    pub(crate) fn subscribe(&self, channel: &Arc<str>) {
        self.subscriber.subscribe(channel);
    }

    pub(crate) fn unsubscribe(&self, channel: &Arc<str>) {
        self.subscriber.unsubscribe(channel);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.address)
    }
}
