//! The holders of a lock, as the server lists them.

use std::time::Duration;

use super::reply::PermitInUse;
use super::script::{Arg, PermitIds, Reply};
use crate::base::fault::Fault;

/// The holders of a lock, of whatever type it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) holders: Vec<Holding>,
    pub(crate) is_read_write: bool,
    /// How many permits there are, if it is a semaphore.
    pub(crate) permits: Option<u32>,
    /// The hash has fields that belong to no lock.
    pub(crate) has_other_data: bool,
}

/// What one owner holds.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    /// The field of the lock's hash, or the id of a permit.
    pub(crate) field: String,
    pub(crate) holds: u64,
    pub(crate) lease: LeaseLeft,
    /// The number of the grant, for a read hold; else 0.
    pub(crate) grant: u64,
}

/// How long a lease on the server still lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeaseLeft {
    /// The lease has ended. The server keeps the field of a dead reader until a script finds the reader dead.
    Ended,
    For(Duration),
    /// The lease has no end, because another program removed the expiry.
    Endless,
}

impl Listing {
    /// The longest lease of the holders. `None`: the lock is free.
    pub(crate) fn lease(&self) -> Option<LeaseLeft> {
        self.holders.iter().map(|holding| holding.lease).max().filter(|lease| *lease != LeaseLeft::Ended)
    }

    /// The hold of an owner that is alone.
    pub(super) fn of_one(owner: &str, holds: &str, left_ms: i64) -> Self {
        let mut listing = Self::default();
        listing.add_field(owner, holds, left_ms, 0);
        listing
    }

    /// Returns the holders of a semaphore with this total and these permits in use.
    pub(crate) fn of_permits(total: u32, in_use: Vec<PermitInUse>) -> Self {
        let holding = |(id, left): PermitInUse| Holding {
            field: Arg::Permits(PermitIds::one(id)).to_string(),
            holds: 1,
            lease: left.map_or(LeaseLeft::Endless, |left| {
                if left.is_zero() { LeaseLeft::Ended } else { LeaseLeft::For(left) }
            }),
            grant: 0,
        };
        let mut holders: Vec<_> = in_use.into_iter().map(holding).collect();
        // Sorted by id: the order of the ends changes with each renewal.
        holders.sort_by(|a, b| a.field.cmp(&b.field));
        Self { holders, permits: Some(total), ..Self::default() }
    }

    /// Adds one part of the list. Returns the cursor of the next part; `None`: there is none.
    pub(crate) fn add(&mut self, reply: &Reply) -> Result<Option<Arg>, Fault> {
        let unexpected = || Fault::unexpected(reply);
        let Reply::List(list) = reply else { return Err(unexpected()) };
        let [Reply::Text(cursor), Reply::Text(mode), rows @ ..] = &list[..] else { return Err(unexpected()) };
        self.is_read_write = mode == "read" || mode == "write";
        self.has_other_data |= !self.is_read_write && !mode.is_empty();
        for row in rows.chunks(4) {
            let [Reply::Text(field), Reply::Text(value), Reply::Int(left), Reply::Text(grant)] = row else {
                return Err(unexpected());
            };
            if field != "mode" {
                self.add_field(field, value, *left, grant.parse().unwrap_or_default());
            }
        }
        // Only readers can hold a lock together, so a second field is data of another program.
        self.has_other_data |= !self.is_read_write && self.holders.len() > 1;
        let has_more = cursor != "0" && !self.has_other_data;
        if !has_more {
            // The scripts never leave the field `mode` without a holder, so such a hash is data of another program.
            self.has_other_data |= self.is_read_write && self.holders.is_empty();
            // `HSCAN` can return a field in more than one part.
            self.holders.sort_by(|a, b| a.field.cmp(&b.field));
            self.holders.dedup_by(|a, b| a.field == b.field);
        }
        Ok(has_more.then(|| Arg::Text(cursor.as_str().into())))
    }

    fn add_field(&mut self, field: &str, value: &str, left_ms: i64, grant: u64) {
        let Some(holds) = value.parse().ok().filter(|_| is_holder(field, self.is_read_write)) else {
            self.has_other_data = true;
            return;
        };
        let lease = match left_ms {
            -2 => LeaseLeft::Ended,
            left => u64::try_from(left)
                .map_or(LeaseLeft::Endless, |left| LeaseLeft::For(Duration::from_millis(left))),
        };
        self.holders.push(Holding { field: field.to_owned(), holds, lease, grant });
    }
}

/// Whether a field of a hash is that of a holder: `<UUID>:<number>`, and in a read-write lock perhaps `:write` behind it. The
/// scripts decide in the same way.
fn is_holder(field: &str, is_read_write: bool) -> bool {
    let owner = if is_read_write { field.strip_suffix(":write").unwrap_or(field) } else { field };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    owner.rsplit_once(':').is_some_and(|(client, number)| is_uuid(client) && is_number(number))
}

/// Whether a text has the form of a UUID, as far as the scripts look at it.
fn is_uuid(text: &str) -> bool {
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split('-').count() == 5 && text.split('-').all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_holders_are_distinguished_from_other_data() {
        for field in ["8743c9c0-0795-4907-87fd-6c719a6b4586:77", "0-0-0-0-a:0"] {
            assert!(is_holder(field, false) && is_holder(field, true), "{field}");
        }
        for field in [
            "",
            ":",
            "a",
            ":1",
            "item:1",
            "0-0-0-0-0",
            "0-0-0-0-0:",
            "0-0-0-0-0:-1",
            "0-0-0-0-0:1 ",
            "0-0-0-0:1",
            "0-0--0-0:1",
            "0-0-0-0-g:1",
            "0-0-0-0-0:write",
            "items",
        ] {
            assert!(!is_holder(field, false) && !is_holder(field, true), "{field}");
        }
        assert!(is_holder("0-0-0-0-0:1:write", true) && !is_holder("0-0-0-0-0:1:write", false));
    }
}
