//! The protocol of an RLock, and what the fair lock and the fenced lock share with it: one hash, from the one owner to its hold
//! count, whose expiry is the lease.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::keys::{LockKeys, lock_channel};
use super::rights::{self, Right};
use super::script::{Arg, Batch, Call, Row};
use super::scripts;
use super::traits::{HolderRef, LockType, Protocol, Waits, millis};

/// The protocol of [`RLock`](crate::RLock).
#[derive(Debug)]
pub(crate) struct Reentrant;

impl Protocol for Reentrant {
    fn family(&self) -> &'static str {
        "a reentrant lock"
    }

    fn lock_type(&self) -> LockType {
        LockType::RLock
    }

    fn keys(&self, lock: Arc<str>) -> LockKeys {
        LockKeys::new(lock, lock_channel, [])
    }

    fn acquire(&self, holder: HolderRef<'_>, want: u32, lease: Duration, _waits: Waits) -> Call {
        match want {
            1 => scripts::rlock_acquire(&holder.keys.lock, holder.owner, millis(lease)),
            _ => reenter(holder, want, lease),
        }
    }

    fn release(&self, holder: HolderRef<'_>, keep: u32) -> Call {
        release(holder, keep)
    }

    fn renewal(&self) -> &'static Batch {
        &scripts::RLOCK_RENEW
    }

    fn renewal_row(&self, holder: HolderRef<'_>, _left: Duration) -> Row {
        renewal_row(holder)
    }

    fn state(&self, keys: &LockKeys) -> Call {
        state(keys)
    }

    fn rights(&self, keys: &LockKeys) -> Vec<Right> {
        rights::exclusive(keys)
    }

    fn can_be_passed_on(&self) -> bool {
        true
    }
}

pub(super) fn reenter(holder: HolderRef<'_>, want: u32, lease: Duration) -> Call {
    scripts::rlock_reenter(&holder.keys.lock, holder.owner, want, millis(lease))
}

pub(super) fn release(holder: HolderRef<'_>, keep: u32) -> Call {
    let channel = Arg::Text(Arc::clone(&holder.keys.channel));
    scripts::rlock_release(&holder.keys.lock, holder.owner, keep, channel)
}

pub(super) fn renewal_row(holder: HolderRef<'_>) -> Row {
    Row { keys: smallvec![Arc::clone(&holder.keys.lock)], args: smallvec![holder.owner.into()] }
}

pub(super) fn state(keys: &LockKeys) -> Call {
    scripts::rlock_state(&keys.lock)
}
