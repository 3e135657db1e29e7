//! Timers, and the time that they count. They stand still while the host is suspended, other than [`clock`](super::clock).
//!
//! In a simulation, one process can be suspended while others go on. So it has timers of its own there.

#[cfg(feature = "unstable-simulation")]
pub(crate) use of_process::{Elapsed, Instant, sleep, sleep_until, timeout, timeout_at};
#[cfg(not(feature = "unstable-simulation"))]
pub(crate) use tokio::time::{Instant, error::Elapsed, sleep, sleep_until, timeout, timeout_at};

/// Waits until this time. Never ends without a time.
pub(crate) async fn elapsed(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Timers that are late by the time for which their process was suspended.
#[cfg(feature = "unstable-simulation")]
mod of_process {
    use std::ops::Add;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use tokio::task::unconstrained;
    use tokio::time;

    use crate::base::process::suspended;

    /// Longer than any wait.
    const FAR: Duration = Duration::from_secs(1 << 30);

    /// A point of the time that counts while the process is not suspended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Instant(time::Instant);

    impl Instant {
        pub(crate) fn now() -> Self {
            Self(time::Instant::now() - suspended())
        }

        pub(crate) fn elapsed(&self) -> Duration {
            Self::now().saturating_duration_since(*self)
        }

        pub(crate) fn saturating_duration_since(&self, earlier: Self) -> Duration {
            self.0.saturating_duration_since(earlier.0)
        }

        pub(crate) fn checked_add(self, time: Duration) -> Option<Self> {
            self.0.checked_add(time).map(Self)
        }

        /// This point by tokio's time, if the process is not suspended any more until then.
        fn by_tokio(self) -> time::Instant {
            self.0 + suspended()
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, time: Duration) -> Self {
            self.checked_add(time).unwrap_or(Self(self.0 + FAR))
        }
    }

    pub(crate) struct Sleep {
        until: Instant,
        timer: Pin<Box<time::Sleep>>,
    }

    impl Sleep {
        pub(crate) fn reset(mut self: Pin<&mut Self>, until: Instant) {
            self.until = until;
            self.timer.as_mut().reset(until.by_tokio());
        }
    }

    impl Future for Sleep {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let at = self.until.by_tokio();
            if self.timer.deadline() != at {
                self.timer.as_mut().reset(at);
            }
            self.timer.as_mut().poll(context)
        }
    }

    pub(crate) fn sleep(time: Duration) -> Sleep {
        sleep_until(Instant::now() + time)
    }

    pub(crate) fn sleep_until(until: Instant) -> Sleep {
        Sleep { until, timer: Box::pin(time::sleep_until(until.by_tokio())) }
    }

    /// The time was up first.
    #[derive(Debug)]
    pub(crate) struct Elapsed;

    pub(crate) fn timeout<F: IntoFuture>(
        limit: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> {
        timeout_at(Instant::now() + limit, future)
    }

    pub(crate) fn timeout_at<F: IntoFuture>(
        at: Instant,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> {
        let (future, timer) = (future.into_future(), sleep_until(at));
        async move {
            tokio::select! {
                biased;
                output = future => Ok(output),
                // As in tokio, without a budget. Otherwise a future that always uses up the budget would never time out.
                () = unconstrained(timer) => Err(Elapsed),
            }
        }
    }
}

#[cfg(all(test, feature = "unstable-simulation"))]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use super::*;
    use crate::base::clock;
    use crate::base::process::Process;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_timers_of_a_suspended_process_stand_still_and_its_clock_goes_on() {
        let process = Process::new(SECOND, 0);
        let waiting = tokio::spawn(process.run(async {
            let (start, by_clock) = (Instant::now(), clock::now());
            timeout(2 * SECOND, pending::<()>()).await.unwrap_err();
            sleep_until(start + 5 * SECOND).await;
            (start.elapsed(), clock::now().since(by_clock))
        }));
        for _ in 0..2 {
            sleep(SECOND).await;
            process.suspend();
            sleep(10 * SECOND).await;
            process.go_on();
        }
        assert_eq!(waiting.await.unwrap(), (5 * SECOND, 25 * SECOND));
    }
}
