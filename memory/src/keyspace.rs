//! Keys, their values and their expiries.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::channels::ClientId;
use crate::tracking::Tracking;
use crate::value::{Bytes, Kind, Value};

/// All keys of a server.
#[derive(Debug)]
pub(crate) struct Keyspace {
    entries: HashMap<Bytes, Entry>,
    /// Time since 1970. It stands still within a command and within a script.
    now: Duration,
    /// Draws the fields of `HRANDFIELD`. It has a seed, so that a test can be repeated exactly.
    random: Rng,
    pub(crate) tracking: Tracking,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    value: Value,
    /// Milliseconds since 1970.
    expires: Option<i64>,
}

pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Keyspace {
    pub(crate) fn new(seed: u64) -> Self {
        let (entries, now, random) = (HashMap::new(), Duration::ZERO, Rng::with_seed(seed));
        Self { entries, now, random, tracking: Tracking::default() }
    }

    /// Sets the time. It never goes backwards.
    pub(crate) fn set_now(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    /// Sets the time, perhaps back.
    pub(crate) fn reset_now(&mut self, now: Duration) {
        self.now = now;
    }

    /// Lets a microsecond pass. On a real server at least one passes between two scripts, and scripts can rely on that.
    pub(crate) fn tick(&mut self) {
        self.now += Duration::from_micros(1);
    }

    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX)
    }

    pub(crate) fn random(&mut self) -> &mut Rng {
        &mut self.random
    }

    /// Removes the key if it has expired, as every command does with the keys that it uses.
    fn live(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now_ms();
        // A key still exists in the millisecond of its expiry: its PTTL is 0 then.
        if self.entries.get(key)?.expires.is_some_and(|at| now > at) {
            self.erase(key);
        }
        self.entries.get_mut(key)
    }

    pub(crate) fn exists(&mut self, key: &[u8]) -> bool {
        self.live(key).is_some()
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.take(key).is_some()
    }

    fn erase(&mut self, key: &[u8]) -> Option<Entry> {
        self.tracking.changed(key);
        self.entries.remove(key)
    }

    /// Takes a key out.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Entry> {
        self.live(key)?;
        self.erase(key)
    }

    /// Adds a key that was taken out elsewhere.
    pub(crate) fn put(&mut self, key: Bytes, entry: Entry) {
        self.tracking.changed(&key);
        self.entries.insert(key, entry);
    }

    /// A copy of all keys.
    pub(crate) fn copy(&self) -> HashMap<Bytes, Entry> {
        self.entries.clone()
    }

    /// Returns to an earlier copy.
    pub(crate) fn restore(&mut self, entries: HashMap<Bytes, Entry>) {
        self.entries = entries;
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// The keys that have not expired, in any order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let now = self.now_ms();
        let live = self.entries.iter().filter(move |(_, entry)| entry.expires.is_none_or(|at| now <= at));
        live.map(|(key, _)| key)
    }

    /// Removes the keys that are such. In their order: those who have read them are told in this order.
    pub(crate) fn remove_all(&mut self, is_such: impl Fn(&Bytes) -> bool) {
        let keys: BTreeSet<Bytes> = self.keys().filter(|key| is_such(key)).cloned().collect();
        keys.iter().for_each(|key| drop(self.take(key)));
    }

    /// The value of a key.
    pub(crate) fn value(&mut self, key: &[u8]) -> Option<&mut Value> {
        self.live(key).map(|entry| &mut entry.value)
    }

    /// The value of a key, which has this type. `None`: there is no such key.
    pub(crate) fn find<K: Kind>(&mut self, key: &[u8]) -> Result<Option<&mut K>, String> {
        let value = self.value(key);
        value.map(|value| K::of(value).ok_or_else(|| WRONG_TYPE.to_owned())).transpose()
    }

    /// The value of a key, which has this type. If there is no such key, it is made without an expiry.
    pub(crate) fn find_or_make<K: Kind>(&mut self, key: &Bytes) -> Result<&mut K, String> {
        if !self.exists(key) {
            self.set(key, K::default().into());
        }
        self.find(key)?.ok_or_else(|| WRONG_TYPE.to_owned())
    }

    /// Takes something out of the value of a key, which has this type. If nothing is left, the key is removed. `None`: there
    /// is no such key.
    pub(crate) fn change<K: Kind, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut K) -> R,
    ) -> Result<Option<R>, String> {
        let Some(value) = self.find::<K>(key)? else { return Ok(None) };
        let before = value.len();
        let result = change(value);
        let after = value.len();
        if before != after {
            self.tracking.changed(key);
        }
        if after == 0 {
            self.entries.remove(key);
        }
        Ok(Some(result))
    }

    /// Sets the value of a key, and takes its expiry away.
    pub(crate) fn set(&mut self, key: &Bytes, value: Value) {
        self.put(Arc::clone(key), Entry { value, expires: None });
    }

    /// Milliseconds since 1970. `None`: there is no such key. `Some(None)`: it has no expiry.
    pub(crate) fn expiry(&mut self, key: &[u8]) -> Option<Option<i64>> {
        self.live(key).map(|entry| entry.expires)
    }

    /// Sets the expiry of a key that exists, or removes the expiry. A time in the past removes the key.
    pub(crate) fn set_expiry(&mut self, key: &[u8], at: Option<i64>) {
        if at.is_some_and(|at| at <= self.now_ms()) {
            self.erase(key);
        } else if let Some(entry) = self.entries.get_mut(key) {
            entry.expires = at;
            self.tracking.changed(key);
        }
    }

    /// Removes those keys that have expired, of those that a connection has read with `CLIENT TRACKING`. Returns how long it takes
    /// until the next one expires.
    pub(crate) fn expire_read(&mut self, client: ClientId) -> Option<Duration> {
        let keys: Vec<Bytes> = self.tracking.keys_of(client).cloned().collect();
        let next = keys.iter().filter_map(|key| self.live(key)?.expires).min();
        let next = next.and_then(|at| u64::try_from(at.saturating_add(1)).ok());
        next.map(|at| Duration::from_millis(at).saturating_sub(self.now))
    }
}
