//! Going on through faults.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Engine;
use crate::jitter::Backoff;
use crate::store::Fault;

/// Pauses between tries that got no answer.
pub(crate) const PAUSES: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// Tries of something that may be tried again.
#[derive(Debug)]
pub(crate) struct Tries {
    pauses: Backoff,
    patience: Duration,
    /// Set by the first fault: most tries have none, and need not know what time it is.
    limit: Option<Instant>,
}

impl Tries {
    /// For as long as calls without a time limit are told to go on.
    pub(crate) const fn new(engine: &Engine) -> Self {
        Self::lasting(engine.config.retry_timeout)
    }

    const fn lasting(patience: Duration) -> Self {
        Self { pauses: PAUSES, patience, limit: None }
    }

    /// Pauses before the next try after a fault; or gives the fault back, if there shall be none.
    pub(crate) async fn again(&mut self, fault: Fault) -> Result<(), Fault> {
        let (pause, now) = (self.pauses.pause(), Instant::now());
        let limit = *self.limit.get_or_insert(now + self.patience);
        if !fault.is_transient() || now + pause > limit {
            return Err(fault);
        }
        sleep(pause).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{FaultKind, Sent};

    #[tokio::test(start_paused = true)]
    async fn the_time_for_tries_begins_with_the_first_fault() {
        let mut tries = Tries::lasting(Duration::from_secs(2));
        sleep(Duration::from_secs(60)).await; // the first of them
        let start = Instant::now();
        let broken = || Fault::new(FaultKind::Broken, Sent::Unknown, "broken");
        while tries.again(broken()).await.is_ok() {}
        let took = start.elapsed();
        assert!((Duration::from_secs(1)..=Duration::from_secs(2)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_not_tried_again() {
        let refused = Fault::new(FaultKind::WrongType, Sent::Refused, "refused");
        assert!(Tries::lasting(Duration::from_secs(2)).again(refused).await.is_err());
    }
}
