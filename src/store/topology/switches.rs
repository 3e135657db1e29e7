//! Switches: another server becomes the master.

use std::sync::Arc;

use crate::base::sync::Watched;

/// Counts the switches of a topology.
#[derive(Clone, Default)]
pub(super) struct SwitchCount(Arc<Watched>);

/// Stands for the end of the topology: there will be no more switches.
const ENDED: u64 = u64::MAX;

impl SwitchCount {
    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }

    pub(super) fn count(&self) {
        self.0.modify(|switches| switches.saturating_add(1));
    }

    /// Waits for a later switch than these. Returns their number. `None`: the topology has ended.
    pub(super) async fn later_than(&self, seen: u64) -> Option<u64> {
        self.0.until(|switches| switches > seen).await;
        Some(self.get()).filter(|switches| *switches != ENDED)
    }

    /// Ends all that wait for a switch.
    pub(super) fn end(&self) {
        self.0.modify(|_| ENDED);
    }

    /// Tells of each switch from now on.
    pub(super) fn subscribe(&self) -> Switches {
        Switches { count: self.clone(), seen: self.get() }
    }
}

/// Tells when another server becomes the master.
pub(crate) struct Switches {
    count: SwitchCount,
    seen: u64,
}

impl Switches {
    /// Waits for the next switch. False: the store is gone.
    pub(crate) async fn next(&mut self) -> bool {
        let next = self.count.later_than(self.seen).await;
        self.seen = next.unwrap_or(self.seen);
        next.is_some()
    }
}
