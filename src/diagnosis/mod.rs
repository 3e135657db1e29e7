//! What the clients and the servers know of holds and waits, for those who look at locks.

pub(crate) mod clients;
pub(crate) mod info;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod long_waits;
pub(crate) mod recent_waits;
pub(crate) mod records;
pub(crate) mod rights;
pub(crate) mod waits;
pub(crate) mod why;

pub(crate) use clients::Clients;
pub(crate) use inspect::{force_unlock_of, inspect};
pub(crate) use list::{Part, Scan, info};
pub(crate) use rights::check_rights;
pub(crate) use why::{Chain, all_chains, chains};
