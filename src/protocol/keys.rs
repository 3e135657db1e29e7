//! The keys and channels of a lock. They follow from its name, byte for byte as Redisson derives them.
//!
//! The main key is the name itself. Every other key and channel contains the name as a hash tag, so that Redis Cluster keeps
//! them in one slot. A name that contains `{` brings its own tag.

use std::sync::Arc;

use smallvec::SmallVec;

/// The keys and channels of one lock, derived once for each handle.
#[derive(Debug)]
pub(crate) struct LockKeys {
    /// The main key: the name of the lock.
    pub(crate) lock: Arc<str>,
    /// The channel of release messages. With a queue on the server, the prefix of each waiter's channel.
    pub(crate) channel: Arc<str>,
    /// The keys that only this type of lock has, in an order that its protocol defines.
    pub(crate) more: SmallVec<[Arc<str>; 1]>,
}

impl LockKeys {
    pub(crate) fn new(
        lock: Arc<str>,
        channel: fn(&str) -> Arc<str>,
        more: impl IntoIterator<Item = fn(&str) -> Arc<str>>,
    ) -> Self {
        let (channel, more) = (channel(&lock), more.into_iter().map(|key| key(&lock)).collect());
        Self { lock, channel, more }
    }
}

/// The channel of an RLock, a fair lock or a fenced lock.
pub(super) fn lock_channel(name: &str) -> Arc<str> {
    prefixed("redisson_lock__channel", name)
}

/// The channel of a read-write lock, for readers and writers.
pub(super) fn read_write_channel(name: &str) -> Arc<str> {
    prefixed("redisson_rwlock", name)
}

/// The queue of a fair lock: a list of owners.
pub(super) fn fair_queue(name: &str) -> Arc<str> {
    prefixed("redisson_lock_queue", name)
}

/// The time until which Java considers each waiter alive: a sorted set.
pub(super) fn fair_scores(name: &str) -> Arc<str> {
    prefixed("redisson_lock_timeout", name)
}

/// The records of waiters that are not Java's: a hash that Redisson does not know.
pub(super) fn fair_places(name: &str) -> Arc<str> {
    prefixed("lockkeeper_fair", name)
}

/// The order of waiters that are not Java's: a sorted set that Redisson does not know.
pub(super) fn fair_tickets(name: &str) -> Arc<str> {
    prefixed("lockkeeper_fair_tickets", name)
}

/// The last token of a fenced lock: a number.
pub(super) fn fencing_counter(name: &str) -> Arc<str> {
    prefixed("redisson_lock_token", name)
}

/// A key of one hold of a reader: a string.
pub(super) fn read_hold(name: &str, owner: &str, number: u32) -> Arc<str> {
    let tag = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
    format!("{tag}:{owner}:rwlock_timeout:{number}").into()
}

fn prefixed(prefix: &str, name: &str) -> Arc<str> {
    if name.contains('{') { [prefix, ":", name].concat() } else { [prefix, ":{", name, "}"].concat() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_equal_redissons() {
        for (name, channel) in [
            ("myLock", "redisson_lock__channel:{myLock}"),
            ("{grp}:a", "redisson_lock__channel:{grp}:a"),
            ("a{b", "redisson_lock__channel:a{b"),
            ("a}b", "redisson_lock__channel:{a}b}"),
        ] {
            assert_eq!(&*lock_channel(name), channel);
        }
    }

    #[test]
    fn keys_of_read_holds_equal_redissons() {
        assert_eq!(&*read_hold("a", "x:1", 2), "{a}:x:1:rwlock_timeout:2");
        assert_eq!(&*read_hold("{g}:a", "x:1", 1), "{g}:a:x:1:rwlock_timeout:1");
    }
}
