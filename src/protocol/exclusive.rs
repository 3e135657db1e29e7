//! The protocol of an RLock.

use std::time::Duration;

use super::script::{Arg, Call};
use super::scripts;
use super::traits::{HolderRef, IfHeld, LockType, Protocol, Traits, millis};

/// The kind of a [`RLock`](crate::RLock), and its protocol.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reentrant;

impl Protocol for Reentrant {
    fn traits(&self) -> Traits {
        Traits { can_be_passed_on: true, ..Traits::new(LockType::RLock, "a reentrant lock") }
    }

    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, _if_held: IfHeld) -> Call {
        scripts::rlock_acquire([&holder.keys.lock], holder.owner, millis(lease), Arg::ValidUntil)
    }
}
