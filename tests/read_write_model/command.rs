//! What is sent: the calls of scripts, and whom they are about.

use std::fmt;

use crate::read_write_model::USUAL_MS;

/// Redisson's owner is a thread, and keeps its id.
pub const JAVA: Owner = Owner { client: 9, number: 77 };
/// What Redisson writes into the keys of its holds.
pub const JAVA_GRANT: u64 = 1;
/// Matches every grant.
pub const ANY_GRANT: u64 = 0;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub client: u8,
    pub number: u64,
}

impl Owner {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (uuid, number) = text.split_once(':')?;
        Some(Self { client: uuid.get(..8)?.parse().ok()?, number: number.parse().ok()? })
    }
}

/// As on the wire.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}-0000-4000-8000-000000000000:{}", self.client, self.number)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Acquire { lease_ms: u64 },
    Show { count: u32, lease_ms: u64 },
    Release,
    Renew { lease_ms: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Command {
    pub side: Side,
    pub owner: Owner,
    /// Only a read hold has one.
    pub grant: u64,
    pub what: What,
}

impl Command {
    pub const fn script(self) -> &'static str {
        match (self.side, self.what) {
            (Side::Read, What::Acquire { .. }) => "read/acquire.lua",
            (Side::Read, What::Show { .. }) => "read/show.lua",
            (Side::Read, What::Release) => "read/release.lua",
            (Side::Read, What::Renew { .. }) => "read/renew.lua",
            (Side::Write, What::Acquire { .. }) => "write/acquire.lua",
            (Side::Write, What::Show { .. }) => "rlock/show.lua",
            (Side::Write, What::Release) => "write/release.lua",
            (Side::Write, What::Renew { .. }) => "rlock/renew.lua",
        }
    }

    pub fn args(self) -> Vec<String> {
        let id = match self.side {
            Side::Read => vec![self.owner.to_string(), self.grant.to_string()],
            Side::Write => vec![format!("{}:write", self.owner)],
        };
        let (first, last) = match self.what {
            What::Acquire { lease_ms } if self.side == Side::Read => (None, vec![lease_ms]),
            // turn_ms is 0: the writer does not stop readers.
            What::Acquire { lease_ms } => (None, vec![lease_ms, 0]),
            What::Show { count, lease_ms } => (None, vec![count.into(), lease_ms]),
            What::Release if self.side == Side::Read => (None, vec![USUAL_MS]),
            What::Release => (None, vec![]),
            // keep_ms is 0: the hold has no lease of its own to restore.
            What::Renew { lease_ms } if self.side == Side::Read => (Some(lease_ms), vec![0]),
            What::Renew { lease_ms } => (Some(lease_ms), vec![]),
        };
        let text = |number: u64| number.to_string();
        first.map(text).into_iter().chain(id).chain(last.into_iter().map(text)).collect()
    }
}

/// As in the list of what happened: `read/acquire 0:3, grant 3, for 30 s`.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.script().trim_end_matches(".lua"), self.owner)?;
        if self.side == Side::Read && self.grant != ANY_GRANT {
            write!(f, ", grant {}", self.grant)?;
        }
        match self.what {
            What::Acquire { lease_ms } | What::Renew { lease_ms } => write!(f, ", for {} s", lease_ms / 1000),
            What::Show { count, lease_ms } => write!(f, ", {count}, for {} s", lease_ms / 1000),
            What::Release => Ok(()),
        }
    }
}
