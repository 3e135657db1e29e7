//! The protocol of a fenced lock: that of an RLock, and a counter.

use std::sync::Arc;
use std::time::Duration;

use super::exclusive;
use super::keys::{LockKeys, fencing_counter, lock_channel};
use super::rights::{self, Right};
use super::script::{Batch, Call, Row};
use super::scripts;
use super::traits::{HolderRef, LockType, Protocol, Waits, millis};

/// The protocol of [`FencedLock`](crate::FencedLock).
#[derive(Debug)]
pub(crate) struct Fenced;

fn counter(keys: &LockKeys) -> &Arc<str> {
    &keys.more[0]
}

impl Protocol for Fenced {
    fn family(&self) -> &'static str {
        "a fenced lock"
    }

    fn lock_type(&self) -> LockType {
        LockType::Fenced
    }

    fn keys(&self, lock: Arc<str>) -> LockKeys {
        LockKeys::new(lock, lock_channel, [fencing_counter as fn(&str) -> Arc<str>])
    }

    fn acquire(&self, holder: HolderRef<'_>, want: u32, lease: Duration, _waits: Waits) -> Call {
        let HolderRef { keys, owner, .. } = holder;
        match want {
            1 => scripts::fenced_acquire(&keys.lock, counter(keys), owner, millis(lease)),
            _ => exclusive::reenter(holder, want, lease),
        }
    }

    fn release(&self, holder: HolderRef<'_>, keep: u32) -> Call {
        exclusive::release(holder, keep)
    }

    fn renewal(&self) -> &'static Batch {
        &scripts::RLOCK_RENEW
    }

    fn renewal_row(&self, holder: HolderRef<'_>, _left: Duration) -> Row {
        exclusive::renewal_row(holder)
    }

    fn state(&self, keys: &LockKeys) -> Call {
        exclusive::state(keys)
    }

    fn counter<'a>(&self, keys: &'a LockKeys) -> Option<&'a Arc<str>> {
        Some(counter(keys))
    }

    fn rights(&self, keys: &LockKeys) -> Vec<Right> {
        rights::fenced(keys, counter(keys))
    }
}
