//! The protocols of the two sides of a read-write lock.
//!
//! Both sides use one hash: a field `mode`, a field for each reader, and for a writer the owner's id with `:write` behind it. The
//! hold of a reader has a key of its own, whose expiry is its lease. A writer that readers kept waiting has a key that stops new
//! readers.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::keys::{LockKeys, READ_WRITE_CHANNEL, read_hold};
use super::rights::{self, Right};
use super::script::{Arg, Call, Row, Script};
use super::scripts;
use super::traits::{HolderRef, IfHeld, LockType, Protocol, Traits, millis};

/// The kind of a [`ReadLock`](crate::ReadLock), and its protocol.
#[derive(Debug)]
#[non_exhaustive]
pub struct Read;

impl Read {
    /// Renews a hold that lingers, and asks whether somebody waits. `linger`: the time until the next confirmation.
    /// `makes_gap`: new readers are stopped even if the server sees nobody wait.
    pub(crate) fn confirm(holder: HolderRef<'_>, linger: Duration, makes_gap: bool) -> Call {
        let HolderRef { keys, owner, grant, config, .. } = holder;
        // Other clients keep the lock until their next confirmation, at most 1.25 times `linger` from now. The stop
        // outlasts this, so that a writer can come.
        let (stop, calm) = (linger * 3 / 2 + WRITER_COMES, linger.max(READERS_COME));
        let (lease, is_gap) = (millis(config.watchdog_lease()), u64::from(makes_gap));
        scripts::read_confirm(both(keys), owner, grant, lease, millis(stop), millis(calm), is_gap)
    }
}

/// The kind of a [`WriteLock`](crate::WriteLock), and its protocol.
#[derive(Debug)]
#[non_exhaustive]
pub struct Write;

/// A writer needs at most this time to attempt after the last reader has left.
const WRITER_COMES: Duration = Duration::from_millis(20);

/// After a stop, the readers that it kept waiting attempt within this time. Until then they still listen, so they must
/// not count as waiting writers.
const READERS_COME: Duration = Duration::from_millis(20);

/// Redisson appends this to the owner's id in the field of a write hold.
const WRITER: &str = ":write";

const FAMILY: &str = "a read-write lock";

/// The keys of most scripts.
const fn both(keys: &LockKeys) -> [&Arc<str>; 2] {
    [&keys.lock, &keys.channel]
}

impl Protocol for Read {
    fn traits(&self) -> Traits {
        Traits { is_read_write: true, is_shared: true, ..Traits::new(LockType::Read, FAMILY) }
    }

    fn keys(&self, lock: Arc<str>) -> LockKeys {
        LockKeys::new(lock, READ_WRITE_CHANNEL, &[])
    }

    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, _if_held: IfHeld) -> Call {
        let HolderRef { keys, owner, grant, .. } = holder;
        scripts::read_acquire(both(keys), owner, grant, millis(lease), Arg::ValidUntil)
    }

    fn show(&self, holder: HolderRef<'_>, count: u32, lease: Duration) -> Call {
        let HolderRef { keys, owner, grant, .. } = holder;
        scripts::read_show(both(keys), owner, grant, count, millis(lease))
    }

    fn release(&self, holder: HolderRef<'_>) -> Call {
        let HolderRef { keys, owner, grant, config, .. } = holder;
        scripts::read_release(both(keys), owner, grant, millis(config.watchdog_lease()))
    }

    fn renewal(&self) -> &'static Script {
        &scripts::READ_RENEW
    }

    fn renewal_row(&self, holder: HolderRef<'_>, left: Duration) -> Row {
        let HolderRef { keys, owner, grant, .. } = holder;
        Row {
            keys: both(keys).map(Arc::clone).into(),
            args: smallvec![owner.into(), grant.into(), millis(left).into()],
        }
    }

    fn tracked_key(&self, HolderRef { keys, owner, .. }: HolderRef<'_>) -> Arc<str> {
        read_hold(&keys.lock, &owner.to_string(), 1)
    }

    fn state(&self, keys: &LockKeys) -> Call {
        scripts::read_state(both(keys))
    }

    fn rights(&self, keys: &LockKeys) -> Vec<Right> {
        rights::read_write(keys)
    }

    fn owner<'a>(&self, field: &'a str) -> Option<&'a str> {
        Some(field).filter(|field| !field.ends_with(WRITER))
    }
}

impl Protocol for Write {
    fn traits(&self) -> Traits {
        let plain = Traits::new(LockType::Write, FAMILY);
        Traits { can_be_passed_on: true, is_read_write: true, stops_readers: true, ..plain }
    }

    fn keys(&self, lock: Arc<str>) -> LockKeys {
        LockKeys::new(lock, READ_WRITE_CHANNEL, &[])
    }

    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, if_held: IfHeld) -> Call {
        let turn = if if_held == IfHeld::BlockReaders { millis(holder.config.writer_turn()) } else { 0 };
        scripts::write_acquire(both(holder.keys), self.field(holder), millis(lease), turn, Arg::ValidUntil)
    }

    fn release(&self, holder: HolderRef<'_>) -> Call {
        scripts::write_release(both(holder.keys), self.field(holder))
    }

    fn state(&self, keys: &LockKeys) -> Call {
        scripts::write_state([&keys.lock])
    }

    fn rights(&self, keys: &LockKeys) -> Vec<Right> {
        rights::read_write(keys)
    }

    fn leaves_trace(&self, if_held: IfHeld) -> bool {
        matches!(if_held, IfHeld::BlockReaders | IfHeld::KeepBlocking)
    }

    fn field(&self, holder: HolderRef<'_>) -> Arg {
        Arg::Text(format!("{}{WRITER}", holder.owner).into())
    }

    fn owner<'a>(&self, field: &'a str) -> Option<&'a str> {
        field.strip_suffix(WRITER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockConfig;

    /// Another client confirms up to one `linger` after this one, and readers join its hold for a quarter longer. Then a writer has to come.
    #[test]
    fn a_stop_lasts_until_all_clients_have_confirmed() {
        let (keys, owner, config) = (Read.keys("a".into()), Arg::Text("a:1".into()), LockConfig::default());
        let holder = HolderRef { keys: &keys, owner: &owner, grant: 1, total: 1, config: &config };
        for linger in [1, 50, 1_000] {
            let call = Read::confirm(holder, Duration::from_millis(linger), false);
            let Arg::Number(stop) = call.args[3] else { unreachable!("{call:?}") };
            assert!(stop >= linger * 5 / 4 + 10, "{stop} ms for {linger} ms");
        }
    }
}
