//! Tells when another server becomes the master.

use std::sync::Arc;

use crate::base::sync::Watched;

/// Stands for the end of the topology: there will be no more switches.
pub(super) const ENDED: u64 = u64::MAX;

/// Tells of each switch from now on.
pub(crate) struct Switches {
    count: Arc<Watched>,
    seen: u64,
}

impl Switches {
    pub(crate) fn of(count: &Arc<Watched>) -> Self {
        Self { seen: count.get(), count: Arc::clone(count) }
    }

    /// Waits for the next switch. False: the store is gone.
    pub(crate) async fn next(&mut self) -> bool {
        let seen = self.seen;
        self.count.until(|switches| switches > seen).await;
        self.seen = self.count.get();
        self.seen != ENDED
    }
}
