//! Where the master is, for connections that follow it.

use std::sync::Mutex;

use crate::store::connection::Endpoint;
use crate::sync::{Watched, lock};

/// Where the master is, and how often that changed.
pub(crate) struct Master {
    endpoint: Mutex<Endpoint>,
    switches: Watched<u64>,
}

/// Stands for the end of the client: there will be no more switches.
const ENDED: u64 = u64::MAX;

impl Master {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint: Mutex::new(endpoint), switches: Watched::default() }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        lock(&self.endpoint).clone()
    }

    /// How often another server became the master.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.get()
    }

    /// Waits for a later switch than these. Returns their number. `None`: the client has ended.
    pub(crate) async fn switched(&self, since: u64) -> Option<u64> {
        self.switches.until(|switches| *switches > since).await;
        Some(self.switches.get()).filter(|switches| *switches != ENDED)
    }

    /// Another server is the master.
    pub(crate) fn switch(&self, to: Endpoint) {
        *lock(&self.endpoint) = to;
        self.switches.modify(|switches| *switches = switches.saturating_add(1));
    }

    /// Ends all that wait for a switch.
    pub(crate) fn end(&self) {
        self.switches.modify(|switches| *switches = ENDED);
    }
}
