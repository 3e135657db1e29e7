//! The replies of the scripts, parsed. Scripts of all types of locks answer alike.

use std::num::NonZeroU64;
use std::time::Duration;

use super::script::{Arg, Reply};
use crate::base::fault::Fault;

/// The replies that are no amounts, as `lua/includes/replies.lua` numbers them.
pub(super) mod number {
    macro_rules! replies {
        ($($name:ident = $number:literal,)*) => {
            $( pub(in crate::protocol) const $name: i64 = $number; )*

            #[cfg(test)]
            pub(super) const ALL: &[(&str, i64)] = &[$((stringify!($name), $number)),*];
        };
    }

    replies! {
        NO_KNOWN_END = -1,
        FREE = -2,
        OTHER_KIND = -3,
        QUEUED = -4,
        NOT_A_LOCK = -5,
        ATTEMPT_AGAIN = -6,
        CANNOT_COUNT = -7,
        LOST = -8,
        LATE = -9,
        NOBODY_TOLD = -10,
        BESIDE_DATA = -11,
        RENEWED = -12,
        PLACE_KEPT = -13,
        FIRST_AND_FREE = -14,
        MORE_DEAD = -15,
        TOO_MANY = -16,
        WANTED = -17,
    }
}

/// The reply of an acquire script, and of those that answer alike: show a count, announce, or look whether a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireReply {
    /// The owner holds the lock.
    Granted(Granted),
    /// Another owner holds the lock. The holder's lease lasts at most for this time, if the time is known.
    Held(Option<Duration>),
    /// No owner holds the lock. Only a state script says so.
    Free,
    /// Another owner holds the lock or is in front, and the owner that asked has queued.
    Queued,
    /// The hold is gone, or the owner has a later one.
    Lost,
    /// The key is another kind of lock.
    OtherKind,
    /// The key holds data that is no lock.
    NotALock,
    /// The queue had dead waiters, and perhaps has more: attempt again.
    AttemptAgain,
    /// The fencing counter is no number, or cannot grow.
    CannotCount,
    /// The call wants more permits than the semaphore has.
    TooMany { total: u32 },
}

/// What an acquire script says of the lock that it granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    Alone,
    /// The grant has this fencing token.
    Token(NonZeroU64),
    /// Permits of a semaphore were granted: `left` are still available, of `total`.
    Permits {
        left: u32,
        total: u32,
    },
}

/// The reply of the script that acquires the first free one of several locks. A place counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimReply {
    /// The owner holds the lock at this place of the list, with this fencing token.
    Granted(usize, NonZeroU64),
    /// Other owners hold all of the locks.
    NoneFree,
    /// The key at this place holds data that is no lock.
    NotALock(usize),
    /// The counter is no number, or cannot grow.
    CannotCount,
}

/// The reply of a release script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseReply {
    /// The owner held nothing.
    Gone,
    /// Released. The message to the waiters reached this many connections, if this type of lock counts them.
    Released { receivers: u32 },
    /// Released, but the server did not allow the message to the waiters.
    ReleasedInSilence,
    /// Released, and the key keeps data that is no lock.
    ReleasedBesideData,
}

/// What a renewal script replies about one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenewalReply {
    Renewed,
    /// The hold is not there.
    Lost,
    /// The server did not say whether the hold is there, but this error.
    Refused(String),
}

/// What the script that confirms a hold replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfirmReply {
    Renewed,
    /// Renewed, and somebody waits for the lock.
    Wanted,
    /// The hold is not there.
    Lost,
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
    /// Parses the reply of such a script. `has_token`: a granted call returns a fencing token.
    pub(crate) fn parse(reply: &Reply, has_token: bool) -> Result<Self, Fault> {
        let unexpected = || Fault::unexpected(reply);
        Ok(match *reply {
            Reply::Nil if !has_token => Self::Granted(Granted::Alone),
            Reply::Text(ref token) if has_token => {
                Self::Granted(Granted::Token(token.parse().map_err(|_| unexpected())?))
            }
            Reply::List(ref list) => match list[..] {
                [Reply::Int(number::TOO_MANY), Reply::Int(total)] => Self::TooMany { total: permits(total) },
                [Reply::Int(left), Reply::Int(total)] => {
                    Self::Granted(Granted::Permits { left: permits(left), total: permits(total) })
                }
                _ => return Err(unexpected()),
            },
            Reply::Int(number::NO_KNOWN_END) => Self::Held(None),
            Reply::Int(number::FREE) => Self::Free,
            Reply::Int(number::LOST) => Self::Lost,
            Reply::Int(number::OTHER_KIND) => Self::OtherKind,
            Reply::Int(number::QUEUED) => Self::Queued,
            Reply::Int(number::NOT_A_LOCK) => Self::NotALock,
            Reply::Int(number::ATTEMPT_AGAIN) => Self::AttemptAgain,
            Reply::Int(number::CANNOT_COUNT) if has_token => Self::CannotCount,
            // 0: the key is in its last millisecond, so wait for one millisecond.
            Reply::Int(ms) => {
                let ms = u64::try_from(ms).map_err(|_| unexpected())?;
                Self::Held(Some(Duration::from_millis(ms.max(1))))
            }
            Reply::Nil | Reply::Text(_) => return Err(unexpected()),
        })
    }
}

impl ClaimReply {
    /// Parses the reply about so many locks.
    pub(crate) fn parse(reply: &Reply, locks: usize) -> Result<Self, Fault> {
        let place = |place: i64| usize::try_from(place).ok()?.checked_sub(1).filter(|place| *place < locks);
        let parsed = match reply {
            Reply::Nil => Some(Self::NoneFree),
            Reply::Int(number::CANNOT_COUNT) => Some(Self::CannotCount),
            Reply::List(list) => match &list[..] {
                [Reply::Int(number::NOT_A_LOCK), Reply::Int(at)] => place(*at).map(Self::NotALock),
                [Reply::Int(at), Reply::Text(token)] => {
                    place(*at).zip(token.parse().ok()).map(|(place, token)| Self::Granted(place, token))
                }
                _ => None,
            },
            _ => None,
        };
        parsed.ok_or_else(|| Fault::unexpected(reply))
    }
}

impl ReleaseReply {
    pub(crate) fn parse(reply: &Reply) -> Result<Self, Fault> {
        match *reply {
            Reply::Int(number::LOST) => Ok(Self::Gone),
            Reply::Int(number::NOBODY_TOLD) => Ok(Self::ReleasedInSilence),
            Reply::Int(number::BESIDE_DATA) => Ok(Self::ReleasedBesideData),
            Reply::Int(receivers @ 0..) => {
                Ok(Self::Released { receivers: u32::try_from(receivers).unwrap_or(u32::MAX) })
            }
            _ => Err(Fault::unexpected(reply)),
        }
    }
}

impl ConfirmReply {
    pub(crate) fn parse(reply: &Reply) -> Result<Self, Fault> {
        match *reply {
            Reply::Int(number::RENEWED) => Ok(Self::Renewed),
            Reply::Int(number::WANTED) => Ok(Self::Wanted),
            Reply::Int(number::LOST) => Ok(Self::Lost),
            _ => Err(Fault::unexpected(reply)),
        }
    }
}

/// The reply of a script that says how many permits of a semaphore are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitsReply {
    Permits {
        available: u32,
        total: u32,
    },
    /// The key holds data that is no semaphore.
    NotASemaphore,
    /// Done, but the server did not allow the message to the waiters.
    Silent,
}

impl PermitsReply {
    pub(crate) fn parse(reply: &Reply) -> Result<Self, Fault> {
        match reply {
            Reply::Int(number::NOT_A_LOCK) => Ok(Self::NotASemaphore),
            Reply::Int(number::NOBODY_TOLD) => Ok(Self::Silent),
            Reply::List(list) => match list[..] {
                [Reply::Int(available), Reply::Int(total)] => {
                    Ok(Self::Permits { available: permits(available), total: permits(total) })
                }
                _ => Err(Fault::unexpected(reply)),
            },
            _ => Err(Fault::unexpected(reply)),
        }
    }
}

/// A permit that is in use: its id, and how long its lease lasts. `None`: for ever.
pub(crate) type PermitInUse = ([u8; 16], Option<Duration>);

/// A part of the list of permits that are in use.
pub(crate) struct PermitsPart {
    /// Where the next part begins.
    pub(crate) next: Option<Arg>,
    pub(crate) in_use: Vec<PermitInUse>,
    /// There is something whose id has another length, as another program writes it.
    pub(crate) has_other_data: bool,
}

pub(crate) fn parse_holders(reply: &Reply) -> Result<PermitsPart, Fault> {
    let Reply::List(list) = reply else { return Err(Fault::unexpected(reply)) };
    let [Reply::Text(cursor), list @ ..] = &list[..] else { return Err(Fault::unexpected(reply)) };
    let next = (cursor != "0").then(|| Arg::Text(cursor.as_str().into()));
    let parse = |row: &[Reply]| {
        let [Reply::Text(id), Reply::Int(left)] = row else { return None };
        let id = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32)?.to_be_bytes();
        Some((id, u64::try_from(*left).ok().map(Duration::from_millis)))
    };
    let rows = list.chunks(2);
    let (all, in_use) = (rows.len(), rows.filter_map(parse).collect::<Vec<_>>());
    Ok(PermitsPart { next, has_other_data: in_use.len() < all, in_use })
}

/// How many permits. After the total was made smaller, the number of available permits can be negative: then there are none.
fn permits(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// Parses the reply of a renewal script, which has an item for each hold.
pub(crate) fn parse_renewal(reply: &Reply, rows: usize) -> Result<Vec<RenewalReply>, Fault> {
    parse_list(reply, rows, |reply| match reply {
        Reply::Int(number::RENEWED) => Some(RenewalReply::Renewed),
        Reply::Int(number::LOST) => Some(RenewalReply::Lost),
        Reply::Text(error) => Some(RenewalReply::Refused(error.clone())),
        _ => None,
    })
}

/// Parses the reply of a heartbeat script, which has an item for each waiter.
pub(crate) fn parse_heartbeat(reply: &Reply, waiters: usize) -> Result<Vec<PlaceReply>, Fault> {
    parse_list(reply, waiters, |reply| match reply {
        Reply::Int(number::LOST) => Some(PlaceReply::Gone),
        Reply::Int(number::PLACE_KEPT) => Some(PlaceReply::Kept),
        Reply::Int(number::FIRST_AND_FREE) => Some(PlaceReply::YourTurn),
        Reply::Int(number::MORE_DEAD) => Some(PlaceReply::KeptBehindTheDead),
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

#[cfg(test)]
mod tests {
    use super::number;

    /// The names and numbers of the lines `local NAME, NAME = number, number`.
    fn numbers_in_lua() -> Vec<(&'static str, i64)> {
        let assignments =
            include_str!("../../lua/includes/replies.lua").lines().filter(|line| !line.starts_with("--"));
        let parse = |line: &'static str| {
            let (names, numbers) =
                line.strip_prefix("local ").and_then(|line| line.split_once(" = ")).expect("local");
            let (names, numbers) =
                (names.split(", "), numbers.split(", ").map(|number| number.parse().expect("a number")));
            assert_eq!(names.clone().count(), numbers.clone().count(), "{line}");
            names.zip(numbers)
        };
        assignments.flat_map(parse).collect()
    }

    #[test]
    fn the_scripts_and_the_client_name_the_same_numbers() {
        assert_eq!(numbers_in_lua(), number::ALL);
    }

    #[test]
    fn each_number_has_one_meaning_and_is_no_amount() {
        for (index, (name, number)) in number::ALL.iter().enumerate() {
            assert_eq!(-*number, i64::try_from(index).unwrap() + 1, "{name}");
        }
    }
}
