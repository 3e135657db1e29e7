//! Random numbers. Clients that failed or started together must not continue together.

use std::time::Duration;

/// Draws a duration from `[0, span)`, uniformly.
pub(crate) fn within(span: Duration) -> Duration {
    span.mul_f64(fastrand::f64())
}

/// Draws a duration that differs from `time` by up to a fifth.
pub(crate) fn around(time: Duration) -> Duration {
    time.mul_f64(0.8 + 0.4 * fastrand::f64())
}

/// Draws a duration that is shorter than `time` by up to a third.
pub(crate) fn up_to(time: Duration) -> Duration {
    time.mul_f64(1.0 - fastrand::f64() / 3.0)
}

/// Pauses between tries. They double up to a limit, and each has jitter.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Self { next: first, most }
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = self.most.min(pause * 2);
        around(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee 8 says when a waiter asks at the latest.
    #[test]
    fn a_shorter_time_is_never_longer() {
        let drawn = (0..1_000).map(|_| up_to(Duration::from_secs(3)));
        assert!(
            drawn.into_iter().all(|time| (Duration::from_secs(2)..=Duration::from_secs(3)).contains(&time))
        );
    }

    #[test]
    fn pauses_double_up_to_the_limit() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(35));
        for expected in [10, 20, 35, 35] {
            let pause = backoff.pause().as_secs_f64() * 1e3;
            assert!((0.79..1.21).contains(&(pause / f64::from(expected))), "{pause} for {expected}");
        }
    }
}
