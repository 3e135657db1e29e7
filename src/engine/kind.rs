//! What differs between the types of locks: plain data, and nothing that waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::grant::Target;
use crate::config::LockConfig;
use crate::names::Keys;
use crate::script::{Arg, Batch, Call, Reply, Row};
use crate::store::Fault;

/// A type of lock. It says which script an operation runs, with which keys and arguments.
///
/// The scripts answer alike, see [`Answer`] and [`Settled`].
pub(crate) trait Kind: fmt::Debug + Send + Sync + 'static {
    /// What it is called. An owner has locks of one family under a name at a time.
    fn family(&self) -> &'static str;

    /// The keys and channels of the lock of this name.
    fn keys(&self, lock: Arc<str>) -> Keys;

    /// Takes the lock, or with `want` above 1 enters it again. If it can not be had and the kind has a queue, `queue`
    /// says whether to join it.
    fn attempt(&self, whose: Whose<'_>, want: u32, lease: Duration, queue: bool) -> Call;

    /// Lowers the hold to `keep`. With `keep` 0 it is the undo of an attempt, too, and leaves the queue.
    fn release(&self, whose: Whose<'_>, keep: u32) -> Call;

    /// The script that renews many holds, given the lease in milliseconds.
    fn renewal(&self) -> &'static Batch;

    /// What one hold adds to it. It lasts at least for `left`, also if it is not renewed.
    fn keep_alive(&self, whose: Whose<'_>, left: Duration) -> Row;

    /// The queue in which waiters have places on the server.
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// Whether several owners can hold it together, each with a lease of its own.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether its hash has a field `mode`.
    fn is_read_write(&self) -> bool {
        false
    }

    /// The owner whose hold of this kind a field of the hash is.
    fn owner<'a>(&self, field: &'a str) -> Option<&'a str> {
        Some(field)
    }
}

/// How the waiters of a lock queue on the server.
pub(crate) trait Queue {
    /// The channel on which one waiter listens.
    fn channel(&self, whose: Whose<'_>) -> Arc<str>;

    /// Keeps the places of waiters of one lock, given their ids with spaces between.
    fn beat(&self, target: &Target, waiters: String) -> Call;
}

/// Whose hold on which lock an operation is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) owner: &'a Arg,
    /// The number of the grant, greater than those of all earlier ones. 0: whichever there is.
    pub(crate) grant: u64,
    pub(crate) config: &'a LockConfig,
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// With its fencing token, if this kind of lock has one.
    Granted(Option<u64>),
    /// Somebody else holds it, for this long at most, if it is known.
    Held(Option<Duration>),
    /// The same, and this one stands in the queue from now on.
    Queued,
    /// The hold that should be re-entered is gone.
    Lost,
    /// The name is in use as another kind of lock.
    OtherKind,
}

impl Answer {
    pub(crate) fn read(reply: &Reply) -> Result<Self, Fault> {
        let unexpected = || Fault::unexpected(reply);
        match *reply {
            Reply::Nil => Ok(Self::Granted(None)),
            Reply::Text(ref token) => {
                token.parse().map(|token| Self::Granted(Some(token))).map_err(|_| unexpected())
            }
            Reply::Int(-1) => Ok(Self::Held(None)),
            Reply::Int(-2) => Ok(Self::Lost),
            Reply::Int(-3) => Ok(Self::OtherKind),
            Reply::Int(-4) => Ok(Self::Queued),
            // A key may be in its last millisecond; wait that long.
            Reply::Int(ms) => match u64::try_from(ms) {
                Ok(ms) => Ok(Self::Held(Some(Duration::from_millis(ms.max(1))))),
                Err(_) => Err(unexpected()),
            },
            Reply::List(_) => Err(unexpected()),
        }
    }
}

/// What a release came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// There was no hold.
    Gone,
    /// The owner still has holds.
    Lowered,
    Released,
}

impl Settled {
    pub(crate) fn read(reply: &Reply, name: &str) -> Result<Self, Fault> {
        match reply {
            Reply::Int(-2) => Ok(Self::Gone),
            Reply::Int(0) => Ok(Self::Lowered),
            Reply::Int(1) => Ok(Self::Released),
            Reply::Int(2) => {
                tracing::warn!(
                    name,
                    "released a lock without a message: this user may not publish on its channel"
                );
                Ok(Self::Released)
            }
            _ => Err(Fault::unexpected(reply)),
        }
    }
}
