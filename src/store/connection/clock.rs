//! The server's clock, as a connection knows it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::base::clock::{self, Moment};
use crate::base::fault::{Fault, FaultKind, Sent};

/// An older time is learned anew before a call that expires: clocks are set.
const FRESH: Duration = Duration::from_secs(60);

/// The server's clock, as a connection knows it. The calls that expire end by it.
///
/// A server told its time before its reply arrived. So what is computed from the reply is never later than the server's clock at that
/// moment, if that was not set back.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// By how much it is ahead of this client's clock, in nanoseconds. 0: the server has not told its time.
    ahead: AtomicU64,
    /// The client's time when the reply arrived.
    learned: AtomicU64,
}

impl Clock {
    /// Learns the time from a reply to `TIME` that has just arrived.
    pub(crate) fn learn(&self, reply: &Value) -> Result<(), Fault> {
        let now = clock::now().as_nanos();
        let (seconds, micros) =
            <(String, u64)>::from_redis_value_ref(reply).map_err(|_| Fault::unexpected(reply))?;
        // Scripts compare seconds as text.
        let parsed = seconds.parse::<u64>().ok().filter(|_| seconds.len() == 10);
        let parsed = parsed.ok_or_else(|| {
            let problem = format!("the server's clock is wrong: it says {seconds} s since 1970");
            Fault::new(FaultKind::Configuration, Sent::No, problem)
        })?;
        let time = (parsed * 1_000_000 + micros) * 1_000;
        self.ahead.store(time.saturating_sub(now), Ordering::Release);
        self.learned.store(now, Ordering::Release);
        Ok(())
    }

    /// Whether the time is to be learned anew before a call that expires.
    pub(crate) fn is_old(&self) -> bool {
        self.ahead.load(Ordering::Acquire) == 0 || self.age(clock::now()) > FRESH
    }

    /// The last whole second of the server's clock in which it may run a command that is sent now.
    pub(crate) fn valid_until(&self, timeout: Duration) -> u64 {
        let now = clock::now();
        // Clocks drift, by less than a thousandth.
        let drift = self.age(now) / 1_024;
        let time = now.plus(Duration::from_nanos(self.ahead.load(Ordering::Acquire))).minus(drift);
        time.plus(timeout).as_nanos() / 1_000_000_000
    }

    fn age(&self, now: Moment) -> Duration {
        now.since(Moment::from_nanos(self.learned.load(Ordering::Acquire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: &str) -> Value {
        Value::Array([seconds, "250000"].map(|text| Value::BulkString(text.into())).to_vec())
    }

    #[test]
    fn a_command_is_valid_for_its_whole_time_and_less_than_a_second_longer() {
        let clock = Clock::default();
        assert!(clock.is_old());
        clock.learn(&time("1700000000")).unwrap();
        assert!(!clock.is_old());
        // A server is late when its whole seconds are greater.
        let valid_until = [0, 700, 760, 3_000].map(|ms| clock.valid_until(Duration::from_millis(ms)));
        assert_eq!(valid_until, [1_700_000_000, 1_700_000_000, 1_700_000_001, 1_700_000_003]);
    }

    #[test]
    fn a_server_whose_seconds_have_not_ten_digits_is_refused() {
        for seconds in ["999999999", "10000000000", "-100000000", "x"] {
            let fault = Clock::default().learn(&time(seconds)).unwrap_err();
            assert_eq!((fault.kind, fault.sent), (FaultKind::Configuration, Sent::No), "{seconds}");
        }
    }

    /// Also if the client's clock is fast.
    #[cfg(feature = "unstable-simulation")]
    #[tokio::test(start_paused = true)]
    async fn no_computed_time_is_later_than_that_of_the_server() {
        let before = clock::ProcessClock::start(Duration::from_secs(60), 800).enter();
        let clock = Clock::default();
        clock.learn(&time("1700000000")).unwrap();
        tokio::time::advance(Duration::from_secs(59) + Duration::from_millis(749)).await;
        assert!(!clock.is_old());
        assert_eq!(clock.valid_until(Duration::ZERO), 1_700_000_059);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(clock.is_old());
        clock::ProcessClock::leave(before);
    }
}
