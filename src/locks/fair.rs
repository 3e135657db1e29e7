//! The fair lock: Redisson's `RFairLock`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::BaseLock;
use super::sealed::Lock;
use crate::config::LockConfig;
use crate::engine::{Engine, Handle, Holds, Kind, Patience, Queue, Target, Whose, millis};
use crate::error::Result;
use crate::guard::LockGuard;
use crate::names::{self, Keys};
use crate::script::{self, Batch, Call, Row};

/// A lock that is had in the order of asking, across all processes: Redisson's fair lock.
///
/// Who waits stands in a queue on the server, and keeps its place as long as its process is alive: it says so each
/// third of `fair_allowance`. One that died or gave up is passed over. Otherwise it is an [`RLock`](crate::RLock).
///
/// # Examples
///
/// ```no_run
/// # async fn demo(locks: lockkeeper::LockClient) -> lockkeeper::Result<()> {
/// let guard = locks.fair_lock("jobs").lock().await?; // after all who asked before
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing until it locks"]
pub struct FairLock(Handle);

impl FairLock {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str, holds: Arc<Holds>) -> Self {
        Self(Handle::single(engine, &Fair, name, holds))
    }
}

lock_type!(FairLock);
member_type!(FairLock);

#[derive(Debug)]
struct Fair;

/// The queue, the scores, the places.
fn more(keys: &Keys) -> &[Arc<str>; 3] {
    keys.more[..].try_into().expect("BUG: a fair lock has these keys")
}

fn java_wait(config: &LockConfig) -> u64 {
    millis(config.fair_java_wait)
}

impl Kind for Fair {
    fn family(&self) -> &'static str {
        "a fair lock"
    }

    fn keys(&self, lock: Arc<str>) -> Keys {
        let more: [fn(&str) -> Arc<str>; 3] = [names::fair_queue, names::fair_scores, names::fair_places];
        Keys::new(lock, names::lock_channel, more)
    }

    fn attempt(&self, whose: Whose<'_>, want: u32, lease: Duration, queue: bool) -> Call {
        let Whose { keys, owner, config, .. } = whose;
        let Keys { lock, channel, .. } = keys;
        if want > 1 {
            return script::rlock_reenter(lock, owner, want, millis(lease));
        }
        let [list, scores, places] = more(keys);
        let (lease, allowance) = (millis(lease), if queue { millis(config.fair_allowance) } else { 0 });
        script::fair_acquire(lock, list, scores, places, channel, owner, lease, allowance, java_wait(config))
    }

    fn release(&self, whose: Whose<'_>, keep: u32) -> Call {
        let Whose { keys, owner, config, .. } = whose;
        let [list, scores, places] = more(keys);
        script::fair_release(&keys.lock, list, scores, places, &keys.channel, owner, keep, java_wait(config))
    }

    fn renewal(&self) -> &'static Batch {
        &script::RLOCK_RENEW
    }

    fn keep_alive(&self, whose: Whose<'_>, _left: Duration) -> Row {
        Row { keys: smallvec![Arc::clone(&whose.keys.lock)], args: smallvec![whose.owner.into()] }
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }
}

impl Queue for Fair {
    fn channel(&self, whose: Whose<'_>) -> Arc<str> {
        format!("{}:{}", whose.keys.channel, whose.owner).into()
    }

    fn beat(&self, target: &Target, waiters: String) -> Call {
        let Target { engine, keys, .. } = target;
        let [list, scores, places] = more(keys);
        script::fair_beat(
            &keys.lock,
            list,
            scores,
            places,
            &keys.channel,
            millis(engine.config.fair_allowance),
            java_wait(&engine.config),
            script::Arg::Text(waiters.into()),
        )
    }
}
