//! A connection for commands, with the task that drives it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;

use super::clock::Clock;
use crate::store::task::Task;

/// A connection for commands. It is closed when its last clone is dropped, although replies are missing. Otherwise it could still
/// deliver a command much later.
#[derive(Clone)]
pub(crate) struct Multiplexed {
    pub(crate) redis: MultiplexedConnection,
    /// The server's clock, as this connection knows it.
    pub(super) clock: Arc<Clock>,
    _driver: Option<Arc<Task>>,
}

impl Multiplexed {
    /// `driver`: drives the connection, if the library does not.
    pub(super) fn new(redis: MultiplexedConnection, driver: Option<Task>) -> Self {
        Self { redis, clock: Arc::default(), _driver: driver.map(Arc::new) }
    }
}
