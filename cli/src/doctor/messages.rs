//! Whether a message wakes a waiter when the lock is released.

use std::time::Duration;

use futures_util::future::try_join;
use lockkeeper::{Error, LockClient, LockOptions, Result};
use tokio::time::{Instant, sleep};

use super::finding::Finding;

/// How many hand-offs are measured. The median stands stalls.
const HAND_OFFS: usize = 5;

/// A waiter that attempts only after this time has to be woken by a message.
pub(super) const SAFETY_POLL: Duration = Duration::from_secs(3_600);

/// A waiter that is not woken in this time has got no message.
const LONGEST: Duration = Duration::from_secs(2);

/// If the holder cannot release the lock, nobody needs to.
const LEASE: Duration = Duration::from_secs(10);

/// Enough to subscribe, and less than the time between two attempts of a waiter that has no subscription.
const PAUSE: Duration = Duration::from_millis(100);

/// A waiter that polls takes longer than this, and the round trips of a hand-off.
const PROMPT: Duration = Duration::from_millis(50);

/// Measures hand-offs from one client to another, and judges them. `round_trip`: how long one takes.
pub(super) async fn messages(
    holder: &LockClient,
    waiter: &LockClient,
    name: &str,
    round_trip: Duration,
) -> Finding {
    let mut times = Vec::new();
    for _ in 0..HAND_OFFS {
        match hand_off(holder, waiter, name).await {
            Ok(Some(time)) => times.push(time),
            Ok(None) => return judge(&[LONGEST], round_trip),
            Err(error) => return Finding::unknown("messages", error.to_string(), "repair that first"),
        }
    }
    judge(&times, round_trip)
}

/// Returns the time between release and grant. `None`: the waiter was not woken.
async fn hand_off(holder: &LockClient, waiter: &LockClient, name: &str) -> Result<Option<Duration>> {
    let options = LockOptions::builder().fixed(LEASE).build()?;
    let Some(guard) = holder.rlock(name).with(&options).try_lock_for(LONGEST).await? else { return Ok(None) };
    let mut next = waiter.rlock(name).with(&options);
    let waiting = async {
        let granted = next.try_lock_for(PAUSE + LONGEST).await?;
        let at = Instant::now();
        let Some(guard) = granted else { return Ok(None) };
        guard.unlock().await?;
        Ok(Some(at))
    };
    let releasing = async {
        sleep(PAUSE).await;
        let at = Instant::now();
        guard.unlock().await?;
        Ok::<_, Error>(at)
    };
    let (granted, released) = try_join(waiting, releasing).await?;
    Ok(granted.map(|at| at.saturating_duration_since(released)))
}

fn judge(times: &[Duration], round_trip: Duration) -> Finding {
    const CHECK: &str = "messages";
    const ADVICE: &str = "check the rights to channels, and whether a proxy passes messages on";
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(LONGEST);
    if median >= LONGEST {
        let text =
            "a release wakes no waiter: waiters attempt only after `safety_poll`, or when the lease ends";
        return Finding::warning(CHECK, text, ADVICE);
    }
    let ms = median.as_secs_f64() * 1_000.0;
    if median > PROMPT + 3 * round_trip {
        let text = format!("a waiter acquires a lock only {ms:.0} ms after its release: it polls");
        return Finding::warning(CHECK, text, ADVICE);
    }
    Finding::ok(
        CHECK,
        format!("a waiter acquires a lock {ms:.1} ms after its release (median of {})", times.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level::{Ok, Warning};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waiters_that_poll_or_are_not_woken_are_a_warning() {
        let level = |times: &[u32], round_trip| {
            let times: Vec<Duration> = times.iter().map(|ms| MS * *ms).collect();
            judge(&times, round_trip).level
        };
        assert_eq!(level(&[1, 2, 700, 1, 900], MS), Ok);
        assert_eq!(level(&[150, 130, 170, 2, 150], MS), Warning);
        assert_eq!(level(&[150, 130, 170, 2, 150], 60 * MS), Ok);
        assert_eq!(level(&[2_000], MS), Warning);
    }
}
