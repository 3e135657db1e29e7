//! The protocol of a fair lock: the hash of an RLock, and a queue of waiters.

use std::sync::Arc;
use std::time::Duration;

use super::keys::{LockKeys, fair_queue, fair_records, fair_scores, fair_tickets, lock_channel};
use super::rights::{self, Right};
use super::script::{Arg, Call};
use super::scripts;
use super::traits::{HolderRef, IfHeld, LockType, Protocol, Queue, Traits, millis};
use crate::base::config::{JAVA_FAIR_WAIT, LockConfig};

/// The kind of a [`FairLock`](crate::FairLock), and its protocol.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fair;

/// The queue, the scores, the records and the tickets.
fn queue_keys(keys: &LockKeys) -> &[Arc<str>; 4] {
    keys.more[..].try_into().expect("BUG: a fair lock has these keys")
}

fn java_wait() -> u64 {
    millis(JAVA_FAIR_WAIT)
}

impl Protocol for Fair {
    fn traits(&self) -> Traits {
        Traits::new(LockType::Fair, "a fair lock")
    }

    fn keys(&self, lock: Arc<str>) -> LockKeys {
        let more: [fn(&str) -> Arc<str>; 4] = [fair_queue, fair_scores, fair_records, fair_tickets];
        LockKeys::new(lock, lock_channel, more)
    }

    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, if_held: IfHeld) -> Call {
        let HolderRef { keys, owner, config, .. } = holder;
        let [list, scores, records, tickets] = queue_keys(keys);
        scripts::fair_acquire(
            &keys.lock,
            list,
            scores,
            records,
            tickets,
            &keys.channel,
            owner,
            millis(lease),
            if if_held == IfHeld::Refuse { 0 } else { millis(config.fair_allowance()) },
            java_wait(),
            Arg::ValidUntil,
        )
    }

    fn release(&self, holder: HolderRef<'_>) -> Call {
        let HolderRef { keys, owner, .. } = holder;
        let [list, scores, records, tickets] = queue_keys(keys);
        scripts::fair_release(&keys.lock, list, scores, records, tickets, &keys.channel, owner, java_wait())
    }

    fn waiters(&self, keys: &LockKeys) -> Call {
        scripts::fair_waiters(&queue_keys(keys)[0])
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
    fn key<'a>(&self, keys: &'a LockKeys) -> &'a Arc<str> {
        &queue_keys(keys)[0]
    }

    fn channel(&self, holder: HolderRef<'_>) -> Arc<str> {
        format!("{}:{}", holder.keys.channel, holder.owner).into()
    }

    fn heartbeat(&self, keys: &LockKeys, config: &LockConfig, waiters: String) -> Call {
        let [list, scores, records, tickets] = queue_keys(keys);
        scripts::fair_heartbeat(
            &keys.lock,
            list,
            scores,
            records,
            tickets,
            &keys.channel,
            millis(config.fair_allowance()),
            java_wait(),
            waiters,
        )
    }

    fn place(&self, keys: &LockKeys, waiter: Arg) -> Call {
        scripts::place(&queue_keys(keys)[0], waiter)
    }
}
