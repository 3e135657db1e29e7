//! Where the master is, for connections that follow it.

use std::sync::Mutex;

use super::endpoint::Endpoint;
use crate::base::sync::{Watched, lock};

/// Where the master is, and how often that changed.
pub(super) struct Master {
    endpoint: Mutex<Endpoint>,
    switches: Watched<u64>,
}

/// Stands for the end of the client: there will be no more switches.
const ENDED: u64 = u64::MAX;

impl Master {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint: Mutex::new(endpoint), switches: Watched::default() }
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        lock(&self.endpoint).clone()
    }

    /// How often another server became the master.
    pub(super) fn switches(&self) -> u64 {
        self.switches.get()
    }

    /// Waits for a later switch than these. Returns their number. `None`: the client has ended.
    pub(super) async fn switched(&self, since: u64) -> Option<u64> {
        self.switches.until(|switches| *switches > since).await;
        Some(self.switches.get()).filter(|switches| *switches != ENDED)
    }

    /// Another server is the master.
    pub(super) fn switch(&self, to: Endpoint) {
        *lock(&self.endpoint) = to;
        self.switches.modify(|switches| *switches = switches.saturating_add(1));
    }

    /// Ends all that wait for a switch.
    pub(super) fn end(&self) {
        self.switches.modify(|switches| *switches = ENDED);
    }
}
