//! The protocol of a fair lock: the hash of an RLock, and a queue of waiters.

use std::sync::Arc;
use std::time::Duration;

use super::keys::{CHANNEL, FAIR, LockKeys};
use super::rights::{self, Right};
use super::script::{Arg, Call};
use super::scripts;
use super::traits::{HolderRef, IfHeld, LockType, Protocol, Queue, Traits, millis};
use crate::base::config::LockConfig;

/// The kind of a [`FairLock`](crate::FairLock), and its protocol.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fair;

/// The queue, the scores, the records and the tickets.
fn queue_keys(keys: &LockKeys) -> &[Arc<str>; 4] {
    keys.more[..].try_into().expect("BUG: a fair lock has these keys")
}

/// All keys, in the order in which the scripts have them.
fn all(keys: &LockKeys) -> [&Arc<str>; 6] {
    let [queue, scores, records, tickets] = queue_keys(keys);
    [&keys.lock, queue, scores, records, tickets, &keys.channel]
}

impl Protocol for Fair {
    fn traits(&self) -> Traits {
        Traits::new(LockType::Fair, "a fair lock")
    }

    fn keys(&self, lock: Arc<str>) -> LockKeys {
        LockKeys::new(lock, CHANNEL, &FAIR)
    }

    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, if_held: IfHeld) -> Call {
        let allowance = if if_held == IfHeld::Refuse { 0 } else { millis(holder.config.fair_allowance()) };
        scripts::fair_acquire(all(holder.keys), holder.owner, millis(lease), allowance, Arg::ValidUntil)
    }

    fn release(&self, holder: HolderRef<'_>) -> Call {
        scripts::fair_release(all(holder.keys), holder.owner)
    }

    fn waiters(&self, keys: &LockKeys) -> Call {
        scripts::fair_waiters([&queue_keys(keys)[0]])
    }

    fn rights(&self, keys: &LockKeys) -> Vec<Right> {
        rights::fair(keys, queue_keys(keys))
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn leaves_trace(&self, if_held: IfHeld) -> bool {
        if_held != IfHeld::Refuse
    }
}

impl Queue for Fair {
    fn channel(&self, holder: HolderRef<'_>) -> Arc<str> {
        format!("{}:{}", holder.keys.channel, holder.owner).into()
    }

    fn heartbeat(&self, keys: &LockKeys, config: &LockConfig, waiters: String) -> Call {
        scripts::fair_heartbeat(all(keys), millis(config.fair_allowance()), waiters, Arg::ValidUntil)
    }

    fn place(&self, keys: &LockKeys, waiter: &str) -> Call {
        scripts::place([&queue_keys(keys)[0]], waiter.to_owned())
    }
}
