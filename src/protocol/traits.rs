//! What differs between the types of locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use uuid::Uuid;

use super::keys::{CHANNEL, LockKeys};
use super::rights::{self, Right};
use super::script::{Arg, Call, Row, Script};
use super::scripts;
use crate::base::config::LockConfig;

/// What distinguishes the types of locks, as far as it does not depend on a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// The type, for metrics and spans.
    pub(crate) lock_type: LockType,
    /// The name of the type, for errors. An owner uses one name for locks of one family at a time.
    pub(crate) family: &'static str,
    /// An owner can pass its hold on to another owner of this client, without a command.
    pub(crate) can_be_passed_on: bool,
    /// The lock is one side of a read-write lock.
    pub(crate) is_read_write: bool,
    /// Several owners can hold the lock together, each with its own lease.
    pub(crate) is_shared: bool,
    /// A waiter that has waited for long stops new readers.
    pub(crate) stops_readers: bool,
    /// The lock has a number of permits, and each hold takes some of them.
    pub(crate) has_permits: bool,
}

impl Traits {
    /// Most types have none of these traits.
    pub(crate) const fn new(lock_type: LockType, family: &'static str) -> Self {
        Self {
            lock_type,
            family,
            can_be_passed_on: false,
            is_read_write: false,
            is_shared: false,
            stops_readers: false,
            has_permits: false,
        }
    }
}

/// A type of lock: which script an operation runs, with which keys and arguments.
///
/// The methods with a body are those of an [`RLock`](crate::RLock): one hash, from the one owner to its hold count, whose expiry is
/// the lease. The other types state only what differs.
pub(crate) trait Protocol: fmt::Debug + Send + Sync + 'static {
    fn traits(&self) -> Traits;

    /// Acquires the lock for an owner that holds nothing on it. `if_held` says what the call does if another owner
    /// holds the lock.
    fn acquire_first(&self, holder: HolderRef<'_>, lease: Duration, if_held: IfHeld) -> Call;

    /// Shows the hold count after a re-entry or an inner release, and makes the lease at least this long.
    fn show(&self, holder: HolderRef<'_>, count: u32, lease: Duration) -> Call {
        scripts::rlock_show([&holder.keys.lock], self.field(holder), count, millis(lease))
    }

    /// Ends the hold. This also undoes an attempt, and removes the traces of its waiter.
    fn release(&self, holder: HolderRef<'_>) -> Call {
        scripts::rlock_release([&holder.keys.lock], holder.owner, &holder.keys.channel)
    }

    /// The script that renews many holds. Their shared argument is the lease in milliseconds.
    fn renewal(&self) -> &'static Script {
        &scripts::RLOCK_RENEW
    }

    /// The row of one hold in a renewal. The hold lasts at least for `left`, even if nothing renews it.
    fn renewal_row(&self, holder: HolderRef<'_>, _left: Duration) -> Row {
        Row { keys: smallvec![Arc::clone(&holder.keys.lock)], args: smallvec![self.field(holder)] }
    }

    /// The key that a renewal reads last, so that the server tells of its changes. It goes or changes if the hold ends.
    fn tracked_key(&self, holder: HolderRef<'_>) -> Arc<str> {
        Arc::clone(&holder.keys.lock)
    }

    /// Asks whether anybody holds the lock.
    fn state(&self, keys: &LockKeys) -> Call {
        scripts::rlock_state([&keys.lock])
    }

    /// Asks how many wait for the lock.
    fn waiters(&self, keys: &LockKeys) -> Call {
        scripts::waiters([&keys.lock], &keys.channel)
    }

    /// Derives the keys and channels from the key of the lock.
    fn keys(&self, lock: Arc<str>) -> LockKeys {
        LockKeys::new(lock, CHANNEL, &[])
    }

    /// The rights that a user of the server needs.
    fn rights(&self, keys: &LockKeys) -> Vec<Right> {
        rights::exclusive(keys)
    }

    /// The queue in which waiters have places on the server.
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// The key of the counter that numbers the holders.
    fn counter<'a>(&self, _keys: &'a LockKeys) -> Option<&'a Arc<str>> {
        None
    }

    /// Whether a refused attempt of a call that waits leaves something on the server: a place in a queue, or an intent.
    fn leaves_trace(&self, _if_held: IfHeld) -> bool {
        false
    }

    /// Returns the id of a new grant. It covers `count` numbers from `number` on, which are never used again.
    fn id(&self, client: Uuid, number: u64, _count: u32) -> Arg {
        Arg::Owner(client, number)
    }

    /// The field of the lock's hash for a hold.
    fn field(&self, holder: HolderRef<'_>) -> Arg {
        holder.owner.clone()
    }

    /// Returns the owner of a hold of this type, from the field of the hash for this hold. `None`: the field is not for such a
    /// hold.
    fn owner<'a>(&self, field: &'a str) -> Option<&'a str> {
        Some(field)
    }

    fn lock_type(&self) -> LockType {
        self.traits().lock_type
    }

    fn family(&self) -> &'static str {
        self.traits().family
    }

    fn can_be_passed_on(&self) -> bool {
        self.traits().can_be_passed_on
    }

    fn is_read_write(&self) -> bool {
        self.traits().is_read_write
    }

    fn is_shared(&self) -> bool {
        self.traits().is_shared
    }

    fn stops_readers(&self) -> bool {
        self.traits().stops_readers
    }

    fn has_permits(&self) -> bool {
        self.traits().has_permits
    }
}

/// A type of lock, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockType {
    Claim,
    Fair,
    Fenced,
    Multi,
    Read,
    Red,
    RLock,
    Semaphore,
    Write,
}

impl LockType {
    /// The names in metrics and spans, in the order of the types.
    pub(crate) const NAMES: [&'static str; 9] =
        ["claim", "fair", "fenced", "multi", "read", "red", "rlock", "semaphore", "write"];

    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// What a call does if another owner holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfHeld {
    /// It does not wait.
    Refuse,
    /// It waits, and joins the queue on the server if this type of lock has one.
    Queue,
    /// A writer that has waited for some time stops new readers.
    BlockReaders,
    /// As `Queue`, after an earlier attempt of the call that stopped new readers.
    KeepBlocking,
}

/// The queue of a lock on the server.
pub(crate) trait Queue {
    /// The channel on which one waiter listens.
    fn channel(&self, holder: HolderRef<'_>) -> Arc<str>;

    /// Keeps the places of waiters of one lock. `waiters` has their ids, with spaces between them.
    fn heartbeat(&self, keys: &LockKeys, config: &LockConfig, waiters: String) -> Call;

    /// Asks for the place of a waiter.
    fn place(&self, keys: &LockKeys, waiter: &str) -> Call;
}

/// The hold, or the possible hold, of one owner on one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HolderRef<'a> {
    pub(crate) keys: &'a LockKeys,
    pub(crate) owner: &'a Arg,
    /// The number of the grant. It is greater than the numbers of all earlier grants; 0 stands for any grant.
    pub(crate) grant: u64,
    /// How many permits a semaphore has, if its key does not exist.
    pub(crate) total: u32,
    pub(crate) config: &'a LockConfig,
}

/// A duration in the unit of the scripts.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
