//! A connection for commands, with the task that drives it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use redis::aio::MultiplexedConnection;

use super::clock::Clock;
use crate::store::task::Task;

/// A connection for commands. It is closed when its last clone is dropped, although replies are missing. Otherwise it could still
/// deliver a command much later.
#[derive(Clone)]
pub(crate) struct Multiplexed {
    connection: MultiplexedConnection,
    /// `None`: the library ends the task.
    _driver: Option<Arc<Task>>,
    clock: Arc<Clock>,
}

impl Multiplexed {
    pub(super) fn new(
        connection: MultiplexedConnection,
        driver: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self { connection, _driver: Some(Arc::new(Task::spawn(driver))), clock: Arc::default() }
    }

    /// The server's clock, as this connection knows it.
    pub(super) const fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }
}

impl From<MultiplexedConnection> for Multiplexed {
    fn from(connection: MultiplexedConnection) -> Self {
        Self { connection, _driver: None, clock: Arc::default() }
    }
}

impl Deref for Multiplexed {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.connection
    }
}

impl DerefMut for Multiplexed {
    fn deref_mut(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }
}
