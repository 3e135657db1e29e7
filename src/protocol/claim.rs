//! The protocol of claims: that of an RLock, except that one call acquires the first free one of several locks.

use std::sync::Arc;
use std::time::Duration;

use super::keys::{CHANNEL, CLAIMS, LockKeys};
use super::rights::{self, Right};
use super::script::{Arg, Call};
use super::scripts;
use super::traits::{HolderRef, IfHeld, LockType, Protocol, Traits, millis};

/// The protocol of [`Claims`](crate::Claims).
#[derive(Debug)]
pub(crate) struct Claim;

/// Acquires the first free one of these locks, for an owner that holds none of them. `keys`: those of the group, or of one of the locks.
pub(crate) fn claim(
    keys: &LockKeys,
    locks: impl IntoIterator<Item = Arc<str>>,
    owner: &Arg,
    lease: Duration,
) -> Call {
    scripts::claims_acquire([counter(keys)], locks, owner, millis(lease), Arg::ValidUntil)
}

/// The key of the counter of the group.
fn counter(keys: &LockKeys) -> &Arc<str> {
    &keys.more[0]
}

impl Protocol for Claim {
    fn traits(&self) -> Traits {
        Traits::new(LockType::Claim, "a claim")
    }

    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, _if_held: IfHeld) -> Call {
        claim(holder.keys, [Arc::clone(&holder.keys.lock)], holder.owner, lease)
    }

    /// Derives the keys of a group. [`LockKeys::in_group`] derives those of its locks.
    fn keys(&self, group: Arc<str>) -> LockKeys {
        LockKeys::new(group, CHANNEL, &[CLAIMS])
    }

    fn rights(&self, group: &LockKeys) -> Vec<Right> {
        rights::claims(group, counter(group))
    }

    fn counter<'a>(&self, keys: &'a LockKeys) -> Option<&'a Arc<str>> {
        Some(counter(keys))
    }
}
