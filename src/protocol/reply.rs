//! The replies of the scripts, parsed. Scripts of all types of locks answer alike.

use std::num::NonZeroU64;
use std::time::Duration;

use super::script::Reply;
use crate::base::fault::Fault;

/// The reply of an acquire script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireReply {
    /// The owner holds the lock. With the fencing token, if this type of lock has one.
    Granted(Option<NonZeroU64>),
    /// Another owner holds the lock. The holder's lease lasts at most for this time, if the time is known.
    Held(Option<Duration>),
    /// Another owner holds the lock or is in front, and the owner that asked has queued.
    Queued,
    /// The hold that the call wanted to re-enter is gone.
    Lost,
    /// The key is another kind of lock.
    OtherKind,
    /// The key holds data that is no lock.
    NotALock,
    /// The queue had dead waiters, and perhaps has more: attempt again.
    AttemptAgain,
    /// The fencing counter is no number, or cannot grow. Perhaps an earlier copy of this call was granted the lock.
    CannotCount,
}

/// The reply of a release script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseReply {
    /// The owner held nothing.
    Gone,
    /// The owner still has holds.
    Lowered,
    /// The message about it reached so many connections, if this type of lock counts them.
    Released { told: u32 },
    /// Released, but the server did not allow the message to the waiters.
    ReleasedInSilence,
    /// Released, and the key keeps data that is no lock.
    ReleasedBesideData,
}

/// The reply of a state script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateReply {
    Held,
    Free,
    /// The key is another kind of lock.
    OtherKind,
    /// The key holds data that is no lock.
    NotALock,
}

/// What a heartbeat script replies about one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceReply {
    /// The waiter has no place any more.
    Gone,
    Kept,
    /// The waiter is the first, and the lock is free.
    YourTurn,
    /// The place is kept. Perhaps there are more dead waiters to remove: send the heartbeat again.
    KeptBehindTheDead,
}

impl AcquireReply {
    /// Parses the reply of an acquire script. `has_token`: a granted call returns a fencing token.
    pub(crate) fn parse(reply: &Reply, has_token: bool) -> Result<Self, Fault> {
        let unexpected = || Fault::unexpected(reply);
        Ok(match *reply {
            Reply::Nil if !has_token => Self::Granted(None),
            Reply::Text(ref token) if has_token => {
                Self::Granted(Some(token.parse().map_err(|_| unexpected())?))
            }
            Reply::Int(-1) => Self::Held(None),
            Reply::Int(-2) => Self::Lost,
            Reply::Int(-3) => Self::OtherKind,
            Reply::Int(-4) => Self::Queued,
            Reply::Int(-5) => Self::NotALock,
            Reply::Int(-6) => Self::AttemptAgain,
            Reply::Int(-7) if has_token => Self::CannotCount,
            // 0: the key is in its last millisecond, so wait for one millisecond.
            Reply::Int(ms) => {
                let ms = u64::try_from(ms).map_err(|_| unexpected())?;
                Self::Held(Some(Duration::from_millis(ms.max(1))))
            }
            Reply::List(_) | Reply::Nil | Reply::Text(_) => return Err(unexpected()),
        })
    }
}

impl ReleaseReply {
    pub(crate) fn parse(reply: &Reply) -> Result<Self, Fault> {
        match *reply {
            Reply::Int(-2) => Ok(Self::Gone),
            Reply::Int(-3) => Ok(Self::ReleasedInSilence),
            Reply::Int(-4) => Ok(Self::ReleasedBesideData),
            Reply::Int(0) => Ok(Self::Lowered),
            Reply::Int(told @ 1..) => {
                Ok(Self::Released { told: u32::try_from(told - 1).unwrap_or(u32::MAX) })
            }
            _ => Err(Fault::unexpected(reply)),
        }
    }
}

impl StateReply {
    pub(crate) fn parse(reply: &Reply) -> Result<Self, Fault> {
        match *reply {
            Reply::Int(-2) => Ok(Self::Free),
            Reply::Int(-3) => Ok(Self::OtherKind),
            Reply::Int(-5) => Ok(Self::NotALock),
            Reply::Int(-1..) => Ok(Self::Held),
            _ => Err(Fault::unexpected(reply)),
        }
    }
}

/// Parses the reply of a renewal script: for each row, whether the hold is still there.
pub(crate) fn parse_renewal(reply: &Reply, rows: usize) -> Result<Vec<bool>, Fault> {
    parse_list(reply, rows, |reply| match reply {
        Reply::Int(1) => Some(true),
        Reply::Int(0) => Some(false),
        _ => None,
    })
}

/// Parses the reply of a heartbeat script, which has an item for each waiter.
pub(crate) fn parse_heartbeat(reply: &Reply, waiters: usize) -> Result<Vec<PlaceReply>, Fault> {
    parse_list(reply, waiters, |reply| match reply {
        Reply::Int(0) => Some(PlaceReply::Gone),
        Reply::Int(1) => Some(PlaceReply::Kept),
        Reply::Int(2) => Some(PlaceReply::YourTurn),
        Reply::Int(3) => Some(PlaceReply::KeptBehindTheDead),
        _ => None,
    })
}

fn parse_list<T>(reply: &Reply, len: usize, parse: impl Fn(&Reply) -> Option<T>) -> Result<Vec<T>, Fault> {
    let list = match reply {
        Reply::List(list) if list.len() == len => list.iter().map(parse).collect(),
        _ => None,
    };
    list.ok_or_else(|| Fault::unexpected(reply))
}
