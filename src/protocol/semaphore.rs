//! The protocol of a semaphore: a number of available permits, and a sorted set of those in use with the ends of their leases.
//!
//! A hold is one permit or several, which are acquired and released together. Each permit has an id of its own, as in Redisson.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use uuid::Uuid;

use super::keys::{LockKeys, SEMAPHORE_CHANNEL, permits};
use super::rights::{self, Right};
use super::script::{Arg, Call, PermitIds, Row, Script};
use super::scripts;
use super::traits::{HolderRef, IfHeld, LockType, Protocol, Traits, millis};

/// The protocol of [`Semaphore`](crate::Semaphore).
#[derive(Debug)]
pub(crate) struct Semaphore;

/// The sorted set of the permits in use.
fn in_use(keys: &LockKeys) -> &Arc<str> {
    &keys.more[0]
}

fn both(keys: &LockKeys) -> [&Arc<str>; 2] {
    [&keys.lock, in_use(keys)]
}

impl Protocol for Semaphore {
    fn traits(&self) -> Traits {
        Traits {
            can_be_passed_on: true,
            has_permits: true,
            ..Traits::new(LockType::Semaphore, "a semaphore")
        }
    }

    fn keys(&self, lock: Arc<str>) -> LockKeys {
        let more = smallvec![permits(&lock)];
        LockKeys { more, ..LockKeys::new(lock, SEMAPHORE_CHANNEL, &[]) }
    }

    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, _if_held: IfHeld) -> Call {
        let HolderRef { keys, owner, total, .. } = holder;
        scripts::semaphore_acquire(both(keys), owner, total, millis(lease), &keys.channel, Arg::ValidUntil)
    }

    fn release(&self, holder: HolderRef<'_>) -> Call {
        scripts::semaphore_release(both(holder.keys), holder.owner, &holder.keys.channel)
    }

    fn renewal(&self) -> &'static Script {
        &scripts::SEMAPHORE_RENEW
    }

    fn renewal_row(&self, holder: HolderRef<'_>, _left: Duration) -> Row {
        Row { keys: smallvec![self.tracked_key(holder)], args: smallvec![holder.owner.into()] }
    }

    fn tracked_key(&self, holder: HolderRef<'_>) -> Arc<str> {
        Arc::clone(in_use(holder.keys))
    }

    fn rights(&self, keys: &LockKeys) -> Vec<Right> {
        rights::semaphore(keys, in_use(keys))
    }

    fn id(&self, client: Uuid, number: u64, count: u32) -> Arg {
        Arg::Permits(PermitIds { client: client.as_u64_pair().0, first: number, count })
    }
}

impl Semaphore {
    /// Asks how many permits are available, and how many there are. `total`: the number if the key does not exist.
    pub(crate) fn state(keys: &LockKeys, total: u32) -> Call {
        scripts::semaphore_state(both(keys), total)
    }

    /// Lists a part of the permits in use.
    pub(crate) fn holders(keys: &LockKeys, cursor: Arg) -> Call {
        scripts::semaphore_holders([in_use(keys)], cursor)
    }

    /// Sets how many permits there are.
    pub(crate) fn resize(keys: &LockKeys, total: u32) -> Call {
        scripts::semaphore_resize(both(keys), total, &keys.channel)
    }

    /// Deletes the semaphore and its permits. `total`: the number of permits that the message names to the waiters.
    pub(crate) fn delete(keys: &LockKeys, total: u32) -> Call {
        scripts::semaphore_delete(both(keys), total, &keys.channel)
    }
}
