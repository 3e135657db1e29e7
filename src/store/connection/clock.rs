//! The server's clock, as a connection knows it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::base::clock::{self, Moment};
use crate::base::fault::{Fault, FaultKind, Sent};

/// An older time is learned anew before an acquire: clocks are set.
const FRESH: Duration = Duration::from_secs(60);

/// The server's clock, as a connection knows it. The acquires that are sent on this connection end by it.
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

    /// Whether the time is to be learned anew before an acquire.
    pub(crate) fn is_old(&self) -> bool {
        self.ahead.load(Ordering::Acquire) == 0 || self.age() > FRESH
    }

    /// The last whole second of the server's clock in which it may run a command that is sent now.
    pub(crate) fn valid_until(&self, timeout: Duration) -> u64 {
        let now = clock::now();
        // Clocks drift, by less than a thousandth.
        let drift = self.age() / 1_024;
        let time = now.plus(Duration::from_nanos(self.ahead.load(Ordering::Acquire))).minus(drift);
        time.plus(timeout).as_nanos() / 1_000_000_000
    }

    fn age(&self) -> Duration {
        clock::now().since(Moment::from_nanos(self.learned.load(Ordering::Acquire)))
    }
}
