//! Which of the connections to a server a command uses.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::config::LockConfig;

/// Selects one of the connections to a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionIndex(pub(super) usize);

impl ConnectionIndex {
    /// The number of connections.
    pub(super) fn count(config: &LockConfig) -> usize {
        config.connections() * if config.sync().is_some() { 2 } else { 1 }
    }

    /// Selects the connection for commands about a key.
    pub(super) fn of(key: &str, connections: usize) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self(usize::try_from(hasher.finish() % connections as u64).unwrap_or(0))
    }

    /// Selects the connection for acquires that wait for replicas, beside the one for other commands. A connection that waits runs
    /// nothing else.
    pub(super) const fn beside(self, connections: usize) -> Self {
        Self(self.0 + connections)
    }
}
