//! The locks of a server, as a scan finds them.

use std::sync::Arc;

use super::listing::Listing;
use super::script::{Arg, Call, Reply};
use super::scripts;
use crate::base::fault::Fault;

/// A key that can be a lock.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) key: Arc<str>,
    pub(crate) kind: FoundKind,
    /// There is a counter for fencing tokens.
    pub(crate) has_counter: bool,
    /// Waiters in the queue of a fair lock.
    pub(crate) queued: u64,
    /// Connections that wait for a message about the lock.
    pub(crate) listeners: u64,
    /// Who holds the lock. `None`: unknown, so [`inspect`](super::inspect) has to ask.
    pub(crate) listing: Option<Listing>,
}

/// The kind of lock as which a key is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundKind {
    Exclusive,
    ReadWrite,
    Semaphore,
}

/// The types of keys that can be locks. Each needs a scan of its own.
pub(crate) const TYPES: [&str; 2] = ["hash", "string"];

/// Looks for a part of the locks of a server, among the keys of one of the [`TYPES`].
pub(crate) fn find(cursor: Arg, pattern: &Arc<str>, of_type: &str) -> Call {
    scripts::list([], cursor, pattern, of_type.to_owned())
}

impl Found {
    /// Adds what a part has. Returns the cursor of the next part; `None`: there is none.
    pub(crate) fn add(found: &mut Vec<Self>, reply: &Reply) -> Result<Option<Arg>, Fault> {
        let unexpected = || Fault::unexpected(reply);
        let Reply::List(list) = reply else { return Err(unexpected()) };
        let [Reply::Text(cursor), rows @ ..] = &list[..] else { return Err(unexpected()) };
        for row in rows.chunks(8) {
            let [
                Reply::Text(key),
                Reply::Int(kind @ 0..=2),
                Reply::Int(has_counter),
                Reply::Int(queued),
                Reply::Int(listeners),
                Reply::Text(owner),
                Reply::Text(holds),
                Reply::Int(left_ms),
            ] = row
            else {
                return Err(unexpected());
            };
            // A key that is not UTF-8 arrives with replacement characters, so its name is wrong. Without a listing, the
            // caller asks for that name and finds no lock.
            let is_known = !owner.is_empty() && !key.contains(char::REPLACEMENT_CHARACTER);
            found.push(Self {
                key: key.as_str().into(),
                kind: match kind {
                    0 => FoundKind::Exclusive,
                    1 => FoundKind::ReadWrite,
                    _ => FoundKind::Semaphore,
                },
                has_counter: *has_counter == 1,
                queued: u64::try_from(*queued).unwrap_or_default(),
                listeners: u64::try_from(*listeners).unwrap_or_default(),
                listing: is_known.then(|| Listing::of_one(owner, holds, *left_ms)),
            });
        }
        Ok((cursor != "0").then(|| Arg::Text(cursor.as_str().into())))
    }
}
