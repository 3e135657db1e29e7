//! What is sent: the calls of scripts, and who they are about.

use std::fmt;

use crate::USUAL_MS;

/// Redisson's owner is its thread, for ever.
pub const JAVA: Owner = Owner { client: 9, number: 77 };
/// What Redisson puts into the keys of its holds.
pub const JAVA_GRANT: u64 = 1;
/// "Whatever it was."
pub const ANY_GRANT: u64 = 0;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub client: u8,
    pub number: u64,
}

impl Owner {
    pub fn parse(text: &str) -> Self {
        let (uuid, number) = text.split_once(':').expect("UUID:number");
        Self { client: uuid[..8].parse().expect("a client"), number: number.parse().expect("a number") }
    }
}

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
    Reenter { want: u32, lease_ms: u64 },
    Release { keep: u32 },
    Renew { lease_ms: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    pub side: Side,
    pub owner: Owner,
    /// Of no meaning for a write hold.
    pub grant: u64,
    pub what: What,
}

impl Command {
    pub const fn script(self) -> &'static str {
        match (self.side, self.what) {
            (Side::Read, What::Acquire { .. }) => "read/acquire.lua",
            (Side::Read, What::Reenter { .. }) => "read/reenter.lua",
            (Side::Read, What::Release { .. }) => "read/release.lua",
            (Side::Read, What::Renew { .. }) => "read/renew.lua",
            (Side::Write, What::Acquire { .. }) => "write/acquire.lua",
            (Side::Write, What::Reenter { .. }) => "rlock/reenter.lua",
            (Side::Write, What::Release { .. }) => "write/release.lua",
            (Side::Write, What::Renew { .. }) => "rlock/renew.lua",
        }
    }

    pub fn args(self) -> Vec<String> {
        let id = match self.side {
            Side::Read => vec![self.owner.to_string(), self.grant.to_string()],
            Side::Write => vec![format!("{}:write", self.owner)],
        };
        let (first, last) = match self.what {
            What::Acquire { lease_ms } => (None, vec![lease_ms]),
            What::Reenter { want, lease_ms } => (None, vec![want.into(), lease_ms]),
            What::Release { keep } if self.side == Side::Read => (None, vec![keep.into(), USUAL_MS]),
            What::Release { keep } => (None, vec![keep.into()]),
            // No lease that somebody may have made shorter.
            What::Renew { lease_ms } if self.side == Side::Read => (Some(lease_ms), vec![0]),
            What::Renew { lease_ms } => (Some(lease_ms), vec![]),
        };
        let text = |number: u64| number.to_string();
        first.map(text).into_iter().chain(id).chain(last.into_iter().map(text)).collect()
    }
}
