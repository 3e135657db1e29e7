//! Retrying after faults.

use std::time::Duration;

use crate::base::fault::{Fault, FaultKind};
use crate::base::jitter::Backoff;
use crate::base::timer::{Instant, sleep};

/// The pauses between tries.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    /// After a connection that broke or was refused: perhaps the next one works at once.
    broken: Backoff,
    /// After a command that timed out: perhaps the server has too much to do already.
    late: Backoff,
}

impl Pauses {
    pub(crate) const START: Self = Self {
        broken: Backoff::new(Duration::from_millis(5), Duration::from_millis(500)),
        late: Backoff::new(Duration::from_millis(100), Duration::from_secs(3)),
    };

    pub(crate) fn after(&mut self, fault: &Fault) -> Duration {
        if fault.kind == FaultKind::TimedOut { self.late.pause() } else { self.broken.pause() }
    }
}

/// Tries of one operation.
#[derive(Debug)]
pub(crate) struct Tries {
    pauses: Pauses,
    patience: Duration,
    /// Set by the first fault. Most operations have none, and need not read the clock.
    limit: Option<Instant>,
}

impl Tries {
    /// Tries for this long after the first fault.
    pub(crate) const fn new(patience: Duration) -> Self {
        Self { pauses: Pauses::START, patience, limit: None }
    }

    /// Pauses before the next try after a fault. Returns the fault if there is to be no further try.
    pub(crate) async fn again(&mut self, fault: Fault) -> Result<(), Fault> {
        let (pause, now) = (self.pauses.after(&fault), Instant::now());
        let limit = *self.limit.get_or_insert(now + self.patience);
        if !fault.is_transient() || now + pause > limit {
            return Err(fault);
        }
        sleep(pause).await;
        Ok(())
    }
}

/// Tries until it succeeds, for this long after the first fault.
pub(crate) async fn retried<T, F>(patience: Duration, operation: impl Fn() -> F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let mut tries = Tries::new(patience);
    loop {
        match operation().await {
            Err(fault) => tries.again(fault).await?,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fault::Sent;

    #[tokio::test(start_paused = true)]
    async fn the_time_for_retries_begins_with_the_first_fault() {
        let mut tries = Tries::new(Duration::from_secs(2));
        sleep(Duration::from_secs(60)).await; // the first try takes long
        let start = Instant::now();
        let broken = || Fault::new(FaultKind::Broken, Sent::Unknown, "broken");
        while tries.again(broken()).await.is_ok() {}
        let took = start.elapsed();
        assert!((Duration::from_secs(1)..=Duration::from_secs(2)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_operation_is_not_retried() {
        let refused = Fault::new(FaultKind::WrongType, Sent::Refused, "refused");
        assert!(Tries::new(Duration::from_secs(2)).again(refused).await.is_err());
    }
}
