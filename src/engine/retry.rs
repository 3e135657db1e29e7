//! Going on through faults.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Engine;
use crate::jitter::Backoff;
use crate::store::Fault;

/// Pauses between tries that got no answer.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// Tries of something that may be tried again.
#[derive(Debug)]
pub(crate) struct Tries {
    pauses: Backoff,
    limit: Instant,
}

impl Tries {
    /// For as long as calls without a time limit are told to go on.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self::until(Instant::now() + engine.config.retry_timeout)
    }

    pub(crate) const fn until(limit: Instant) -> Self {
        Self { pauses: PAUSES, limit }
    }

    /// Pauses before the next try after a fault; or gives the fault back, if there shall be none.
    pub(crate) async fn again(&mut self, fault: Fault) -> Result<(), Fault> {
        let pause = self.pause();
        if !fault.is_transient() || Instant::now() + pause > self.limit {
            return Err(fault);
        }
        sleep(pause).await;
        Ok(())
    }

    /// How long to pause now.
    pub(crate) fn pause(&mut self) -> Duration {
        self.pauses.pause()
    }
}
