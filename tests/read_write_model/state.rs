//! What the server has: the hash of the lock, and the keys of its readers' holds.

use std::collections::BTreeMap;

use crate::read_write_model::command::{Owner, Side};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub grant: u64,
    pub ends: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hash {
    pub mode: Side,
    pub writers: BTreeMap<Owner, u32>,
    pub readers: BTreeMap<Owner, u32>,
    pub ends: u64,
}

/// What is in Redis, or should be. Times are those of the model, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub hash: Option<Hash>,
    /// The keys of read holds, by owner and number of the hold.
    pub keys: BTreeMap<(Owner, u32), Key>,
}

/// A read hold that is alive.
#[derive(Clone, Copy, Debug)]
pub struct Living {
    pub count: u32,
    pub grant: u64,
    pub ends: u64,
}

impl State {
    pub fn mode(&self) -> Option<Side> {
        self.hash.as_ref().map(|hash| hash.mode)
    }

    pub fn ends(&self) -> u64 {
        self.hash.as_ref().map_or(0, |hash| hash.ends)
    }

    /// How many read holds the hash says, alive or dead.
    pub fn count(&self, owner: Owner) -> u32 {
        self.hash.as_ref().and_then(|hash| hash.readers.get(&owner).copied()).unwrap_or(0)
    }

    /// How many write holds there are.
    pub fn writes(&self, owner: Owner) -> u32 {
        self.hash.as_ref().and_then(|hash| hash.writers.get(&owner).copied()).unwrap_or(0)
    }

    pub fn living(&self, owner: Owner) -> Option<Living> {
        let count = self.count(owner);
        let keys: Vec<Key> =
            (1..=count).filter_map(|number| self.keys.get(&(owner, number)).copied()).collect();
        let ends = keys.iter().map(|key| key.ends).max()?;
        Some(Living { count, grant: keys[0].grant, ends })
    }

    /// The readers that are alive.
    pub fn readers(&self) -> Vec<(Owner, Living)> {
        let owners = self.hash.iter().flat_map(|hash| hash.readers.keys().copied());
        owners.filter_map(|owner| Some((owner, self.living(owner)?))).collect()
    }

    /// The same without dead readers, which any script may remove.
    pub fn without_dead(&self) -> Self {
        let alive: Vec<Owner> = self.readers().into_iter().map(|(owner, _)| owner).collect();
        let mut state = self.clone();
        if let Some(hash) = &mut state.hash {
            hash.readers.retain(|owner, _| alive.contains(owner));
        }
        state
    }
}
