//! Where the commands about a key go.

use super::connection_index::ConnectionIndex;

/// Where the commands about a key go: to the master of its slot, on one of the connections to that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// Without a cluster, all keys are in slot 0.
    pub(crate) slot: u16,
    pub(crate) index: ConnectionIndex,
}

impl Route {
    /// One command can be about several keys if their slots are the same.
    pub(crate) const fn slot(self) -> u16 {
        self.slot
    }
}
