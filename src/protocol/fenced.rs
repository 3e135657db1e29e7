//! The protocol of a fenced lock: that of an RLock, and a counter.

use std::sync::Arc;
use std::time::Duration;

use super::keys::{CHANNEL, COUNTER, LockKeys};
use super::rights::{self, Right};
use super::script::{Arg, Call};
use super::scripts;
use super::traits::{HolderRef, IfHeld, LockType, Protocol, Traits, millis};

/// The kind of a [`FencedLock`](crate::FencedLock), and its protocol.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fenced;

fn counter(keys: &LockKeys) -> &Arc<str> {
    &keys.more[0]
}

impl Protocol for Fenced {
    fn traits(&self) -> Traits {
        Traits::new(LockType::Fenced, "a fenced lock")
    }

    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, _if_held: IfHeld) -> Call {
        let keys = [&holder.keys.lock, counter(holder.keys)];
        scripts::fenced_acquire(keys, holder.owner, millis(lease), Arg::ValidUntil)
    }

    fn keys(&self, lock: Arc<str>) -> LockKeys {
        LockKeys::new(lock, CHANNEL, &[COUNTER])
    }

    fn rights(&self, keys: &LockKeys) -> Vec<Right> {
        rights::fenced(keys, counter(keys))
    }

    fn counter<'a>(&self, keys: &'a LockKeys) -> Option<&'a Arc<str>> {
        Some(counter(keys))
    }
}
